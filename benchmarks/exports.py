"""Export random legal genomes and all named mechanisms, and check each file in a clean process.

    python -m benchmarks exports --genomes 1000 --record exports.jsonl

The samples are from ``attention_v2``, ``attention_causal`` and ``linear_causal``; every second one
is mutated twice, and every second genome is exported as causal if it permits this. Graphs take both
masks, some of whose rows mask all tokens. All weights are random, none is zero. Results in the
record file are not computed again.

An export of a graph takes seconds, so two steps are cached in the process: torch's function table
for ONNX, and the trace of a genome whose two graphs have the same source.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch.export import ExportedProgram
from torch.onnx._internal.exporter._registration import ONNXRegistry

from benchmarks.figures import Figure, single
from nas.common.errors import ExportError, NasError
from nas.compiler import make_plan
from nas.exporting import EXPORTS, MASKS, ExportRequest, Provenance, graphs, write_export
from nas.exporting.checking import SIZES, TOLERANCE, ExpectedOutputs, differences, perturb
from nas.exporting.request import source_text
from nas.genome import Genome
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS
from nas.space import load_space
from nas.space.rules import load_policy
from nas.space.vary import Variation

FORMATS: Final = ("py", "timm", "pt2", "onnx", "hf")
DIM: Final = 32
HEADS: Final = 8
_BATCH: Final = 32  # genomes per clean process, which imports every framework once


def exports(options: argparse.Namespace) -> list[Figure]:
    """Return share of accepted exports, number of wrong ones and largest error, per format."""
    registry: Any = ONNXRegistry
    registry.from_torchlib = staticmethod(cache(ONNXRegistry.from_torchlib))
    graphs.traced = _cached(graphs.traced)
    record, genomes = options.record, list(_genomes(options.genomes))
    results: dict[tuple[str, str], Any] = {}
    if record is not None and record.exists():
        for line in record.read_text().splitlines():
            key, format_, result = json.loads(line)
            results[key, format_] = result
    missing = [(i, g) for i, g in enumerate(genomes) if (_key(i, g), "hf") not in results]
    for start in range(0, len(missing), _BATCH):
        new = _try_exports(missing[start : start + _BATCH])
        results |= new
        if record is not None:
            with record.open("a") as file:
                file.writelines(json.dumps([*key, result]) + "\n" for key, result in new.items())
        print(f"  {min(start + _BATCH, len(missing))} of {len(missing)}", flush=True)
    wanted = {_key(i, g) for i, g in enumerate(genomes)}
    return _table({key: result for key, result in results.items() if key[0] in wanted})


def _cached(trace: Callable[..., ExportedProgram]) -> Callable[..., ExportedProgram]:
    """Return ``trace`` with a cache of the last program, by export request and source."""
    last: list[Any] = [None, "", None]

    def cached(request: ExportRequest, *, fuse: bool = True) -> ExportedProgram:
        text = source_text(request, request.plan, fuse)
        if last[0] is not request or last[1] != text:
            last[:] = request, text, trace(request, fuse=fuse)
        program: ExportedProgram = last[2]
        return program

    return cached


def _genomes(count: int) -> Iterator[Genome]:
    yield from (named.genome for named in MECHANISMS.values())
    names = ("attention_v2", "attention_causal", "linear_causal")
    spaces = [load_space(name) for name in names]
    variations = [Variation(space, load_policy(space.policy)) for space in spaces]
    rng = np.random.default_rng(13)
    for number in range(count):
        variation = variations[number % 3]
        genome = variation.sample(rng)
        yield variation.mutate(genome, rng, 2)[0] if number % 4 > 1 else genome


def _key(number: int, genome: Genome) -> str:
    return f"{number} {digest(genome)}"


def _request(number: int, genome: Genome) -> ExportRequest:
    is_causal = number % 2 == 1 and not make_plan(genome).unsafe
    make = partial(
        ExportRequest,
        genome,
        DIM,
        HEADS,
        Provenance("a benchmark"),
        is_causal=is_causal,
        masks=MASKS,
    )
    weights, fresh = {}, make()
    for layer in range(fresh.depth):
        block = fresh.reference(layer)
        perturb(block)
        weights[layer] = block.float().state_dict()
    return make(weights=weights)


def _try_exports(genomes: list[tuple[int, Genome]]) -> dict[tuple[str, str], float | str]:
    """Return the largest error of each export, or the reason why there is none."""
    results: dict[tuple[str, str], float | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        jobs = {}
        for number, genome in genomes:
            request = _request(number, genome)
            for format_ in FORMATS:
                key, exporter = (_key(number, genome), format_), EXPORTS.get(format_)
                path = Path(folder) / f"{number}{format_}{exporter.suffix}"
                try:
                    write_export(exporter.content(request), path)
                    assert exporter.expected is not None
                    jobs[key] = path, exporter.loader, exporter.expected(request)
                except NasError as error:
                    results[key] = str(error)
                except Exception as error:  # a bug in an exporter must not end a run of hours
                    results[key] = f"CRASH {type(error).__name__}: {error}"
        results |= dict(zip(jobs, _compare(list(jobs.values())), strict=True))
    return results


def _compare(jobs: list[tuple[Path, str, ExpectedOutputs]]) -> list[float | str]:
    """Return the errors of all files; bisect if a file terminates the process that runs it."""
    try:
        return differences(jobs) if jobs else []
    except ExportError as error:
        if len(jobs) == 1:
            return [f"CRASH {error}"]
        half = len(jobs) // 2
        return _compare(jobs[:half]) + _compare(jobs[half:])


def _table(results: dict[tuple[str, str], float | str]) -> list[Figure]:
    lengths = " and ".join(str(tokens) for _, tokens in SIZES)
    print(f"\ndim {DIM}, {HEADS} heads; unseen lengths {lengths}; wrong is above {TOLERANCE:.0e}")
    print(f"{'format':8}{'tried':>8}{'accepted':>10}{'share %':>9}{'wrong':>7}  largest difference")
    figures = []
    for format_ in FORMATS:
        outcomes = [result for (_, name), result in results.items() if name == format_]
        numbers = [result for result in outcomes if not isinstance(result, str)]
        right = [number for number in numbers if number <= TOLERANCE]
        share = 100 * len(right) / max(len(outcomes), 1)
        wrong, worst = len(numbers) - len(right), max(numbers, default=0.0)
        print(
            f"{format_:8}{len(outcomes):8,}{len(right):10,}{share:9.1f}{wrong:7}  {worst:.1e}",
            flush=True,
        )
        reasons = Counter(re.sub(r"\d+", "N", r)[:150] for r in outcomes if isinstance(r, str))
        for reason, count in reasons.most_common():
            print(f"  {count} x {reason}")
        figures += [
            single(f"{format_}, accepted", share, "%"),
            single(f"{format_}, wrong", wrong, "exports"),
            single(f"{format_}, largest difference", 1e7 * worst, "1e-7"),
        ]
    return figures
