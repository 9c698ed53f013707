"""Links in the documents lead somewhere, shown commands print what is shown, notebooks run."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.docs import architecture, kernels
from tests.docs.blocks import Folder, blocks, follow

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "runs" / "README.md", *PAGES]
EACH = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))


@cache
def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def prose(document: Path) -> str:
    """A document without its fenced blocks."""
    lines = text_of(document).splitlines()
    for block in reversed(blocks(text_of(document))):
        del lines[block.start - 1 : block.end + 1]
    return "\n".join(lines)


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    names: list[str] = []
    for title in re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names.append(anchor + (f"-{names.count(anchor)}" if anchor in names else ""))
    return set(names)


def links(document: Path) -> list[tuple[Path, str]]:
    """The targets of a document's relative links: a path, and an anchor or an empty string."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(document))
    inside = [t.partition("#") for t in targets if not re.match(r"[a-z]+:", t)]
    return [((document.parent / p).resolve() if p else document, a) for p, _, a in inside]


@EACH
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in links(document):
        assert target.exists(), target
        assert not anchor or anchor in anchors(target), f"{target}#{anchor}"


@EACH
def test_files_named_exist(document: Path) -> None:
    named = re.findall(r"(?<![\w/~.-])(?:nas|tests|validators)/[\w./-]*\w", prose(document))
    assert not [name for name in named if not (ROOT / name).exists()]


def test_tree_is_generated_from_the_docstrings() -> None:
    assert text_of(architecture.PAGE) == architecture.page(), "python -m tests.docs.architecture"


def test_table_of_kernels_is_generated_from_the_plans() -> None:
    assert text_of(kernels.PAGE) == kernels.page(), "python -m tests.docs.kernels"


def test_commands_shown_exist_and_each_command_is_shown() -> None:
    from nas.cli import COMMANDS
    from nas.cli.app import app

    for module in COMMANDS:
        __import__(f"nas.cli.{module}")
    known = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    # The log has the commands of its days.
    texts = [text_of(document) for document in DOCUMENTS if document.name != "log.md"]
    shown = {w for t in texts for w in re.findall(r"^(?:\$ )?nas ([a-z]\w*)", t, re.MULTILINE)}
    assert shown == known


@EACH
def test_files_included_are_the_files(document: Path) -> None:
    for block in blocks(text_of(document)):
        source = block.value("from")
        if source is not None:
            assert block.text == (ROOT / source).read_text(encoding="utf-8"), source


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", ROOT / "docs" / "tutorial.md"], ids=lambda p: p.stem
)
def test_shown_output_is_printed(document: Path, tmp_path: Path) -> None:
    run_blocks(document, tmp_path, with_slow=False)


@pytest.mark.slow
@EACH
def test_shown_output_of_all_commands_is_printed(document: Path, tmp_path: Path) -> None:
    run_blocks(document, tmp_path, with_slow=True)


def run_blocks(document: Path, place: Path, *, with_slow: bool) -> None:
    """Run a document's blocks in order and compare what is printed."""
    wanted = [b for b in blocks(text_of(document)) if with_slow or not b.is_slow]
    if not any(block.is_run for block in wanted):
        return
    folder = Folder(place)
    for block in wanted:
        assert block.text == follow(block, folder), f"{document.name}, line {block.start + 1}"


# Not in this process, in which nbclient would leave an event loop that disturbs playwright.
NOTEBOOK = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=600, resources={"metadata": {"path": sys.argv[2]}}).execute()
print(sum(bool(cell.get("outputs")) for cell in notebook.cells))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", NOTEBOOK, str(path), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= 3
