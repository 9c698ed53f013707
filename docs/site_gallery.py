"""A page of the site with an entry for each named mechanism: picture, formula, scores, reading.

The scores are the rows of the tables of six tasks in docs/log.md.

    python docs/site_gallery.py > gallery.md
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

from nas.compiler import formula
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.report.graph import graph_svg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

LOG: Final = Path(__file__).with_name("log.md")
PAGE: Final = "gallery.md"
TASKS: Final = ("recall", "induction", "copying", "bytes", "text-classification", "vit-cifar10")
TOP: Final = f"""# Gallery

[Mechanisms](mechanisms.md) · [Findings](findings.md) · [Log](log.md)

After this page you can tell {len(MECHANISMS)} named mechanisms apart by graph and formula.
`nas show NAME --plot FILE` prints the text and draws such a picture. The
scores are means of five short trainings: accuracy in per cent, and under `bytes` bits per byte, of
which fewer are better. `+` is better than `mha` after correction, `-` worse, `?` undecided.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page to the site."""
    files.append(File.generated(config, PAGE, content=gallery()))
    return files


def gallery() -> str:
    """Return the page as Markdown."""
    scores = dict(_scores(LOG.read_text("utf-8")))
    return "\n\n".join([TOP, *(_entry(name, scores.get(name)) for name in MECHANISMS)])


def _entry(name: str, scores: list[str] | None) -> str:
    named = mechanism(name)
    parts = [f"## {name}", named.paper, f"<p>{graph_svg(named.genome, f'Graph of {name}')}</p>"]
    parts.append(f"<p><code>{escape(formula(named.genome))}</code></p>")
    if scores:
        rows = [TASKS, ["---"] * len(TASKS), scores]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join([*parts, f"```text\n{named.reading.strip()}\n```"])


def _scores(log: str) -> Iterator[tuple[str, list[str]]]:
    """Yield name and scores of each row of the tables with a column for each of ``TASKS``."""
    for table in re.findall(r"^mechanism +recall .*\n(?:.+\n)+", log, re.MULTILINE):
        header, *rows = table.splitlines()
        if header.split()[1:] != list(TASKS):
            continue
        # Numbers end below the last letter of the title; a sign may follow a blank later.
        ends = [header.index(f" {task}") + 1 + len(task) for task in TASKS]
        for row in rows:
            name = row.split()[0]
            begins = [len(name), *(end + 2 for end in ends[:-1])]
            yield name, [row[a : b + 2].strip() for a, b in zip(begins, ends, strict=True)]


if __name__ == "__main__":
    sys.stdout.write(gallery())
