"""Find the mechanism that the argument SOURCE of a command names.

mha                     a named mechanism
qana:hidden=8,qk_dim=1/4    a named mechanism with other parameters, projections, placement, window
gqa:every=4,count=3,rest=mha:window=16    a hybrid: window 16 in each fourth layer
path/to/genome.json     a genome file, JSON or YAML
path/to/champion.py     a file that `nas export` wrote; it contains its genome
path/to/mine.py:CLASS   a user's own torch module, for the commands that train and compare
latest/best             a mechanism of a run as RUN/ID. RUN is a name, a path or "latest", and ID is
                        the beginning of a digest, or "best", "knee" or "cheapest"
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nas.common.arguments import public
from nas.common.config import SUFFIXES, near, parse_json, read_document
from nas.common.errors import ConfigError, ExportError, GenomeError, RunError
from nas.common.system import read_limited
from nas.genome import Genome
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.genome.naming import find_name
from nas.genome.primitives import check_vocabulary
from nas.store import RUNS, find_proposal, find_run, open_run
from nas.store.frozen import load_frozen_task
from nas.tasks import Task
from nas.training.user_module import Mechanism, UserModule, is_user_module, read_user_module

EXPORTED: Final = ".py"
_LARGEST_EXPORT: Final = 2**22


@dataclass(frozen=True)
class Source:
    """A genome or a user's own torch module, and the argument of a command that named it.

    ``text`` is the argument, or the digest of a genome that was given instead. ``run`` is the
    folder of the run and ``digest`` the mechanism's in the run if the argument is RUN/ID.
    """

    text: str
    mechanism: Mechanism
    run: Path | None = None
    digest: str | None = None

    @property
    def genome(self) -> Genome:
        """The genome; GenomeError if the mechanism is a torch module."""
        if isinstance(self.mechanism, Genome):
            return self.mechanism
        raise GenomeError(
            f"{self.text}: is a torch module, which has no genome; expected a genome here. A torch "
            "module is for `nas evaluate`, `judge`, `ladder`, `confirm --against` and `cost`."
        )

    @property
    def label(self) -> str:
        """The name in tables: the argument, of a file without folder and, of a genome, suffix."""
        path = Path(self.text)
        if self.run is not None or {self.text.partition(":")[0], path.stem} & {*MECHANISMS}:
            return self.text
        return path.name if isinstance(self.mechanism, UserModule) else path.stem

    @property
    def name(self) -> str:
        """The class of a module, the name of a find, or the label."""
        if isinstance(self.mechanism, UserModule):
            return self.mechanism.class_name
        return self.label if self.digest is None else find_name(self.mechanism, self.digest)

    def task(self, data: str | None = None) -> Task | None:
        """Return the task of the run, None without a run; ``data`` is where its data are now."""
        if self.run is None:
            return None
        with open_run(self.run) as run:
            return load_frozen_task(run.setup.front_task, data)


def resolve(source: str | Path | Genome, runs: Path = RUNS) -> Source:
    """Return the mechanism that the argument SOURCE of a command names, with its origin.

    A user's file is read and not executed. GenomeError or ConfigError is raised if nothing has this
    name, or if a file cannot be read or contains no genome of known primitives; RunError if there
    is no such run or mechanism.
    """
    if isinstance(source, Genome):
        return Source(digest(source), source)
    text = str(source)
    name, _, changes = text.partition(":")
    if name in MECHANISMS:
        return Source(text, mechanism(text).genome)
    if is_user_module(text):
        return Source(text, read_user_module(text))
    path = Path(text)
    if path.suffix in (EXPORTED, *SUFFIXES) or os.path.isfile(path):
        is_export = path.suffix == EXPORTED
        found = genome_of_export(path) if is_export else Genome.from_dict(read_document(path), text)
        return Source(text, check_vocabulary(found, text))
    if "/" in text and "=" not in changes:
        return _member(text, runs)
    raise GenomeError(
        f"{text!r} is not a mechanism{near(text, sorted(MECHANISMS))}, a genome file or a RUN/ID; "
        f"`nas mechanisms` lists the mechanisms, `nas runs` the runs.{MECHANISMS.complaints()}"
    )


def labelled(sources: Iterable[Source]) -> dict[str, Mechanism]:
    """Return mechanisms by label, or all by argument if two have the same label."""
    by_text = {source.text: source for source in sources}
    is_unique = len({source.label for source in by_text.values()}) == len(by_text)
    return {s.label if is_unique else s.text: s.mechanism for s in by_text.values()}


@public
def load_genome(source: str | Path | Genome, runs: str | Path = RUNS) -> Genome:
    """Return the genome that the argument SOURCE of a command names, see ``resolve``."""
    return resolve(source, Path(runs)).genome


def _member(text: str, runs: Path) -> Source:
    run_name, _, member = text.rpartition("/")
    if not (run_name and member):
        raise RunError(f"{text!r}: expected RUN/ID, for example latest/best.")
    folder = find_run(run_name, runs)
    with open_run(folder) as run:
        proposal = find_proposal(run, member)
    return Source(text, check_vocabulary(proposal.genome, text), folder, proposal.digest)


def genome_of_export(path: Path) -> Genome:
    """Return the genome in an exported file, without running it; ExportError if it has none."""
    try:
        text = read_limited(path, _LARGEST_EXPORT).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise ExportError(f"{path}: cannot be read ({reason}).") from None
    docstring = text[3:].partition('"""')[0] if text.startswith('"""') else ""
    about, _, genome = docstring.partition("\nGenome:\n")
    try:
        data = parse_json(genome, str(path))
    except ConfigError:
        data = None
    if not about or not isinstance(data, dict):
        raise ExportError(
            f"{path}: holds no genome; expected a file that `nas export` has written, or "
            f"{path}:CLASS for a torch module of yours."
        )
    return Genome.from_dict(data, str(path))
