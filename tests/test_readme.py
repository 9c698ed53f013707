"""README and the house say the same."""

from __future__ import annotations

import re
from pathlib import Path

from nas.mechanisms import MECHANISMS

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text()


def test_the_tree_names_every_file_once() -> None:
    tree = TEXT[TEXT.index("## The house") :]
    folder, named = "", []
    for line in tree.splitlines():
        found = re.match(r"( *)([\w./-]+\.(?:py|yaml)|nas/\w+/)  ", line)
        if found and found[2].endswith("/"):
            folder = found[2]
            named.append(folder + "__init__.py")
        elif found:
            named.append(folder + found[2] if found[1] else found[2])
    files = [
        str(p.relative_to(ROOT)) for p in (ROOT / "nas").rglob("*") if p.suffix in {".py", ".yaml"}
    ]
    files = [f for f in files if "_data" not in f and f != "nas/__init__.py"]
    assert sorted(named) == sorted(files)


def test_the_test_command_is_the_one_that_ci_runs() -> None:
    after = TEXT.split("<!-- test command -->", 1)[1].lstrip().splitlines()
    assert after[0] == "```bash"
    assert "pytest" in after[1]
    assert after[2] == "```"


def test_the_commands_shown_exist() -> None:
    from nas.cli import COMMANDS
    from nas.cli.app import app

    for room in COMMANDS:
        __import__(f"nas.cli.{room}")
    known = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    shown = set(re.findall(r"^(?:\$ )?nas (\w+)", TEXT, re.MULTILINE))
    assert shown <= known
    assert known <= set(re.findall(r"nas (\w+)", TEXT))


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_the_mechanisms_that_issues_and_papers_name_are_there() -> None:
    named = {
        "mha",
        "gqa",
        "mqa",
        "sqa",
        "ssqa",
        "xsqa",
        "qana",
        "neural_attention",
        "additive",
        "uniform",
        "champion_2025",
    }
    assert named <= set(MECHANISMS)
