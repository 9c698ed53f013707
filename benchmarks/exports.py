"""Random legal genomes and all named mechanisms through every export, compared in a clean process.

    python -m benchmarks exports --genomes 1000 --record exports.jsonl

Half of the samples are of ``attention_v2``, half of ``attention_causal``, each second one mutated
twice; every second one that may is causal. Graphs take both masks, whose rows see nothing in part.
All weights are drawn, none is left at zero. What is recorded is not done again.

A graph's export costs seconds, so what one process would repeat is done once: the table of
functions that torch reads for ONNX, and the trace of a genome whose two graphs have one source.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator
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
from nas.space.validation import load_policy
from nas.space.variation import Variation

FORMATS: Final = ("py", "timm", "pt2", "onnx", "hf")
DIM: Final = 32
HEADS: Final = 8
_AT_ONCE: Final = 32  # genomes a clean process: it imports every framework once


def exports(options: argparse.Namespace) -> list[Figure]:
    """Shares accepted, the wrong ones, refusals by reason, the largest difference."""
    registry: Any = ONNXRegistry
    registry.from_torchlib = staticmethod(cache(ONNXRegistry.from_torchlib))
    graphs.traced = _once(graphs.traced)
    record, genomes = options.record, list(_genomes(options.genomes))
    found: dict[tuple[str, str], Any] = {}
    if record is not None and record.exists():
        for line in record.read_text().splitlines():
            key, format_, result = json.loads(line)
            found[key, format_] = result
    missing = [(i, g) for i, g in enumerate(genomes) if (_key(i, g), "hf") not in found]
    for start in range(0, len(missing), _AT_ONCE):
        new = _tried(missing[start : start + _AT_ONCE])
        found |= new
        if record is not None:
            with record.open("a") as file:
                file.writelines(json.dumps([*key, result]) + "\n" for key, result in new.items())
        print(f"  {min(start + _AT_ONCE, len(missing))} of {len(missing)}", flush=True)
    wanted = {_key(i, g) for i, g in enumerate(genomes)}
    return _table({key: result for key, result in found.items() if key[0] in wanted})


def _once(trace: Callable[..., ExportedProgram]) -> Callable[..., ExportedProgram]:
    """The same program for the same source of the same subject."""
    last: list[Any] = [None, "", None]

    def found(subject: ExportRequest, *, fuse: bool | Collection[str] = True) -> ExportedProgram:
        text = source_text(subject, subject.plan, fuse)
        if last[0] is not subject or last[1] != text:
            last[:] = subject, text, trace(subject, fuse=fuse)
        program: ExportedProgram = last[2]
        return program

    return found


def _genomes(count: int) -> Iterator[Genome]:
    yield from (found.genome for found in MECHANISMS.values())
    spaces = [load_space(name) for name in ("attention_v2", "attention_causal")]
    variations = [Variation(space, load_policy(space.policy)) for space in spaces]
    rng = np.random.default_rng(13)
    for number in range(count):
        variation = variations[number % 2]
        genome = variation.sample(rng)
        yield variation.mutate(genome, rng, 2)[0] if number % 4 > 1 else genome


def _key(number: int, genome: Genome) -> str:
    return f"{number} {digest(genome)}"


def _subject(number: int, genome: Genome) -> ExportRequest:
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


def _tried(given: list[tuple[int, Genome]]) -> dict[tuple[str, str], float | str]:
    """The difference of each, or why there is none."""
    found: dict[tuple[str, str], float | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        jobs = {}
        for number, genome in given:
            subject = _subject(number, genome)
            for format_ in FORMATS:
                key, written = (_key(number, genome), format_), EXPORTS.get(format_)
                path = Path(folder) / f"{number}{format_}{written.suffix}"
                try:
                    write_export(written.content(subject), path)
                    assert written.expected is not None
                    jobs[key] = path, written.loader, written.expected(subject)
                except NasError as error:
                    found[key] = str(error)
                except Exception as error:  # a bug of ours, which must not end a run of hours
                    found[key] = f"CRASH {type(error).__name__}: {error}"
        found |= dict(zip(jobs, _compared(list(jobs.values())), strict=True))
    return found


def _compared(jobs: list[tuple[Path, str, ExpectedOutputs]]) -> list[float | str]:
    """All in one process; where a file ends it, that one is found by halves."""
    try:
        return differences(jobs) if jobs else []
    except ExportError as error:
        if len(jobs) == 1:
            return [f"CRASH {error}"]
        half = len(jobs) // 2
        return _compared(jobs[:half]) + _compared(jobs[half:])


def _table(found: dict[tuple[str, str], float | str]) -> list[Figure]:
    lengths = " and ".join(str(tokens) for _, tokens in SIZES)
    print(f"\ndim {DIM}, {HEADS} heads; unseen lengths {lengths}; wrong is above {TOLERANCE:.0e}")
    print(f"{'format':8}{'tried':>8}{'accepted':>10}{'share %':>9}{'wrong':>7}  largest difference")
    figures = []
    for format_ in FORMATS:
        own = [result for (_, name), result in found.items() if name == format_]
        numbers = [result for result in own if not isinstance(result, str)]
        right = [number for number in numbers if number <= TOLERANCE]
        share = 100 * len(right) / max(len(own), 1)
        wrong, worst = len(numbers) - len(right), max(numbers, default=0.0)
        print(
            f"{format_:8}{len(own):8,}{len(right):10,}{share:9.1f}{wrong:7}  {worst:.1e}",
            flush=True,
        )
        reasons = Counter(re.sub(r"\d+", "N", r)[:150] for r in own if isinstance(r, str))
        for reason, count in reasons.most_common():
            print(f"  {count} x {reason}")
        figures += [
            single(f"{format_}, accepted", share, "%"),
            single(f"{format_}, wrong", wrong, "exports"),
            single(f"{format_}, largest difference", 1e7 * worst, "1e-7"),
        ]
    return figures
