"""Export random legal genomes and all named mechanisms, and compare each file with its block.

    python -m benchmarks exports --genomes 1000 --record exports.jsonl

The samples are from ``attention_v2``, ``attention_causal`` and ``linear_causal``; every second one
is mutated twice, and every second genome is exported as causal if it permits this. All weights are
random, none is zero. Results in the record file are not computed again.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch.onnx._internal.exporter._registration import ONNXRegistry

from benchmarks.rows import Row
from nas.common.errors import NasError
from nas.compiler import make_plan
from nas.exporting import EXPORTS, TOLERANCE, ExportFormat, ExportRequest
from nas.exporting.formats import add_noise
from nas.genome import Genome
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS
from nas.space import load_space
from nas.space.rules import load_policy
from nas.space.vary import Variation

FORMATS: Final = ("py", "pt2", "onnx")
DIM: Final = 32
HEADS: Final = 8


def exports(options: argparse.Namespace) -> Iterator[Row]:
    """Yield share of accepted exports, number of wrong ones and largest error, per format."""
    registry: Any = ONNXRegistry
    registry.from_torchlib = staticmethod(cache(ONNXRegistry.from_torchlib))  # seconds a call
    record, results = options.record, dict[tuple[str, str], Any]()
    if record is not None and record.exists():
        for line in record.read_text().splitlines():
            key, name, result = json.loads(line)
            results[key, name] = result
    wanted = set()
    for number, genome in enumerate(_genomes(options.genomes)):
        key = f"{number} {digest(genome)}"
        for name in FORMATS:
            wanted.add((key, name))
            if (key, name) in results:
                continue
            results[key, name] = result = _try_export(_request(number, genome), name)
            if record is not None:
                with record.open("a") as file:
                    file.write(json.dumps([key, name, result]) + "\n")
    yield from _rows({key: result for key, result in results.items() if key in wanted})


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


def _request(number: int, genome: Genome) -> ExportRequest:
    is_causal = number % 2 == 1 and not make_plan(genome).unsafe
    initial = ExportRequest(genome, DIM, HEADS, is_causal=is_causal)
    block = initial.block()
    add_noise(block)
    return replace(initial, weights=block.state_dict())


def _try_export(request: ExportRequest, name: str) -> float | str:
    """Return the largest difference of an export, or the reason why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path, export_format = Path(folder) / f"exported.{name}", EXPORTS[name]
        try:
            return _difference(export_format, request, path)
        except NasError as error:
            return str(error)
        except Exception as error:  # a bug in an exporter must not end a run of hours
            return f"CRASH {type(error).__name__}: {error}"


def _difference(export_format: ExportFormat, request: ExportRequest, path: Path) -> float:
    content = export_format.content(request)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert export_format.difference is not None
    return export_format.difference(request, path)


def _rows(results: dict[tuple[str, str], float | str]) -> Iterator[Row]:
    for format_ in FORMATS:
        outcomes = [result for (_, name), result in results.items() if name == format_]
        numbers = [result for result in outcomes if not isinstance(result, str)]
        yield {
            "format": format_,
            "tried": len(outcomes),
            "accepted": len(numbers),
            f"wrong, above {TOLERANCE:.0e}": sum(number > TOLERANCE for number in numbers),
            "largest difference": max(numbers, default=0.0),
        }
        reasons = Counter(re.sub(r"\d+", "N", r)[:150] for r in outcomes if isinstance(r, str))
        for reason, count in reasons.most_common():
            print(f"  {count} x {reason}")
