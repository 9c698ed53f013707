"""Links in the documents lead somewhere, and shown commands print what is shown."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.docs import architecture
from tests.docs.blocks import Folder, blocks, follow, is_printed

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "runs" / "README.md", *PAGES]
GLOSSARY = """
    mechanism, run, knee, calibration, genome, primitive, role, stream, placement, hybrid, normal
    form, digest, resolved digest, space, policy, violation, task, target task, metric,
    objective, budget, trial, report, seed, proposal, history, algorithm, surrogate, front,
    hypervolume, lag, kernel, lowering, export, repeat, score, estimate, table, decoding, context,
    ablation, control
"""
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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_pages_and_readme_link_to_each_other(page: Path) -> None:
    assert page in {target for target, _ in links(ROOT / "README.md")}
    assert ROOT / "README.md" in {target for target, _ in links(page)}


def test_glossary_defines_each_word_once() -> None:
    defined = re.findall(r"^- \*\*([\w ]+)\*\*:", text_of(ROOT / "docs/concepts.md"), re.MULTILINE)
    assert sorted(defined) == sorted(" ".join(word.split()) for word in GLOSSARY.split(","))


@EACH
def test_documents_use_no_house_words(document: Path) -> None:
    assert not re.findall(r"\b(?:rooms?|houses?)\b", prose(document), re.IGNORECASE)


def test_tree_is_generated_from_the_docstrings() -> None:
    assert text_of(architecture.PAGE) == architecture.page(), "python -m tests.docs.architecture"


def test_test_command_is_the_one_that_ci_runs() -> None:
    after = text_of(ROOT / "README.md").split("<!-- test command -->", 1)[1].lstrip().splitlines()
    assert after[0] == "```bash"
    assert "pytest" in after[1]
    assert after[2] == "```"


def test_commands_shown_exist_and_each_command_is_shown() -> None:
    from nas.cli import COMMANDS
    from nas.cli.app import app

    for module in COMMANDS:
        __import__(f"nas.cli.{module}")
    known = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    texts = [text_of(document) for document in DOCUMENTS]
    shown = {w for t in texts for w in re.findall(r"^(?:\$ )?nas ([a-z]\w*)", t, re.MULTILINE)}
    assert shown == known


@EACH
def test_files_included_are_the_files(document: Path) -> None:
    for block in blocks(text_of(document)):
        source = block.value("from")
        if source is not None:
            assert block.text == (ROOT / source).read_text(encoding="utf-8"), source


@EACH
def test_shown_output_is_printed(document: Path, tmp_path: Path) -> None:
    run_blocks(document, tmp_path, with_slow=False)


@pytest.mark.slow
@EACH
def test_shown_output_of_slow_commands_is_printed(document: Path, tmp_path: Path) -> None:
    if not any(block.is_slow for block in blocks(text_of(document))):
        pytest.skip("no slow block")
    run_blocks(document, tmp_path, with_slow=True)


def run_blocks(document: Path, place: Path, *, with_slow: bool) -> None:
    """Run a document's blocks in order and compare what is printed."""
    wanted = [b for b in blocks(text_of(document)) if with_slow or not b.is_slow]
    if not any(block.is_run for block in wanted):
        return
    folder = Folder(place)
    for block in wanted:
        assert block.text == follow(block, folder), f"{document.name}, line {block.start + 1}"


def test_printed_text_is_compared_line_by_line() -> None:
    assert is_printed("a\n...\nd\n", "a\nb\nc\nd\n")
    assert is_printed("a ... c\n", "a b c  \n")
    assert not is_printed("a ... c\n", "a b\nc\n")
    assert not is_printed("a\n", "a\nb\n")
    assert not is_printed("", "a\n")


def test_block_with_other_output_is_detected(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (wrong,) = blocks("```console run\n$ echo a\nb\n```\n")
    assert follow(wrong, folder) == "$ echo a\na\n"
    (failing,) = blocks("```bash run\nexit 3\n```\n")
    with pytest.raises(AssertionError, match="ended with 3"):
        follow(failing, folder)
    (foretold,) = blocks("```bash run exit=3\nexit 3\n```\n")
    assert follow(foretold, folder) == "exit 3\n"


@pytest.mark.parametrize("words", ["run slow", "run"])
def test_only_a_slow_block_kills_the_process_that_it_starts(tmp_path: Path, words: str) -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(3)"
    lines = (
        f"python -c '{program}' > pid &",
        "until [ -s pid ]; do sleep .1; done; kill -9 $!; wait $! || true",
        "kill -0 $(cat pid)",  # the exit status tells whether the process is alive
    )
    (block,) = blocks("\n".join((f"```bash {words} exit={int('slow' in words)}", *lines, "```\n")))
    assert follow(block, Folder(tmp_path)) == block.text


def test_top_level_has_no_other_folders() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    folders = {line.partition("/")[0] for line in listed.stdout.splitlines() if "/" in line}
    data = {"runs", "search_spaces", "validators"}
    known = {".ci", "benchmarks", "deploy", "docs", "nas", "plugins", "tests", *data}
    assert folders <= known
