"""The named mechanisms of the plug-in; importing this package registers them."""

from linear_zoo.mechanisms import attention, delta

__all__ = ["attention", "delta"]
