"""The primitives of the plug-in; importing this package registers them."""

from linear_zoo.primitives import delta, scores, slots, streams

__all__ = ["delta", "scores", "slots", "streams"]
