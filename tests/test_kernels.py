"""Which implementation computes a pattern: as measured, at the nearest width, or by the rule."""

import pytest
import torch

from nas.compiler.runtime import dot_product_attention
from nas.kernels import place, using, way


def test_where_nothing_was_measured_the_rule_decides():
    assert way("dot_product", torch.ones(1), 65, 16, "explicit") == "explicit"


def test_the_nearest_measured_width_decides_by_ratio():
    x = torch.ones(1)
    with using({place("dot_product", x, 65): {16: "fused", 64: "explicit"}}):
        found = [way("dot_product", x, 65, width, "rule") for width in (1, 16, 31, 33, 64, 900)]
    assert found == ["fused"] * 3 + ["explicit"] * 3


def test_a_measurement_holds_for_its_length_precision_and_direction_alone():
    x = torch.ones(1)
    with using({place("dot_product", x, 65): {16: "fused"}}):
        assert way("dot_product", x, 65, 16, "rule") == "fused"
        assert way("dot_product", x, 64, 16, "rule") == "rule"
        assert way("dot_product", x.double(), 65, 16, "rule") == "rule"
        assert way("hidden_units", x, 65, 16, "rule") == "rule"
        with torch.no_grad():
            assert way("dot_product", x, 65, 16, "rule") == "rule"
        with torch.autocast("cpu", torch.bfloat16):
            assert way("dot_product", x, 65, 16, "rule") == "rule"


def test_a_place_says_in_which_precision_autocast_computes():
    x = torch.ones(1)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert place("dot_product", x, 65) == "dot_product forward cpu bfloat16 65"
    assert place("dot_product", x, 7) == "dot_product forward_backward cpu float32 7"


def test_ways_end_with_their_block_even_by_an_error():
    x = torch.ones(1)
    with using({place("p", x, 1): {1: "a"}}):
        with pytest.raises(RuntimeError), using({}):
            raise RuntimeError(way("p", x, 1, 1, "rule"))
        assert way("p", x, 1, 1, "rule") == "a"
    assert way("p", x, 1, 1, "rule") == "rule"


def test_attention_takes_the_way_that_was_measured(monkeypatch):
    from nas.compiler import runtime

    def refused(*arguments):
        raise AssertionError("fused attention was called")

    x = torch.randn(1, 1, 512, 8)
    monkeypatch.setattr(runtime, "fused_attention", refused)
    with using({place("dot_product", x, 512): {8: "explicit"}}):
        dot_product_attention(x, x, x, None)
    with pytest.raises(AssertionError, match="fused"):
        dot_product_attention(x, x, x, None)
