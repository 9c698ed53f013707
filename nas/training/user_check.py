"""Check a user's own torch module before it is trained, and measure its costs."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from nas.common.errors import ConfigError
from nas.common.text import first_line
from nas.genome import ModelSizes
from nas.tasks.layers import seeded
from nas.training.candidate import UserAttention, load_class
from nas.training.dependence import Constant, Leak, probe, warn_of_tolerance
from nas.training.user_module import UserModule
from nas.training.user_process import ProcessEnded, call_in_process

CHECK_SECONDS: Final = 300.0

# FLOPs of operations that torch's counter leaves out: since torch 2.14, fused attention on CPUs.
UNCOUNTED: Final[dict[Any, Any]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value)  # type: ignore[no-untyped-call]
    )
}


def check_user_module(
    module: UserModule,
    sizes: ModelSizes,
    *,
    is_causal: bool,
    is_padded: bool = False,
    time_limit: float | None = CHECK_SECONDS,
) -> None:
    """Execute, construct and call a user's module at the sizes of a model, in a new process.

    The module must hide later tokens if ``is_causal``, and padding if ``is_padded``.

    Raises:
        ConfigError: code of the file raised an exception, ended its process, or took too long; the
            class or its output is not as ``nas.training.candidate`` describes; the output is not
            finite, random in evaluation, constant, or depends on other examples or hidden tokens;
            or the module cannot be differentiated, or seeds torch's random generator.
    """
    tolerance = _ask(_check, module, sizes, is_causal, is_padded, time_limit=time_limit)
    warn_of_tolerance(tolerance, module)


@lru_cache(maxsize=64)
def module_costs(module: UserModule, sizes: ModelSizes, is_causal: bool) -> dict[str, float]:
    """Return ``macs``, for one sequence, and ``params`` of all attention layers of a model.

    Operations that torch's FlopCounterMode does not count, such as activations, count as zero.
    """
    costs: dict[str, float] = _ask(_costs, module, sizes, is_causal)
    return {name: sizes.depth * cost for name, cost in costs.items()}


def _ask(
    function: Callable[..., Any],
    module: UserModule,
    sizes: ModelSizes,
    *arguments: Any,
    time_limit: float | None = CHECK_SECONDS,
) -> Any:
    try:
        return call_in_process(_call, function, module, sizes, *arguments, time_limit=time_limit)
    except ProcessEnded as error:
        raise ConfigError(f"{module}: {error}; expected a module that can be called.") from None


def _call(
    function: Callable[..., Any], module: UserModule, sizes: ModelSizes, *arguments: Any
) -> Any:
    try:
        return function(module, sizes, *arguments)
    except (ConfigError, Constant, Leak) as error:
        raise ConfigError(f"{module}: {str(error).rstrip('.')}.") from None
    except BaseException as error:
        calls = traceback.extract_tb(error.__traceback__)
        numbers = [call.lineno for call in calls if call.filename == module.path]
        where = f" in line {numbers[-1]}" if numbers else ""
        raise ConfigError(
            f"{module}: {type(error).__name__}{where}: {first_line(error)}; expected that "
            f"{module.class_name}({sizes.dim}, {sizes.heads}) maps x of shape (b, {sizes.tokens}, "
            f"{sizes.dim}) to the same shape by forward(x), forward(x, mask=None) or as "
            "nas.build_attention's module."
        ) from None


def _build(module: UserModule, sizes: ModelSizes) -> UserAttention:
    return UserAttention(load_class(module), sizes.dim, sizes.heads)


def _costs(module: UserModule, sizes: ModelSizes, is_causal: bool) -> dict[str, float]:
    options = {"is_causal": True} if is_causal else {}
    counter = FlopCounterMode(display=False, custom_mapping=UNCOUNTED)
    with seeded(0), torch.no_grad():
        block = _build(module, sizes).eval()
        with counter:
            block(torch.zeros(1, sizes.tokens, sizes.dim), **options)
    parameters = sum(weight.numel() for weight in block.parameters())
    return {"macs": counter.get_total_flops() / 2, "params": float(parameters)}


def _check(module: UserModule, sizes: ModelSizes, is_causal: bool, is_padded: bool) -> float:
    states = []
    for seed in (1, 2):
        with seeded(seed):
            block = _build(module, sizes)
            _check_output(block, sizes, {"is_causal": True} if is_causal else {})
            states.append(torch.get_rng_state())
    if torch.equal(*states):
        raise ConfigError(
            "seeds torch's random generator; expected a module that draws from it as it is, so "
            "that trainings are paired by their seeds"
        )
    with seeded(0):
        return probe(block, sizes, is_causal=is_causal, is_padded=is_padded)


def _check_output(block: UserAttention, sizes: ModelSizes, options: dict[str, Any]) -> None:
    """Call a block twice in evaluation, and once in training with a backward pass."""
    if any(map(is_lazy, block.parameters())):
        raise ConfigError("has lazy parameters; expected that its constructor makes all weights")
    x = torch.randn(2, sizes.tokens, sizes.dim, requires_grad=True)
    block.eval()
    out, again = block(x, **options), block(x, **options)
    found, expected = _form(out), _form(x)
    if found != expected:
        raise ConfigError(f"forward returned {found}; expected {expected}, that of its input")
    if not out.isfinite().all():
        raise ConfigError("the output for random tokens is not finite; expected finite numbers")
    if not torch.equal(out, again):
        raise ConfigError(
            "two calls on one input in evaluation mode gave two outputs; expected one, for example "
            "dropout that depends on self.training"
        )
    trained = block.train()(x, **options)
    torch.autograd.grad(trained.sum(), [x, *block.parameters()], allow_unused=True)
    block.eval()


def _form(out: Any) -> str:
    is_tensor = isinstance(out, Tensor)
    return f"{out.dtype} of shape {tuple(out.shape)}" if is_tensor else f"a {type(out).__name__}"
