"""Swapped copies of models, beside the models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from nas.genome import Genome, Visibility
from nas.genome.mechanisms import MECHANISMS

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def qana(**params: Any) -> Genome:
    """Standard attention with QANA's score."""
    graph = MECHANISMS["qana"].genome.to_dict()
    graph["graph_def"][0]["params"] = params
    return Genome.from_dict(graph)


def windowed(genome: Genome, window: int, global_tokens: int = 0) -> Genome:
    """The genome with a window."""
    return replace(genome, visibility=Visibility(window, global_tokens))


def assert_same(
    found: Callable[..., Any], expected: Callable[..., Any], *given: Any, **options: Any
) -> None:
    """Equal results where both draw the same random numbers."""
    results = []
    for model in (found, expected):
        torch.manual_seed(1)
        results.append(model(*given, **options))
    torch.testing.assert_close(*results, **TOLERANCE)
