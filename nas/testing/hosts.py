"""What every host promises: a model of its kind takes a mechanism, and keeps its outputs."""

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


def check_host(name: str, model: nn.Module, *given: Any, **options: Any) -> None:
    """Hold a host to its promises on a model of its kind; the model stays as it is.

    Args:
        name: of the host.
        model: holds attention of that kind; its result is a tensor, or a tuple that begins with
            one.
        given, options: of a call of the model, such as tokens and masks.

    Raises:
        AssertionError: a promise is broken; a sentence that says which.
        ConfigError: there is no such host.
    """
    host = HOSTS.get(name)()
    keep(f"the host {name}", [recognises_and_measures], host, model)
    keep(f"the host {name}", PROMISES, model, lambda model: model(*given, **options))


def swapped(model: nn.Module, **options: Any) -> nn.Module:
    """A copy of the model with a mechanism in it that starts as softmax attention."""
    other = deepcopy(model)
    require(swap_attention(other, MECHANISM, **options), "nothing is swapped")
    return other


def randomise(model: nn.Module) -> None:
    """Move what is new away from where it adds nothing, as training does."""
    torch.manual_seed(2)
    with torch.no_grad():
        for core in cores(model):
            for parameter in core.parameters():
                parameter.add_(0.5 * torch.randn_like(parameter))


def cores(model: nn.Module) -> list[AttentionCore]:
    """The mechanisms in a swapped model."""
    return [m for m in model.modules() if isinstance(m, AttentionCore)]


def recognises_and_measures(host: Any, model: nn.Module) -> None:
    """It recognises attention in the model, and measuring changes nothing."""
    found = [m for m in model.modules() if host.recognises(m)]
    require(found, "there is none")
    for module in found:
        before = sorted(vars(module)), sorted(module.state_dict())
        sizes = host.measure(module)
        require((sorted(vars(module)), sorted(module.state_dict())) == before, "it is changed")
        require(sizes.heads % sizes.kv_heads == 0, f"{sizes.kv_heads} heads of keys do not fit")


def keeps_the_outputs(model: nn.Module, run: Callable[[nn.Module], Any]) -> None:
    """A swapped model computes what it did, in training and evaluation."""
    for is_training in (True, False):
        before = deepcopy(model).train(is_training)
        wanted = _result(before, run)
        require_same(_result(swapped(before), run), wanted, "the output", _TOLERANCE)


def keeps_the_names(model: nn.Module, run: Callable[[nn.Module], Any]) -> None:
    """Parameters keep their names and numbers; new ones are named core.*."""
    other = swapped(model).state_dict()
    for name, tensor in model.state_dict().items():
        require(name in other and torch.equal(other.pop(name), tensor), f"{name} is not there")
    require(all(".core." in f".{name}" for name in other), f"{', '.join(other)} are new")


def attends_by_the_mechanism(model: nn.Module, run: Callable[[nn.Module], Any]) -> None:
    """What the mechanism learns moves the outputs, and gets gradients."""
    other = swapped(model)
    before = _result(other, run)
    randomise(other)
    after = _result(other, run)
    require((after - before).abs().max() > 1e-3, "other parameters give the same outputs")
    after.square().sum().backward()
    found = [p.grad for core in cores(other) for p in core.parameters()]
    require(any(g is not None and bool(g.any()) for g in found), "no gradient reaches it")


def survives_copies(model: nn.Module, run: Callable[[nn.Module], Any]) -> None:
    """A swapped model can be pickled and copied."""
    other = swapped(model)
    randomise(other)
    twin = pickle.loads(pickle.dumps(other))  # noqa: S301 - our own bytes
    for copy in (twin, deepcopy(other)):
        require_same(_result(copy, run), _result(other, run), "a copy's output")


def is_swapped_once(model: nn.Module, run: Callable[[nn.Module], Any]) -> None:
    """A swapped model is recognised, and refuses another mechanism."""
    other = swapped(model)
    try:
        swap_attention(other, MECHANISM)
    except NasError as error:
        require("swapped before" in str(error), f"it says: {error}")
    else:
        raise AssertionError("it takes a second one")


def _result(model: nn.Module, run: Callable[[nn.Module], Any]) -> Tensor:
    """The first tensor of a call; dropout draws the same numbers each time."""
    torch.manual_seed(1)
    found = run(model)
    tensor: Tensor = found if isinstance(found, Tensor) else found[0]
    return tensor


PROMISES: Final[tuple[Promise, ...]] = (
    keeps_the_outputs,
    keeps_the_names,
    attends_by_the_mechanism,
    survives_copies,
    is_swapped_once,
)
