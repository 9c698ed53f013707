"""The documents as a site: it builds without a warning, is complete, and opens from disk."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import nas
from nas.genome.mechanisms import MECHANISMS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="needs mkdocs: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference.html").read_text("utf-8")
    names = set(re.findall(r'id="nas\.([A-Za-z_]+)"', page))
    assert names == set(nas.__all__)
    assert "Raises:" in page
    assert "&gt;&gt;&gt;" in page


def test_gallery_has_every_named_mechanism_with_its_scores(site: Path) -> None:
    page = (site / "gallery.html").read_text("utf-8")
    sections = dict(re.findall(r'<h2 id="(\w+)">(.*?)(?=<h2 id|</article)', page, re.DOTALL))
    assert set(sections) == set(MECHANISMS)
    assert all("<svg" in section for section in sections.values())
    assert re.findall(r"<td>(.*?)</td>", sections["lsqa"])[:4] == [
        "100.0 ± 0.0 ?",
        "",
        "",
        "2.7791 ± 0.0080 ?",
    ]
