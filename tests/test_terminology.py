"""Words of an earlier private vocabulary do not return to code and documents."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKERS = re.compile(
    r"how-manieth|\bbef[ea]ll(?:s|en)?\b|\bnobody's\b|\bwhere it lacks\b|\bby so much\b"
    r"|\bthawed|\bis trained as none\b|\bwhat is believed of\b|\btold\b|\bwhoever\b|\bhow likely\b",
    re.IGNORECASE,
)
SUFFIXES = {".py", ".js", ".html", ".md"}


def test_no_marker_word_in_code_and_documents() -> None:
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for folder in ("nas", "docs", "benchmarks"):
        files += sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES)
    found = [
        f"{path.relative_to(ROOT)}, line {number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MARKERS.search(line)
    ]
    assert not found, "\n".join(found)
