"""Error messages of space files name the place, the value, what was expected, and other faults."""

from __future__ import annotations

from typing import Any

import pytest

from nas.common.config import parse_model
from nas.common.errors import ConfigError
from nas.space import SearchSpace

SPACE = {"name": "s", "nodes": {"max": 8}, "primitives": {"softmax": {}}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"placement": {"every": [0]}}, ".0.every: found int 0; expected greater than or equal"),
        ({"placement": {"every": 2, "count": "x"}}, ".0.count: found str 'x'; expected a valid"),
        ({"placement": 3}, ": found int 3; expected a list"),
        ({"region": {"quality": True}}, ".quality: found bool True; expected a valid number"),
        ({"projections": {"q_heads": ["x"]}}, ".q_heads.0: found str 'x'; expected 'all'"),
        ({"visibility": {"window": [0]}}, ".window.0: found int 0"),
        ({"primitives": {"softmax": {"t": [1]}}}, ": softmax has no parameter 't'"),
        ({"primitives": {"sofmax": {}}}, ": there is no primitive 'sofmax' (did you mean"),
    ],
)
def test_one_mistake_is_one_sentence(fields: dict[str, Any], words: str) -> None:
    (name,) = fields
    with pytest.raises(ConfigError) as caught:
        parse_model({**SPACE, **fields}, SearchSpace, "s.yaml")
    assert str(caught.value).startswith(f"s.yaml, {name}{words}")
    assert "more mistake" not in str(caught.value)
