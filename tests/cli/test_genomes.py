"""Commands about genomes: show, validate, cost, export."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS

pytestmark = pytest.mark.usefixtures("at_folder")


def file(name: str, content: Any) -> str:
    Path(name).write_text(content if isinstance(content, str) else json.dumps(content))
    return name


def test_show_plots_the_graph_beside_its_answer(nas: Any, tmp_path: Path) -> None:
    status, out, err = nas("show", "qana", "--json", "--plot", "new/graph.svg")
    assert status == 0
    assert json.loads(out)["mechanisms"] == ["qana"]
    assert err == "new/graph.svg: the graph as a picture.\n"
    assert (tmp_path / "new/graph.svg").read_text().startswith("<svg")
    assert nas("show", "qana", "--plot", "graph.txt").status == 2


@pytest.mark.parametrize("policy", ["score_normalize_aggregate", "published_2025"])
def test_published_champion_is_legal(nas: Any, policy: str) -> None:
    champion = MECHANISMS["champion_2025"].genome
    path = file("champion.json", champion.to_dict())
    status, out, _ = nas("validate", path, "--policy", policy, "--json")
    assert status == 0
    answer = {"valid": True, "violations": [], "policy": policy, "digest": digest(champion)}
    assert json.loads(out) == answer


def test_violations_are_printed(nas: Any) -> None:
    path = file("bad.json", {"graph_def": [{"op": "softmax", "inputs": []}]})
    status, out, _ = nas("validate", path, "--json")
    assert status == 1
    answer = json.loads(out)
    assert answer["valid"] is False
    assert answer["violations"][0]["rule"] == "arity"
    status, out, _ = nas("validate", path)
    assert status == 1
    assert "is not legal under" in out
    assert answer["violations"][0]["message"] in out


def node(op: str, *inputs: object, **params: object) -> dict[str, Any]:
    return {"graph_def": [{"op": op, "inputs": inputs, "params": params}]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[" * 100_000, "nested too deep"),
        ('{"graph_def": []', "not JSON"),
        (node("sofmax", "q"), "did you mean 'softmax'"),
        (node("qana", "q", "k", hidden=0), "from 1 to 64"),
        (node("qana", "q", "k", init="gate"), "learned"),
    ],
)
def test_unreadable_genomes_exit_with_2_and_one_message(
    nas: Any, content: object, words: str
) -> None:
    path = file("bad.json", content)
    for command in ("validate", "show", "cost"):
        status, out, err = nas(command, path)
        assert (status, out) == (2, "")
        assert len(err.strip().splitlines()) == 1
        assert "bad.json" in err
        assert words in err


def test_cost_at_several_lengths(nas: Any) -> None:
    rows = json.loads(nas("cost", "mha", "sqa", "--tokens", "128, 64,64", "--json").out)["rows"]
    named = [(row["source"], row["tokens"]) for row in rows]
    assert named == [("mha", 64), ("mha", 128), ("sqa", 64), ("sqa", 128)]
    alone = json.loads(nas("cost", "sqa", "--tokens", "128", "--json").out)
    assert alone == {"dim": 64, "heads": 4, "rows": rows[3:]}
    status, out, _ = nas("cost", "mha", "sqa", "--tokens", "64,16384")
    lines = [line.split() for line in out.splitlines()]
    assert status == 0
    assert ["mha", "64", "1.57", "M"] in [line[:4] for line in lines]
    assert ["mha", "16,384", "34.6", "G"] in [line[:4] for line in lines]


def test_exported_file_tests_itself_and_is_a_source(nas: Any) -> None:
    path, exported = "champion_2025", "champion.py"
    status, out, _ = nas("export", path, "-o", exported, "--dim", 32, "--heads", 2)
    assert status == 0
    assert "dim=32" in out
    done = subprocess.run([sys.executable, "-I", exported], capture_output=True, check=False)
    assert done.returncode == 0
    digests = {json.loads(nas("show", s, "--json").out)["digest"] for s in (path, exported)}
    assert len(digests) == 1
    assert nas("validate", exported).status == 0
    file("other.py", "print('no genome here')\n")
    result = nas("cost", "other.py")
    assert (result.status, result.out) == (2, "")
    assert "holds no genome" in result.err
    assert "other.py:CLASS for a torch module of yours" in result.err


def test_fast_form_is_longer(nas: Any) -> None:
    assert nas("export", "qana", "-o", "plain.py").status == 0
    assert nas("export", "qana", "-o", "fast.py", "--fast").status == 0
    lengths = [len(Path(name).read_text()) for name in ("plain.py", "fast.py")]
    assert lengths[0] < lengths[1]


HOSTILE = "a\x1b[31m\x9bz\u202e"


@pytest.mark.parametrize(
    "arguments",
    [
        (HOSTILE,),
        ("validate", "mha", "--policy", HOSTILE),
        ("validate", f"--{HOSTILE}"),
        ("cost", "mha", "--tokens", HOSTILE),
        ("export", "mha", "-o", HOSTILE),
        ("front", HOSTILE),
        ("validate", "bad.json"),
    ],
)
def test_control_characters_never_reach_the_terminal(nas: Any, arguments: tuple[str, ...]) -> None:
    file("bad.json", node(HOSTILE * 500))
    result = nas(*arguments)
    assert result.status == 2
    assert not {"\x1b", "\x9b", "\u202e"} & {*result.out, *result.err}
    assert len(result.err) < 3000
