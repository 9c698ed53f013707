"""How trainings are computed, where that is a choice: precision, and the ways of `nas.kernels`.

Choices are measured where trainings take place, kept on that machine, and frozen into a run before
its first generation. So a resumed run computes as it did before, and what a clock said never
changes a front. A run that was begun without them goes by rules of thumb.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import torch

from nas.errors import RunError
from nas.evaluation.together_or_in_turn import is_faster_together
from nas.kernels import using
from nas.measurement.tuning import PATTERNS, Shapes, measure_ways
from nas.tasks.folder import cache_folder
from nas.training.hardware import check_device, one_thread, resolve_precision
from nas.training.processor import processor_name
from nas.training.session import judged_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from nas.kernels import Ways
    from nas.tasks import ImageData, Task

VERSION: Final = 2
"""Of what was measured: raised when a way or the models that train together become faster."""
_DTYPES: Final = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True, slots=True)
class Choices:
    """What a run computes with.

    Attributes:
        precision: in which the model trains.
        ways: how each pattern is computed; see `nas.kernels`.
        measured_on: processor or GPU, and the version of torch.
        seeds_together: seeds of a genome that train in one pass; 1 trains in turn.
    """

    precision: Literal["bfloat16", "float32"]
    ways: Ways
    measured_on: str
    seeds_together: int = 1

    @contextmanager
    def applied(self, task: Task) -> Iterator[Task]:
        """Within, patterns are computed in these ways; gives the task in this precision."""
        with using(self.ways):
            yield task.model_copy(update={"precision": self.precision})

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON data."""
        ways = {
            where: {str(width): way for width, way in found.items()}
            for where, found in self.ways.items()
        }
        return {
            "precision": self.precision,
            "ways": ways,
            "measured_on": self.measured_on,
            "seeds_together": self.seeds_together,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Choices:
        """Read what `to_dict` gave.

        Raises:
            RunError: it holds something else.
        """
        try:
            ways = {
                str(where): {int(width): str(way) for width, way in found.items()}
                for where, found in data["ways"].items()
            }
            assert data["precision"] in _DTYPES
            seeds = int(data.get("seeds_together", 1))
            assert seeds >= 1
            return cls(data["precision"], ways, str(data["measured_on"]), seeds)
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
            fault = f"{type(error).__name__}: {error}"
            raise RunError(f"this is no record of choices ({fault}).") from error


def choose(task: Task, data: ImageData, device: str, seeds: int = 1) -> Choices:
    """Measure, or read what was measured on this machine before.

    Args:
        seeds: trainings of each genome: whether they are better done in one pass.

    Raises:
        DeviceError: the device is not there.
    """
    place = check_device(device)
    precision = resolve_precision(task.precision, place)
    dim, heads, _, tokens = task.sizes
    shapes = Shapes(dim, heads, tokens, task.batch_size, judged_at_once(place))
    on_gpu = place.type == "cuda"
    name = torch.cuda.get_device_name(place) if on_gpu else processor_name()
    machine = f"{name}, torch {torch.__version__}"

    def with_ways() -> Choices:
        with one_thread():
            ways = measure_ways(shapes, device=place.type, dtype=_DTYPES[precision])
        return Choices(precision, ways, machine)

    offered = tuple((pattern.name, pattern.ways) for pattern in PATTERNS)
    choices = _kept((VERSION, offered, machine, precision, shapes), with_ways)
    if seeds == 1:
        return choices

    def with_seeds() -> Choices:
        with choices.applied(task) as chosen:
            is_faster = is_faster_together(chosen, data, device, seeds)
        return replace(choices, seeds_together=seeds if is_faster else 1)

    return _kept((VERSION, choices.to_dict(), task.fingerprint(), seeds), with_seeds)


def _kept(key: object, measure: Callable[[], Choices]) -> Choices:
    """What was measured before under this key, else measured now."""
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    path = cache_folder() / "choices" / f"{name}.json"
    found = _known(path)
    if found is None:
        found = measure()
        _keep(path, found)
    return found


def _known(path: Path) -> Choices | None:
    """What was measured before; what cannot be read is measured again."""
    try:
        return Choices.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RunError):
        return None


def _keep(path: Path, choices: Choices) -> None:
    """Write the file, whole or not at all; where that cannot be, the next run measures again."""
    partial = path.with_name(f"{path.stem}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(choices.to_dict(), indent=2), encoding="utf-8")
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink()
