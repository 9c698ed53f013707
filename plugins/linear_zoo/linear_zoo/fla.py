"""Compare mechanisms with the naive implementations of flash-linear-attention.

    python -m linear_zoo.fla --fla FOLDER

FOLDER is a checkout of fla-org/flash-linear-attention (docs/mechanisms.md used commit bc3b101d);
its naive implementations need the package einops. Our block computes its streams, that
is, queries, keys, values and gates after their convolutions and norms. Both sides then compute the
sums over the tokens from the same streams; outputs are compared, and gradients with respect to
the streams, the block's input and its parameters. The reference interpreter runs on our side: tests
compare it with the fast form.

The naive code converts its inputs to float32. For the comparison in float64 its source is
unchanged, but the name ``torch.float32`` refers to float64 when it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from nas.compiler.interpreter import ReferenceAttention
from nas.compiler.kernels.attention import repeat_heads
from nas.compiler.masks import visible_keys
from nas.compiler.plan import make_plan
from nas.genome.mechanisms import mechanism

if TYPE_CHECKING:
    from nas.compiler.plan import Step

LENGTHS: Final = (17, 64, 150)
DIM, HEADS, BATCH = 32, 4, 2


@dataclass(frozen=True)
class Case:
    """A mechanism and a naive implementation of its sums over the tokens.

    Attributes:
        file: the naive implementation's path below fla/ops, without its suffix.
        function: its name.
        core: the primitive whose result is compared.
        streams: places of the streams, as paths of operands: "gated_product 0" is the first operand
            of that call; "erase_delta 0 1" is the second operand of the call that computes the
            first operand of the delta rule; "erase_delta 0 strength" is the operand that the
            primitive ``strength`` computes, and "erase_delta 0 !strength" another one.
        naive: returns the result (b, h, n, w) from the function, the block and the streams.
    """

    mechanism: str
    file: str
    function: str
    streams: str
    naive: Callable[..., Tensor]
    core: str = "weighted_sum"


class Block:
    """A block whose steps can be computed from given streams."""

    def __init__(self, name: str, length: int, dtype: torch.dtype) -> None:
        torch.manual_seed(length)
        self.module = ReferenceAttention(make_plan(mechanism(name).genome), DIM, HEADS).to(dtype)
        with torch.no_grad():
            for parameter in self.module.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        self.x = torch.randn(BATCH, length, DIM).to(dtype).requires_grad_()
        self.steps: dict[str, Step] = {step.variable: step for step in self.module.plan.steps}

    def last(self, op: str) -> Step:
        """Return the last call of a primitive."""
        return next(s for s in reversed(self.module.plan.steps) if s.primitive.name == op)

    def variable(self, path: str) -> str:
        """Return the variable at the end of a path of operands (``Case.streams``)."""
        op, *indices = path.split()
        variable = self.last(op).variable
        for index in indices:
            operands = [operand.variable for operand in self.steps[variable].operands]
            if index.isdigit():
                variable = operands[int(index)]
            else:
                wanted = not index.startswith("!")
                made = {v: self.maker(v) == index.removeprefix("!") for v in operands}
                variable = next(v for v in operands if made[v] is wanted)
        return variable

    def maker(self, variable: str) -> str:
        """Return the primitive that computes a variable, or the name of the stream."""
        return self.steps[variable].primitive.name if variable in self.steps else variable

    def weights(self, op: str) -> Any:
        """Return the module of the last call of a primitive."""
        return self.module.get_submodule(self.last(op).module)

    def run(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the values of all variables, of which some are given."""
        block, mask = self.module, visible_keys(self.x, None, None, True)
        values = {s.name: block.read(s, self.x) for s in block.plan.streams} | given
        for step in block.plan.steps:
            if step.variable in given:
                continue
            count = step.type.head_count(block.heads)
            operands = [repeat_heads(values[o.variable], count) for o in step.operands]
            extras = {"x": self.x, "mask": mask}
            arguments = {name: extras[name] for name in step.primitive.extras}
            values[step.variable] = block.get_submodule(step.module)(*operands, **arguments)
        return values


def main() -> None:
    """Print the largest differences of outputs and gradients for each mechanism and length."""
    parser = argparse.ArgumentParser(prog="python -m linear_zoo.fla", description=__doc__)
    parser.add_argument("--fla", type=Path, required=True, metavar="FOLDER", help="the checkout")
    folder = parser.parse_args().fla
    torch.set_num_threads(1)
    print(f"{DIM} features, {HEADS} heads, batch {BATCH}, causal; differences relative to the")
    print(f"largest value if it exceeds 1; tokens: {', '.join(map(str, LENGTHS))}")
    types_ = (torch.float64, torch.float32)
    print(f"{'mechanism':24}{'naive code':43}{'float64':>9}{'gradients':>11}", end="")
    print(f"{'float32':>10}{'gradients':>11}")
    for case in CASES:
        cells = []
        for dtype in types_:
            found = [differences(case, folder, n, dtype) for n in LENGTHS]
            cells += [max(each) for each in zip(*found, strict=True)]
        numbers = "".join(
            f"{cell:{width}.0e}" for cell, width in zip(cells, (9, 11, 10, 11), strict=True)
        )
        print(f"{case.mechanism:24}{case.function:43}{numbers}", flush=True)


def differences(case: Case, folder: Path, length: int, dtype: torch.dtype) -> tuple[float, float]:
    """Return the largest difference of outputs, and that of gradients."""
    block = Block(case.mechanism, length, dtype)
    names = [block.variable(path.strip()) for path in case.streams.split(",")]
    values = block.run({})
    # A strength is the same number for all features.
    whole = [values[name].detach() for name in names]
    leaves = [
        (value[..., :1] if block.maker(name) == "strength" else value).clone().requires_grad_()
        for name, value in zip(names, whole, strict=True)
    ]
    given = {n: leaf.expand_as(w) for n, leaf, w in zip(names, leaves, whole, strict=True)}
    ours = block.run(given)[block.last(case.core).variable]
    with in_type(dtype):
        function = getattr(load(folder, case.file, dtype), case.function)
        theirs = case.naive(function, block, *leaves)
    pull = torch.randn_like(ours)
    inputs = [*leaves, block.x, *block.module.parameters()]
    gradients = [
        torch.autograd.grad((out * pull).sum(), inputs, allow_unused=True) for out in (ours, theirs)
    ]
    pairs = [(a, b) for a, b in zip(*gradients, strict=True) if a is not None or b is not None]
    return _gap(ours, theirs), max(_gap(a, b) for a, b in pairs)


def _gap(ours: Tensor | None, theirs: Tensor | None) -> float:
    known = ours if ours is not None else theirs
    assert known is not None
    a, b = (torch.zeros_like(known) if t is None else t for t in (ours, theirs))
    return ((a - b).abs().max() / b.abs().max().clamp(min=1.0)).item()


class _Double(types.ModuleType):
    """The module torch with float64 in place of float32."""

    float32 = float = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextlib.contextmanager
def in_type(dtype: torch.dtype) -> Iterator[None]:
    """Make ``dtype`` the default, and in float64 the type to which ``Tensor.float`` converts."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with contextlib.ExitStack() as stack:
            if dtype is torch.float64:
                stack.enter_context(mock.patch.object(Tensor, "float", Tensor.double))
            yield
    finally:
        torch.set_default_dtype(before)


def load(folder: Path, file: str, dtype: torch.dtype) -> types.ModuleType:
    """Return the module of a naive implementation, without the package, which needs a GPU."""
    spec = importlib.util.spec_from_file_location("naive", folder / "fla/ops" / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Wall's file imports a constant and a sum from modules that need a GPU.
    constant: Any = types.ModuleType("fla.ops.utils.constant")
    constant.RCP_LN2 = 1.4426950408889634
    sums: Any = types.ModuleType("fla.ops.utils.cumsum")
    sums.chunk_global_cumsum = lambda g, cu_seqlens, scale: g.cumsum(1) * scale
    found = {each.__name__: each for each in (constant, sums)}
    packages = {name: types.ModuleType(name) for name in ("fla", "fla.ops", "fla.ops.utils")}
    double = {"torch": _Double("torch")} if dtype is torch.float64 else {}
    with mock.patch.dict(sys.modules, packages | found):
        spec.loader.exec_module(module)
    for name in double:
        setattr(module, name, double[name])
    return module


def t(tensor: Tensor) -> Tensor:
    """Exchange heads and tokens."""
    return tensor.transpose(1, 2)


def logs(sums: Tensor) -> Tensor:
    """Return the logarithms of gates, of which the sums are given; (b, h, n, g)."""
    return torch.diff(sums, dim=2, prepend=torch.zeros_like(sums[:, :, :1]))


def _strength(block: Block, op: str) -> Tensor:
    return torch.sigmoid(block.weights(op).strength(block.x))


def _gla(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    return t(run(t(q), t(k), t(v), t(logs(gates)))[0])


def _lightnet(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    z = k.logcumsumexp(2)
    g = torch.cat((z[:, :, :1], z[:, :, :-1]), 2) - z
    return t(run(t(q), t(torch.exp(k - z)), t(v), t(g))[0])


def _simple_gla(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    return t(run(t(q), t(k), t(v), t(logs(gates)[..., 0]))[0])


def _log_linear(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    module = block.weights("level_scale")
    raw = module.level(block.x).unflatten(-1, module.weight.shape)
    scales = F.softplus(raw * module.weight)
    return t(run(t(q), t(k), t(v), t(logs(gates)[..., 0]), scales)) * q.shape[-1] ** -0.5


def _hgrn(run: Any, block: Block, tokens: Tensor, gates: Tensor) -> Tensor:
    out = run(t(tokens).flatten(2), t(logs(gates)).flatten(2))[0]
    return t(out.unflatten(-1, (HEADS, -1)))


def _delta(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return run(q, F.normalize(k, dim=-1), v, _strength(block, "delta").mT)[0]


def _gated_delta(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    keys, beta = F.normalize(k, dim=-1), _strength(block, "delta")
    return t(run(t(q), t(keys), t(v), beta=beta, g=t(logs(g)[..., 0]))[0])


def _kda(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    keys, beta = F.normalize(k, dim=-1), _strength(block, "delta")
    return t(run(t(q), t(keys), t(v), g=t(logs(g)), beta=beta)[0])


def _fox(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    return t(run(t(q), t(k), t(v), t(logs(gates)[..., 0])))


def _wall(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    return t(run(t(q), t(k), t(v), t(logs(gates)), scale=q.shape[-1] ** -0.5))


def _ratio(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Divide two sums of the naive code, which itself adds 1e-6 to the second."""
    ones = torch.ones_like(v[..., :1])
    return run(q, k, v, use_norm=False) / run(q, k, ones, use_norm=False)


def _parallax(run: Any, block: Block, q: Tensor, r: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return t(run(t(q), t(r) * r.shape[-1] ** -0.5, t(k), t(v)))


def _path(run: Any, block: Block, q: Tensor, k: Tensor, w: Tensor, v: Tensor) -> Tensor:
    beta = 2.0 * _strength(block, "path_product")
    unit = t(F.normalize(w, dim=-1))
    return t(run(t(q), t(k), t(v), unit, beta, torch.zeros_like(beta), q.shape[-1] ** -0.5))


def _deltaformer(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return t(run(t(q), t(k), t(v), block.weights("softmax_delta").strength(block.x)))


def _abc(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, s: Tensor) -> Tensor:
    return run(q, k, v, s)[0] * q.shape[-1] ** -0.5


def _gsa(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    g = logs(gates)
    return t(run(t(q), t(k), t(v), t(1.0 - g.exp()), t(g))[0]) * q.shape[-1] ** -0.5


def _rwkv6(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, gates: Tensor) -> Tensor:
    return run(q, k, v, logs(gates), block.weights("bonus_product").bonus[:, 0, 0])[0]


def _comba(
    run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, p: Tensor, b: Tensor, g: Tensor
) -> Tensor:
    return t(run(t(q), t(k), t(v), t(p), t(b[..., 0]), t(logs(g)[..., 0]))[0])


def _gdn2(
    run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, g: Tensor, erase: Tensor
) -> Tensor:
    """Erase and write gates are factors of streams here; the naive code multiplies by them."""
    return t(run(t(q), t(k), t(v), t(logs(g)), t(erase / k), t(torch.ones_like(v)))[0])


def _mesa(run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, b: Tensor, g: Tensor) -> Tensor:
    ridge = F.softplus(block.weights("mesa_query").ridge[:, 0]) + 0.25
    beta = t(b[..., 0] ** 2)
    return t(run(t(q), t(k), t(v), t(logs(g)[..., 0]), ridge, beta)[0]) * q.shape[-1] ** -0.5


def _precond(
    run: Any, block: Block, q: Tensor, k: Tensor, v: Tensor, *rest: Tensor, is_kda: bool
) -> Tensor:
    b, g, b_atk, g_atk = rest
    gates = t(logs(g)) if is_kda else t(logs(g)[..., 0])
    center = block.weights("precondition").center.flatten()
    return t(
        run(
            t(q),
            t(k),
            t(v),
            g=gates,
            g_atk=t(logs(g_atk)[..., 0]),
            beta=t(b[..., 0]),
            beta_atk=t(b_atk[..., 0]),
            log_atk_scale=center,
        )[0]
    )


_GATED: Final = "gated_product 0, gated_product 1, weighted_sum 1, gated_product 2"
_PRODUCT: Final = "scaled_dot_product 0, scaled_dot_product 1, weighted_sum 1"
_DELTA: Final = "gated_product 0, delta 0, delta 1, delta 2"
_PRECOND: Final = (
    "gated_product 0, precondition 0, erase_delta 2 !strength, erase_delta 2 strength, "
    "gated_product 2, scan 0 strength, scan 1"
)
CASES: Final = (
    Case("log_linear", "log_linear_attn/naive", "naive_log_linear_attn", _GATED, _log_linear),
    Case(
        "retnet",
        "retention/naive",
        "naive_retention",
        _GATED.rpartition(",")[0],
        lambda run, block, *qkv: run(*qkv),
    ),
    Case("hgrn", "hgrn/naive", "naive_recurrent_hgrn", "scan 0, scan 1", _hgrn, "scan"),
    Case("gla", "gla/naive", "naive_recurrent_gla", _GATED, _gla),
    Case("hgrn2", "gla/naive", "naive_recurrent_gla", _GATED, _gla),
    Case("mamba2", "simple_gla/naive", "naive_recurrent_simple_gla", _GATED, _simple_gla),
    Case(
        "deltanet",
        "delta_rule/naive",
        "delta_rule_recurrence",
        "scaled_dot_product 0, delta 0, delta 1",
        _delta,
    ),
    Case(
        "gated_deltanet",
        "gated_delta_rule/naive",
        "naive_recurrent_gated_delta_rule",
        _DELTA,
        _gated_delta,
    ),
    Case("kda", "kda/naive", "naive_recurrent_kda", _DELTA, _kda),
    Case(
        "forgetting", "forgetting_attn/naive", "naive_forgetting_attn", f"{_PRODUCT}, decay 1", _fox
    ),
    Case("wall", "wall_attn/naive", "naive_wall_attn", _GATED, _wall),
    Case(
        "based",
        "based/naive",
        "naive_parallel_based",
        _PRODUCT.replace("scaled_dot", "quadratic"),
        _ratio,
    ),
    Case(
        "rebased",
        "rebased/naive",
        "naive_parallel_rebased",
        _PRODUCT.replace("scaled_dot", "quadratic"),
        _ratio,
    ),
    Case(
        "rwkv6",
        "rwkv6/recurrent_naive",
        "naive_recurrent_rwkv6",
        _GATED.replace("gated", "bonus"),
        _rwkv6,
    ),
    Case(
        "lightnet",
        "gla/naive",
        "naive_recurrent_gla",
        "gated_product 0, prefix_softmax 0, weighted_sum 1",
        _lightnet,
    ),
    Case("abc", "abc/naive", "naive_recurrent_abc", f"{_PRODUCT}, prefix_softmax 0", _abc),
    Case("gsa", "gsa/naive", "naive_recurrent_gsa", f"{_PRODUCT}, slot_sum 2", _gsa),
    Case(
        "path",
        "path_attn/naive",
        "naive_path_attn",
        "path_product 0, path_product 1, path_product 2, weighted_sum 1",
        _path,
    ),
    Case(
        "deltaformer",
        "deltaformer/naive",
        "naive_deltaformer_attn",
        "softmax_delta 0, softmax_delta 1, softmax_delta 2",
        _deltaformer,
    ),
    Case(
        "parallax",
        "parallax/naive",
        "naive_parallax",
        "local_linear 1 0 0, local_linear 0 0, local_linear 0 1, weighted_sum 1",
        _parallax,
    ),
    Case(
        "comba",
        "comba/naive",
        "naive_recurrent_comba",
        "gated_product 0, erase_delta 1, erase_delta 2 !strength, erase_delta 0 !strength, "
        "erase_delta 0 strength, gated_product 2",
        _comba,
    ),
    Case(
        "gated_deltanet2",
        "gdn2/naive",
        "naive_recurrent_gdn2",
        "gated_product 0, gated_product 1, erase_delta 2, gated_product 2, erase_delta 0",
        _gdn2,
    ),
    Case(
        "mesanet",
        "mesa_net/naive",
        "naive_mesa_net_exact",
        "mesa_query 0, mesa_query 1 !strength, weighted_sum 1 !strength, mesa_query 1 strength, "
        "mesa_query 2",
        _mesa,
    ),
    Case(
        "precond_gated_deltanet",
        "precond_gated_delta_rule/naive",
        "naive_recurrent_precond_gated_delta_rule",
        # This naive code scales queries and keys to unit length itself.
        _PRECOND.replace("product 0", "product 0 0").replace("condition 0", "condition 0 0"),
        lambda *tensors: _precond(*tensors, is_kda=False),
    ),
    Case(
        "precond_kda",
        "precond_kda/naive",
        "naive_recurrent_precond_kda",
        _PRECOND,
        lambda *tensors: _precond(*tensors, is_kda=True),
    ),
)


if __name__ == "__main__":
    main()
