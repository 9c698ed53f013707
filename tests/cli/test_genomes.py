from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nas.canonical import digest
from nas.genome import Genome
from nas.mechanisms import MECHANISMS

CHAMPION = {
    "graph_def": [
        {"op": "scaled_dot_product", "inputs": ["v", "k"]},
        {"op": "sigmoid", "inputs": [0]},
        {"op": "gelu", "inputs": ["v"]},
        {"op": "layer_norm", "inputs": [2]},
        {"op": "weighted_sum", "inputs": [1, 3]},
    ],
    "proj_config": {"has_wq": False, "has_wk": False, "has_wv": True, "has_wo": True},
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)


def file(name: str, content: Any) -> str:
    Path(name).write_text(content if isinstance(content, str) else json.dumps(content))
    return name


@pytest.mark.parametrize("policy", ["score_normalize_aggregate", "published_2025"])
def test_the_published_champion_is_legal_under_both_policies(nas: Any, policy: str) -> None:
    path = file("champion.json", CHAMPION)
    status, out, _ = nas("validate", path, "--policy", policy, "--json")
    assert status == 0
    answer = json.loads(out)
    assert answer["valid"] is True
    assert answer["violations"] == []
    assert answer["policy"] == policy
    assert answer["digest"] == digest(Genome.from_dict(CHAMPION))


def test_yaml_is_read_as_json_is(nas: Any) -> None:
    text = (
        "graph_def:\n- {op: scaled_dot_product, inputs: [q, k]}\n- {op: softmax, inputs: [0]}\n"
        "- {op: weighted_sum, inputs: [1, v]}\nproj_config: {q_heads: 1/2, kv_heads: 1/4}\n"
    )
    status, out, _ = nas("validate", file("sqa.yaml", text))
    assert status == 0
    assert digest(MECHANISMS["sqa"].genome) in out


@pytest.mark.parametrize(
    "graph",
    [
        [],
        [{"op": "softmax", "inputs": []}],
        [
            {"op": "scaled_dot_product", "inputs": ["q", "k"]},
            {"op": "weighted_sum", "inputs": [0, "v"]},
        ],
    ],
)
def test_violations_are_explained_with_a_repair(nas: Any, graph: list[object]) -> None:
    path = file("bad.json", {"graph_def": graph})
    status, out, _ = nas("validate", path, "--json")
    assert status == 1
    answer = json.loads(out)
    assert answer["valid"] is False
    repair = file("repaired.json", answer["violations"][0]["repair"])
    assert nas("validate", repair)[0] == 0
    status, out, _ = nas("validate", path)
    assert status == 1
    assert "nearest legal genome" in out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "empty"),
        ("{", "line 1"),
        ("[" * 100_000, "nested too deep"),
        ('{"graph_def": []', "not JSON"),
        ('{"graph_deff": []}', "'graph_deff'"),
        ({"graph_def": [{"op": "sofmax", "inputs": ["q"]}]}, "did you mean 'softmax'"),
        ({"graph_def": [{"op": "softmax", "inputs": [3]}]}, "node 0"),
        (
            {"graph_def": [{"op": "qana", "inputs": ["q", "k"], "params": {"hidden": 0}}]},
            "from 1 to 64",
        ),
        (
            {"graph_def": [{"op": "qana", "inputs": ["q", "k"], "params": {"hiden": 2}}]},
            "did you mean 'hidden'",
        ),
        (
            {
                "graph_def": [
                    {"op": "neural_attention", "inputs": ["q", "k"], "params": {"reduced_dim": 1}}
                ]
            },
            "reduced_dim",
        ),
        (
            {"graph_def": [{"op": "qana", "inputs": ["q", "k"], "params": {"skip": False}}]},
            "random",
        ),
    ],
)
def test_bad_files_give_one_sentence_and_status_2(nas: Any, content: object, words: str) -> None:
    path = file("bad.json", content)
    for command in ("validate", "show", "cost"):
        status, out, err = nas(command, path)
        assert status == 2
        assert not out
        assert len(err.strip().splitlines()) == 1
        assert "bad.json" in err
        assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("validate", "mha", "--policy", "nope"), "score_normalize_aggregate"),
        (("validate", "mhaa"), "did you mean 'mha'"),
        (("validate", "missing.json"), "no such file"),
        (("validate", "nowhere/best"), "nowhere"),
        (("cost", "mha", "--dim", "30", "--heads", "4"), "dim 30 and heads 4"),
        (("cost", "lsqa", "--dim", "12", "--heads", "6"), "3/4"),
        (("cost", "mha", "--tokens", "-3"), "--tokens"),
        (("export", "mha", "-o", "x.py", "--format", "exe"), "module"),
        (("export", "mha", "-o", "x"), "ends in .py"),
        (("export", "mha", "-o", "."), "ends in .py"),
        (("cost", "mha", "--tokens", "99999999999999"), "--tokens"),
        (("cost", "mha", "--tokens", "64,,128"), "'64,,128'"),
        (("cost", "mha", "--tokens", "64;128"), "such as 64,256,1024"),
        (("cost", "mha", "--tokens", "0,64"), "from 1 to 1,048,576"),
        (("cost", "mha", "--tokens", "9" * 5000), "--tokens"),
        (("cost", "mha", "--plot", "cost.png"), "found one length, 65"),
        (("cost", "mha", "--tokens", "8,16", "--plot", "cost.jpeg"), "'.jpeg'"),
        (("cost", "mha", "--measure"), "--measure"),
        (("export", "mha", "-o", "x.py", "--weights"), "latest/best"),
        (("frnt",), "frnt"),
        (("cost", "mha", "--dimm", "3"), "--dimm"),
    ],
)
def test_wrong_usage_gives_a_message_and_status_2(
    nas: Any, arguments: tuple[str, ...], words: str
) -> None:
    status, _, err = nas(*arguments)
    assert status == 2
    assert words in err
    assert "Traceback" not in err


def test_cost_of_one_and_of_several(nas: Any) -> None:
    status, out, _ = nas("cost", "mha", "--dim", 64, "--heads", 1, "--tokens", 65, "--json")
    one = json.loads(out)
    assert status == 0
    assert one["macs"] == 1_605_760
    assert one["seed_compatible_macs"] == 3_777_280
    assert set(one) == {
        "macs",
        "attention_macs",
        "elementwise",
        "params",
        "kv_cache_bytes_per_token",
        "seed_compatible_macs",
    }
    _, out, _ = nas("cost", "mha", "sqa", "--json")
    assert [type(c) for c in json.loads(out)] == [dict, dict]
    _, out, _ = nas("cost", "mha", "sqa")
    assert "1,605,760" in out


def test_what_one_should_know_of_the_heads_is_told_by_every_command_that_has_them(nas: Any) -> None:
    words = "1/4 of 2 heads is less than one head: one is used."
    assert nas("show", "xsqa", "--heads", 2).out.count(words) == 1
    assert f"xsqa: {words}" in nas("cost", "mha", "xsqa", "--heads", 2).out.splitlines()
    assert words in nas("export", "xsqa", "-o", "x.py", "--heads", 2).out.splitlines()
    for command in (("show", "xsqa"), ("cost", "xsqa"), ("export", "xsqa", "-o", "x.py")):
        assert "less than one head" not in nas(*command).out


def test_cost_at_several_lengths(nas: Any) -> None:
    status, out, _ = nas("cost", "mha", "sqa", "--tokens", "128, 64,64", "--json")
    assert status == 0
    answers = json.loads(out)
    named = [(answer["source"], answer["tokens"]) for answer in answers]
    assert named == [("mha", 64), ("mha", 128), ("sqa", 64), ("sqa", 128)]
    _, out, _ = nas("cost", "sqa", "--tokens", "128", "--json")
    alone = json.loads(out)
    assert answers[3] == {"source": "sqa", "tokens": 128, **alone}
    _, out, _ = nas("cost", "mha", "sqa", "--tokens", "64,16384")
    lines = [line.split() for line in out.splitlines()]
    assert ["mechanism", "64", "16,384"] in lines
    assert ["mha", "1.57", "M", "34.6", "G"] in lines
    assert ["mha", "16,448", "256"] in lines


def test_cost_of_long_sequences_is_counted_without_them(nas: Any) -> None:
    status, out, _ = nas("cost", *MECHANISMS, "--tokens", "16384", "--dim", 512, "--heads", 8)
    assert status == 0
    assert "292,057,776,128" in out


def test_cost_against_length_is_drawn(nas: Any) -> None:
    status, _, err = nas("cost", "mha", "sqa", "--tokens", "64,256", "--plot", "new/cost.svg")
    assert status == 0
    assert "new/cost.svg" in err
    assert (Path() / "new" / "cost.svg").stat().st_size > 0


def test_export_writes_a_file_that_tests_itself(nas: Any) -> None:
    path = file("champion.json", CHAMPION)
    status, out, _ = nas("export", path, "-o", "out/champion.py", "--dim", 32, "--heads", 2)
    assert status == 0
    assert "dim=32" in out
    exported = Path() / "out" / "champion.py"
    done = subprocess.run([sys.executable, "-I", exported], capture_output=True, check=False)
    assert done.returncode == 0


def test_an_exported_file_is_a_source(nas: Any, genome: Any) -> None:
    path = file("champion.json", CHAMPION)
    assert nas("export", path, "-o", "champion.py").status == 0
    plain = json.loads(nas("show", "champion.py", "--json").out)
    assert plain["digest"] == json.loads(nas("show", path, "--json").out)["digest"]
    assert nas("validate", "champion.py").status == 0
    file("other.py", "print('no genome here')\n")
    result = nas("cost", "other.py")
    assert (result.status, result.out) == (2, "")
    assert "holds no genome" in result.err


@pytest.mark.parametrize("format_", ["module", "py"])
def test_a_fast_form_can_be_exported(nas: Any, format_: str) -> None:
    assert nas("export", "qana", "-o", "plain.py", "--format", format_).status == 0
    assert nas("export", "qana", "-o", "fast.py", "--fast", "--format", format_).status == 0
    lengths = [len(Path(name).read_text()) for name in ("plain.py", "fast.py")]
    assert lengths[0] < lengths[1]


HOSTILE = "a\x1b[31m\x9bz\u202e"


@pytest.mark.parametrize(
    "arguments",
    [
        (HOSTILE,),
        ("validate", HOSTILE),
        ("validate", "mha", "--policy", HOSTILE),
        ("validate", f"--{HOSTILE}"),
        ("validate", "mha", HOSTILE),
        ("cost", "mha", "--tokens", HOSTILE),
        ("show", f"{HOSTILE}.json"),
        ("export", "mha", "-o", HOSTILE),
        ("front", HOSTILE),
        ("search", "--space", HOSTILE),
    ],
)
def test_no_escape_that_was_typed_reaches_the_terminal(
    nas: Any, arguments: tuple[str, ...]
) -> None:
    result = nas(*arguments)
    assert result.status == 2
    assert not {"\x1b", "\x9b", "\u202e"} & {*result.out, *result.err}
    assert len(result.err) < 3000


def test_no_escape_in_a_file_reaches_the_terminal(nas: Any) -> None:
    path = file("bad.json", {"graph_def": [{"op": HOSTILE * 500, "inputs": []}]})
    result = nas("validate", path)
    assert result.status == 2
    assert "\x1b" not in result.err
    assert len(result.err) < 3000
