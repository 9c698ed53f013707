"""The parts of the benchmark ``gpu`` that measure attention blocks."""

from __future__ import annotations

import copy
import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nas
from benchmarks.interleaving import interleaved, median, median_ratio
from benchmarks.rows import Row
from nas.common.errors import NasError
from nas.compiler import build_attention
from nas.costs import CostContext
from nas.costs.timing import calibrate
from nas.costs.timing.measuring import Passes, in_turns, seconds_of
from nas.genome import Genome, ModelSizes, Node
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.store.sources import load_genome

# Keys of a quarter of a head have 4 features: a layer norm of 2 gives their order alone, and its
# gradients are ill-conditioned.
CHECKED: Final = ModelSizes(dim=128, heads=8, depth=1, tokens=65)
SPREAD: Final = 0.3  # standard deviation of the weights of a checked block
TIMED: Final = ("mha", "sw_sqa", "qana")
DIM, HEADS = 512, 8
TOKENS: Final = (1024, 2048, 4096, 8192, 16384)
# Layers of a search, of a target task, and of a language model.
LAYERS: Final = (
    ModelSizes(64, 4, 1, 64),
    ModelSizes(256, 4, 1, 256),
    ModelSizes(1024, 16, 1, 2048),
)
MOST_CHECKED: Final = 256  # tokens of a layer whose errors are computed
FINDS: Final = Path(__file__).parents[1] / "docs" / "finds"
KERNELS: Final = (
    *("mha", "forgetting", "sink", "differential", "sw_sqa", "talking_heads", "rebased"),
    *("linear", "retnet", "gla", "mamba2", "deltanet", "gated_deltanet", "kda"),
    *map(str, sorted(FINDS.glob("*_*.py"))),
)
FUSED: Final = "F.scaled_dot_product_attention"

Work = Callable[[], None]


def numerics(device: torch.device, sizes: ModelSizes = CHECKED) -> Iterator[Row]:
    """Yield the largest errors of all named mechanisms: of outputs and of gradients.

    An error is the largest difference to the interpreter in float64 on the processor, divided by
    the largest number there, or by 1 if that is greater.
    """
    for precision in ("float32", "bfloat16"):
        errors = {n: _errors(mechanism(n).genome, sizes, precision, device) for n in MECHANISMS}
        for number, what in enumerate(("outputs", "gradients")):
            of_names = {name: pair[number] for name, pair in errors.items()}
            worst = max(of_names, key=lambda n: (math.isnan(of_names[n]), of_names[n]))
            yield {
                "precision": precision,
                "of": what,
                "largest error": of_names[worst],
                "mechanism": worst,
            }


def _errors(
    genome: Genome, sizes: ModelSizes, precision: str, device: torch.device
) -> tuple[float, float]:
    """Return the error of the output and the largest error of a gradient."""
    torch.manual_seed(0)
    exact = build_attention(genome, sizes.dim, sizes.heads, reference=True).eval()
    for weight in exact.parameters():
        nn.init.normal_(weight, std=SPREAD)
    block = build_attention(genome, sizes.dim, sizes.heads).eval()
    weights = dict(exact.named_parameters())
    with torch.no_grad():
        for name, weight in block.named_parameters():
            weight.copy_(weights[name])
    x = torch.randn(2, sizes.tokens, sizes.dim)
    above = torch.randn_like(x)
    expected = _outcome(exact.double(), x.double(), above)
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        found = _outcome(block.to(device), x.to(device), above.to(device))
    out, *gradients = [
        float((found[name].cpu() - value).abs().max() / max(1.0, float(value.abs().max())))
        for name, value in expected.items()
        if name in found
    ]
    return out, max(gradients, key=lambda error: (math.isnan(error), error))


def _outcome(block: nn.Module, x: Tensor, above: Tensor) -> dict[str, Tensor]:
    """Return a block's output, and the gradients of its input and of all its weights."""
    x.requires_grad_()
    inputs = {"x": x} | dict(block.named_parameters())
    out = block(x)
    gradients = torch.autograd.grad(out, list(inputs.values()), above.to(out), allow_unused=True)
    named = {name: g for name, g in zip(inputs, gradients, strict=True) if g is not None}
    return {"": out.detach()} | named


def calibration(
    sizes: ModelSizes, batch: int, device: torch.device, seconds: float = 2.5
) -> Iterator[Row]:
    """Yield the times that a calibration predicts for all named mechanisms, and their errors."""
    from benchmarks.timing import (  # imports SciPy's statistics, which takes a second
        agreement,
        predict,
    )

    begin = time.perf_counter()
    options: dict[str, Any] = {"precision": "float32", "device": str(device), "is_causal": False}
    units = calibrate(sizes, batch=batch, qkv_bias=False, seconds=seconds, **options)
    taken = time.perf_counter() - begin
    passes = Passes(sizes, batch, **options)
    named = {}
    for name in MECHANISMS:
        try:
            work = passes.of(build_attention(mechanism(name).genome, sizes.dim, sizes.heads))
        except NasError:  # it does not exist at these sizes
            continue
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            print(f"  {name} cannot be captured: {error}")
            continue
        named[name] = partial(seconds_of, work, device)
    measured = [1e3 * min(times) for times in in_turns([*named.values()], seconds)]
    layer = sizes._replace(depth=1)
    context = CostContext(layer, calibration=units)
    predicted = predict([mechanism(name).genome for name in named], context)
    for name, predicted_ms, measured_ms in zip(named, predicted, measured, strict=True):
        yield {"mechanism": name, "predicted, ms": predicted_ms, "measured, ms": measured_ms}
    yield {"calibration, s": taken, **agreement(predicted, measured)}


def swap(device: torch.device, rounds: int, width: int = DIM) -> Iterator[Row]:
    """Yield the change of outputs by swaps that preserve them, and the ratio of times."""
    x = torch.randn(8, 128, width, device=device)
    for name in ("mha", "qana"):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(width, HEADS, dropout=0.0, batch_first=True)
        layer = layer.to(device).train()  # in evaluation torch calls a function of its own
        swapped = copy.deepcopy(layer)
        nas.swap_attention(swapped, name)
        with torch.no_grad():
            change = float((swapped(x) - layer(x)).abs().max())
        works: dict[str, Work] = {"before": partial(layer, x), "after": partial(swapped, x)}
        samples = elapsed(works, rounds, device)
        yield {
            "swap to": name,
            "largest change": change,
            "after / before": median_ratio(samples["after"], samples["before"]),
        }


def kernels(
    device: torch.device, rounds: int, sizes: Sequence[ModelSizes] = LAYERS
) -> Iterator[Row]:
    """Yield errors and times of the mechanisms that have kernels: causal, in bfloat16.

    The first pass includes the compilation of FlexAttention. Times are those of a layer, forward
    and backward, over the time of ``mha``.
    """
    genomes = {name: load_genome(name) for name in KERNELS} | {
        "alibi": _with_change(Node("alibi", (0,))),
        "softcap": _with_change(Node("softcap", (0,))),
    }
    for size in sizes:
        works: dict[str, Work] = {}
        firsts: dict[str, float] = {}
        for name, genome in genomes.items():
            block = build_attention(genome, size.dim, size.heads).to(device)
            x = torch.randn(max(1, 2**12 // size.tokens), size.tokens, size.dim, device=device)
            work = _pass(block, x.requires_grad_(), is_causal=True)
            start = time.perf_counter()
            try:
                work()
            except (RuntimeError, torch.OutOfMemoryError) as error:
                print(f"{name}, {size.tokens} tokens: {str(error).splitlines()[0]}")
                continue
            synchronise(device)
            works[name], firsts[name] = work, time.perf_counter() - start
        samples = elapsed(works, rounds, device)
        for name, taken in samples.items():
            is_small = size.tokens <= MOST_CHECKED
            errors = _errors(genomes[name], size, "bfloat16", device) if is_small else ("", "")
            yield {
                "mechanism": Path(name).stem,
                "width": size.dim,
                "tokens": size.tokens,
                "first pass, s": firsts[name],
                "to mha": median_ratio(taken, samples["mha"]),
                "error": errors[0],
                "of gradients": errors[1],
            }


def _with_change(change: Node) -> Genome:
    """Return standard attention with changed scores."""
    first = Node("scaled_dot_product", ("q", "k"))
    return Genome((first, change, Node("softmax", (1,)), Node("weighted_sum", (2, "v"))))


def attention(
    genomes: Mapping[str, Genome],
    device: torch.device,
    rounds: int,
    lengths: Sequence[int] = TOKENS,
) -> Iterator[Row]:
    """Yield times of one sequence forward and backward, and the ratio to fused attention."""
    for tokens in lengths:
        forms: dict[str, nn.Module] = {FUSED: Fused()}
        forms |= {name: build_attention(genome, DIM, HEADS) for name, genome in genomes.items()}
        yield from compare(forms, tokens, device, rounds)


class Fused(nn.Module):
    """The projections of standard attention around torch's fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.wqkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.wo = nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        streams = self.wqkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        merged = F.scaled_dot_product_attention(*streams).transpose(1, 2).flatten(2)
        out: Tensor = self.wo(merged)
        return out


def compare(
    forms: Mapping[str, nn.Module], tokens: int, device: torch.device, rounds: int
) -> Iterator[Row]:
    """Yield the times of all blocks that fit into memory, at one length, in bfloat16."""
    works: dict[str, Work] = {}
    mib: dict[str, float] = {}
    for name, form in forms.items():
        form.to(device, torch.bfloat16)
        x = torch.randn(1, tokens, DIM, device=device, dtype=torch.bfloat16)
        work = _pass(form, x.requires_grad_())
        try:
            mib[name] = _peak_mib(work, device)
        except torch.OutOfMemoryError:
            gc.collect()
            torch.cuda.empty_cache()
            print(f"{name}, {tokens} tokens: out of memory")
            continue
        works[name] = work
    samples = elapsed(works, rounds, device)
    for name, taken in samples.items():
        yield {
            "block": name,
            "tokens": tokens,
            "ms": median([1e3 * s for s in taken]),
            "to fused": median_ratio(taken, samples[FUSED]) if FUSED in samples else "",
            "peak, MiB": mib[name],
        }


def _pass(form: nn.Module, x: Tensor, **options: Any) -> Work:
    """Return a function that runs a forward and backward pass, in bfloat16."""
    inputs, gradient = [x, *form.parameters()], torch.ones_like(x)

    def work() -> None:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.dtype == torch.float32):
            out = form(x, **options)
        torch.autograd.grad(out, inputs, gradient.to(out.dtype), allow_unused=True)

    return work


def _peak_mib(work: Work, device: torch.device) -> float:
    """Return peak memory of one pass beyond weights and input in MiB; 0 on a processor."""
    if device.type == "cpu":
        work()
        return 0.0
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def elapsed(works: Mapping[str, Work], rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Return elapsed seconds of each round, with synchronisation of the device."""

    def synchronised(work: Work) -> Work:
        def run() -> None:
            work()
            synchronise(device)

        return run

    timed = {name: synchronised(work) for name, work in works.items()}
    return interleaved(timed, rounds, clock=time.perf_counter)


def synchronise(device: torch.device) -> None:
    """Wait for a GPU; do nothing for a processor."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
