"""Promises of every host, which is a kind of attention module that a mechanism can replace.

Replacing the attention of a model must keep the outputs of the model.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

from nas.common.errors import NasError
from nas.surgery import swap_attention
from nas.surgery.core import AttentionCore
from nas.surgery.hosts import HOSTS
from nas.testing.promises import Promise, keep, require, require_same

_TOLERANCE: Final = 1e-5
MECHANISM: Final = "qana"  # starts as softmax attention, and has parameters of its own
Run: TypeAlias = Callable[[nn.Module], Tensor]


def check_host(name: str, model: nn.Module, *arguments: Any, **options: Any) -> None:
    """Check a host against the promises of its family; the model is not changed.

    Args:
        name: name of the host.
        model: a model with attention modules of this kind. It returns a tensor, or a tuple whose
            first element is a tensor.
        arguments, options: arguments of a call of the model, such as tokens and masks.

    Raises:
        AssertionError: a promise is broken; the message names it.
        ConfigError: there is no such host.
    """
    host = HOSTS[name]()

    def run(model: nn.Module) -> Tensor:
        torch.manual_seed(1)  # for dropout
        result = model(*arguments, **options)
        tensor: Tensor = result if isinstance(result, Tensor) else result[0]
        return tensor

    require(any(map(host.recognises, model.modules())), f"the host {name} recognises no attention")
    keep(f"the host {name}", PROMISES, model, run)


def swapped(model: nn.Module, **options: Any) -> nn.Module:
    """Return a copy of the model with a mechanism that equals softmax attention before training."""
    other = deepcopy(model)
    require(swap_attention(other, MECHANISM, **options), "nothing is swapped")
    return other


def randomise(model: nn.Module) -> None:
    """Add noise to the mechanism's parameters, so that the mechanism changes the outputs."""
    torch.manual_seed(2)
    with torch.no_grad():
        for core in cores(model):
            for parameter in core.parameters():
                parameter.add_(0.5 * torch.randn_like(parameter))


def cores(model: nn.Module) -> list[AttentionCore]:
    """Return the modules of a swapped model that compute the mechanism."""
    return [m for m in model.modules() if isinstance(m, AttentionCore)]


def keeps_the_outputs(model: nn.Module, run: Run) -> None:
    """Replacing attention keeps the outputs of a model, in training and in eval mode."""
    for is_training in (True, False):
        before = deepcopy(model).train(is_training)
        require_same(run(swapped(before)), run(before), "the output", _TOLERANCE)


def keeps_the_names(model: nn.Module, run: Run) -> None:
    """Parameters keep their names and values; names of new parameters contain "core"."""
    other = swapped(model).state_dict()
    for name, tensor in model.state_dict().items():
        is_kept = name in other and torch.equal(other.pop(name), tensor)
        require(is_kept, f"{name} is missing or changed")
    require(all(".core." in f".{name}" for name in other), f"found new {', '.join(other)}")


def attends_by_the_mechanism(model: nn.Module, run: Run) -> None:
    """The mechanism's parameters change the outputs, have gradients, and survive copies."""
    other = swapped(model)
    before = run(other)
    randomise(other)
    after = run(other)
    require((after - before).abs().max() > 1e-3, "other parameters do not change the outputs")
    for copy in (pickle.loads(pickle.dumps(other)), deepcopy(other)):  # noqa: S301 - our own bytes
        require_same(run(copy), after, "a copy's output")
    after.square().sum().backward()
    gradients = [p.grad for core in cores(other) for p in core.parameters()]
    require(any(g is not None and bool(g.any()) for g in gradients), "it has no gradient")


def is_swapped_once(model: nn.Module, run: Run) -> None:
    """A swapped model is recognised, and refuses a second swap."""
    other = swapped(model)
    try:
        swap_attention(other, MECHANISM)
    except NasError as error:
        require("swapped before" in str(error), f"found the message {error}")
    else:
        raise AssertionError("it accepts a second swap")


PROMISES: Final[tuple[Promise, ...]] = (
    keeps_the_outputs,
    keeps_the_names,
    attends_by_the_mechanism,
    is_swapped_once,
)
