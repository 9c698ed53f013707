"""Sentences on what a short task overrates name features in words."""

from __future__ import annotations

import pytest

from nas.report.short_task import _words


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        ("rope", "rope"),
        ("v > rope.0", "rope of v"),
        ("short_conv > scaled_dot_product.0", "short_conv as query of scaled_dot_product"),
        ("short_conv > scaled_dot_product.1", "short_conv as key of scaled_dot_product"),
        ("short_conv.kernel=4", "short_conv with kernel = 4"),
        ("kv_heads=1/4", "kv_heads = 1/4"),
        ("log macs", "log macs"),
    ],
)
def test_features_are_named_in_words(feature: str, words: str) -> None:
    assert _words(feature) == words
