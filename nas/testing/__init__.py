"""A conformance kit for packages of plug-ins: checks of primitives and mechanisms.

    from nas.testing import check_primitive

    def test_squared_score() -> None:
        check_primitive("squared_score")

A check tests all promises of a family, such as "a pickled module computes the same". It raises
AssertionError with the broken promise, the case, what was found and what was expected.
"""

from nas.testing.mechanisms import check_mechanism
from nas.testing.primitives import check_primitive

__all__ = ["check_mechanism", "check_primitive"]
