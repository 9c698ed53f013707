"""SOURCE strings: what a person types to name a genome.

mha                     a named mechanism
path/to/genome.json     a genome file, JSON or YAML
latest/best             a member of a run: RUN/ID, with RUN a name, a path or "latest" and ID
                        the beginning of a digest, or best, knee, cheapest
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nas.config import near, read_document
from nas.errors import GenomeError
from nas.genome import Genome
from nas.mechanisms import MECHANISMS
from nas.primitives import check_vocabulary
from nas.store import RUNS, find_proposal, find_run, open_run, split_member

SUFFIXES: Final = {".json", ".yaml", ".yml"}


@dataclass(frozen=True)
class Source:
    """A genome and where it came from.

    Attributes:
        text: the string as typed.
        run: the run's folder, for RUN/ID.
        digest: the member's digest in that run.
    """

    text: str
    genome: Genome
    run: Path | None = None
    digest: str | None = None

    @property
    def name(self) -> str:
        """A short name: the mechanism's, the file's stem, or the member's digest."""
        if self.digest is not None:
            return self.digest[:8]
        return self.text if self.text in MECHANISMS else Path(self.text).stem


def resolve(text: str, runs: Path = RUNS) -> Source:
    """Find what a SOURCE string names.

    Raises:
        GenomeError, ConfigError: a file cannot be read, or holds no genome of known primitives.
        RunError: there is no such run or member.
    """
    if text in MECHANISMS:
        return Source(text, MECHANISMS[text].genome)
    if _is_file(text):
        document = read_document(Path(text))
        return Source(text, check_vocabulary(Genome.from_dict(document, text), text))
    if "/" in text:
        return _member(text, runs)
    known = sorted(MECHANISMS)
    raise GenomeError(
        f"{text!r} is no mechanism{near(text, known)}, no genome file and no RUN/ID; "
        "`nas mechanisms` lists the mechanisms, `nas runs` the runs."
    )


def load_genome(source: str | Path, runs: str | Path = RUNS) -> Genome:
    """The genome that a SOURCE string names; see the module docstring and ``resolve``."""
    return resolve(str(source), Path(runs)).genome


def _member(text: str, runs: Path) -> Source:
    run_name, member = split_member(text)
    folder = find_run(run_name, runs)
    run = open_run(folder)
    try:
        proposal = find_proposal(run, member)
    finally:
        run.close()
    return Source(text, check_vocabulary(proposal.genome, text), folder, proposal.digest)


def _is_file(text: str) -> bool:
    """Whether the text is a genome file's path; a path with such a suffix is, there or not."""
    path = Path(text)
    try:
        return path.suffix in SUFFIXES or path.is_file()
    except (OSError, ValueError):
        return False
