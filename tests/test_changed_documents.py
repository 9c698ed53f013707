"""A reader of a changed document accepts it or raises an error of this package."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nas.common.config import find_named, parse_model, read_document
from nas.common.errors import NasError
from nas.genome import Genome
from nas.genome.mechanisms import mechanism
from nas.space import SearchSpace
from nas.space.rules import Policy
from nas.tasks import load_task, parse_task

VALUES = (
    None, True, 0, -1, 3, 10**30, 0.5, float("nan"), float("inf"), "", "q", "softmax", "é\x1b[2J",
    "x" * 500, [], [[]], {}, {"a": 1}, ["q", "k"], {"op": "softmax", "inputs": [0]},
)  # fmt: skip
READERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "genome": (lambda: mechanism("qana").genome.to_dict(), Genome.from_dict),
    "space": (
        lambda: read_document(find_named("attention_v2", "search_spaces")),
        lambda data: parse_model(data, SearchSpace, "a space"),
    ),
    "policy": (
        lambda: read_document(find_named("two_stage", "validators")),
        lambda data: parse_model(data, Policy, "a policy"),
    ),
    "task": (
        lambda: load_task("bytes-and-recall").to_dict(),
        lambda data: parse_task(data, "a task"),
    ),
}


def changed(data: Any, rng: np.random.Generator) -> Any:
    """Return a copy in which a value is replaced, removed, or given an unknown key."""
    root = {"root": copy.deepcopy(data)}
    parent, key = root, "root"
    while isinstance(value := parent[key], dict | list) and value and rng.random() < 0.9:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        parent, key = value, keys[rng.integers(len(keys))]
    match rng.integers(4):
        case 0 if parent is not root:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[str(rng.choice(["unknown", "name", ""]))] = parent[key]
        case _:
            parent[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    return root["root"]


@pytest.mark.parametrize("kind", READERS)
def test_changed_document_is_accepted_or_refused_with_a_message(kind: str) -> None:
    make, read = READERS[kind]
    read(make())
    rng, messages = np.random.default_rng(0), []
    for _ in range(100):
        data = changed(make(), rng)
        try:
            read(data)
        except NasError as error:
            messages.append(str(error))
    assert len(messages) > 25
    assert all(message.isprintable() for message in messages)
