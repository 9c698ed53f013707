"""Swapped copies of models, beside the models."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from nas.genome import Genome, Visibility
from nas.mechanisms import MECHANISMS
from nas.surgery import swap_attention
from nas.surgery.core import AttentionCore

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def qana(**params: Any) -> Genome:
    """Standard attention with QANA's score."""
    graph = MECHANISMS["qana"].genome.to_dict()
    graph["graph_def"][0]["params"] = params
    return Genome.from_dict(graph)


def windowed(genome: Genome, window: int, global_tokens: int = 0) -> Genome:
    """The genome with a window."""
    return replace(genome, visibility=Visibility(window, global_tokens))


def swapped(model: nn.Module, **options: Any) -> nn.Module:
    """A copy of the model with QANA in it."""
    other = deepcopy(model)
    assert swap_attention(other, "qana", **options)
    return other


def cores(model: nn.Module) -> list[AttentionCore]:
    return [m for m in model.modules() if isinstance(m, AttentionCore)]


def randomise(model: nn.Module) -> None:
    """Move what is new away from where it adds nothing, as training does."""
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in (p for core in cores(model) for p in core.parameters()):
            parameter.add_(0.5 * torch.randn_like(parameter))


def assert_same(
    found: Callable[..., Any], expected: Callable[..., Any], *given: Any, **options: Any
) -> None:
    """Equal results where both draw the same random numbers."""
    results = []
    for model in (found, expected):
        torch.manual_seed(1)
        results.append(model(*given, **options))
    torch.testing.assert_close(*results, **TOLERANCE)
