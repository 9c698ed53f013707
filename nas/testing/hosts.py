"""Promises of every host, which is a kind of attention module that a mechanism can replace.

Replacing the attention of a model must keep the outputs of the model.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.common.errors import NasError
from nas.surgery import swap_attention
from nas.surgery.core import AttentionCore
from nas.surgery.hosts import HOSTS
from nas.testing.promises import Promise, keep, require, require_same

_TOLERANCE: Final = 1e-5
MECHANISM: Final = "qana"  # starts as softmax attention, and has parameters of its own


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
    host = HOSTS.get(name)()
    keep(f"the host {name}", [recognises_and_measures], host, model)
    keep(f"the host {name}", PROMISES, model, lambda model: model(*arguments, **options))


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


def recognises_and_measures(host: Any, model: nn.Module) -> None:
    """The host recognises attention in the model, and reading its sizes does not change it."""
    modules = [m for m in model.modules() if host.recognises(m)]
    require(modules, "it recognises none")
    for module in modules:
        before = sorted(vars(module)), sorted(module.state_dict())
        sizes = host.measure(module)
        after = sorted(vars(module)), sorted(module.state_dict())
        require(after == before, "measuring changed it")
        finding = f"{sizes.kv_heads} key heads do not divide {sizes.heads}"
        require(sizes.heads % sizes.kv_heads == 0, finding)


def keeps_the_outputs(model: nn.Module, run: Callable[[nn.Module], Any]) -> None:
    """Replacing attention keeps the outputs of a model, in training and in eval mode."""
    for is_training in (True, False):
        before = deepcopy(model).train(is_training)
        expected = _result(before, run)
        require_same(_result(swapped(before), run), expected, "the output", _TOLERANCE)


def keeps_the_names(model: nn.Module, run: Callable[[nn.Module], Any]) -> None:
    """Parameters keep their names and values; names of new parameters contain "core"."""
    other = swapped(model).state_dict()
    for name, tensor in model.state_dict().items():
        is_kept = name in other and torch.equal(other.pop(name), tensor)
        require(is_kept, f"{name} is missing or changed")
    require(all(".core." in f".{name}" for name in other), f"found new {', '.join(other)}")


def attends_by_the_mechanism(model: nn.Module, run: Callable[[nn.Module], Any]) -> None:
    """The mechanism's parameters change the outputs, and have gradients."""
    other = swapped(model)
    before = _result(other, run)
    randomise(other)
    after = _result(other, run)
    require((after - before).abs().max() > 1e-3, "other parameters do not change the outputs")
    after.square().sum().backward()
    gradients = [p.grad for core in cores(other) for p in core.parameters()]
    require(any(g is not None and bool(g.any()) for g in gradients), "it has no gradient")


def survives_copies(model: nn.Module, run: Callable[[nn.Module], Any]) -> None:
    """A model whose attention was swapped gives the same outputs after pickling and copying."""
    other = swapped(model)
    randomise(other)
    for copy in (pickle.loads(pickle.dumps(other)), deepcopy(other)):  # noqa: S301 - our own bytes
        require_same(_result(copy, run), _result(other, run), "a copy's output")


def is_swapped_once(model: nn.Module, run: Callable[[nn.Module], Any]) -> None:
    """A swapped model is recognised, and refuses a second swap."""
    other = swapped(model)
    try:
        swap_attention(other, MECHANISM)
    except NasError as error:
        require("swapped before" in str(error), f"found the message {error}")
    else:
        raise AssertionError("it accepts a second swap")


def _result(model: nn.Module, run: Callable[[nn.Module], Any]) -> Tensor:
    """Return the first tensor that a call of the model returns, with a fixed seed for dropout."""
    torch.manual_seed(1)
    result = run(model)
    tensor: Tensor = result if isinstance(result, Tensor) else result[0]
    return tensor


PROMISES: Final[tuple[Promise, ...]] = (
    keeps_the_outputs,
    keeps_the_names,
    attends_by_the_mechanism,
    survives_copies,
    is_swapped_once,
)
