"""A user's own torch module, FILE.py:CLASS, is trained, compared and measured beside mechanisms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import LOCAL, SEQUENCES

MINE = '''
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Options:
    scale: float = 0.5


class Mixer(nn.Module):
    """The mean of the tokens that the mask allows, with a projection."""

    def __init__(self, width: int, num_heads: int, scale: float = Options().scale) -> None:
        super().__init__()
        self.project, self.scale = nn.Linear(width, width), scale

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        n = x.shape[1]
        allowed = x.new_ones(1, 1, n, n) * (True if mask is None else mask)
        weights = allowed / allowed.sum(-1, keepdim=True)
        return x + self.scale * (weights[:, 0] @ self.project(x))


class Heedless(Mixer):
    def forward(self, x):
        return super().forward(x)


class Careless(Mixer):
    def forward(self, x, mask=None):
        return super().forward(x)

'''
# A file whose parts a case replaces.
TEMPLATE = """
import os, torch
from torch import nn
{top}
class Bad(nn.Module):
    def __init__(self, {constructor}):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, {arguments}):
        {forward}
"""
PARTS = {
    "top": "",
    "constructor": "dim, heads",
    "arguments": "x",
    "forward": "return self.linear(x)",
}
BAD: dict[str, tuple[dict[str, str], str]] = {
    "import": ({"top": "import no_such"}, "ModuleNotFoundError in line 4: No module named"),
    "base exception": (
        {"top": "class Odd(BaseException): pass\nraise Odd('\\x1b[2J')"},
        "Odd in line 5: \\u001b[2J; expected that Bad(16, 2) maps x",
    ),
    "constructor": (
        {"constructor": "config"},
        "TypeError: Bad.__init__() takes 2 positional arguments but 3 were given; expected that",
    ),
    "arguments": (
        {"arguments": "query, key, value"},
        "maps x of shape (b, 17, 16) to the same shape by forward(x), forward(x, mask=None) or",
    ),
    "dtype": (
        {"forward": "return self.linear(x).double()"},
        "forward returned torch.float64 of shape (2, 17, 16); expected torch.float32",
    ),
    "mixes examples": (
        {"forward": "return x + x.mean(dim=0)"},
        "the output for an example depends on other examples of its batch",
    ),
    "seeds in training": (
        {"forward": "self.training and torch.manual_seed(0); return self.linear(x)"},
        "seeds torch's random generator",
    ),
    "in place": ({"forward": "x += 1; return self.linear(x)"}, "RuntimeError in line 11: a leaf"),
    "exits": ({"top": "os._exit(3)"}, "its process ended with exit status 3; expected a module"),
    "closes descriptors": (
        {"top": "os.closerange(0, 256)\nwhile True: pass"},
        "its process was killed, as if memory ran out, or closed its descriptors",
    ),
    "loops": ({"top": "while True: pass"}, "no answer within 2 s"),
    "fills memory": ({"forward": "return x.repeat(10**9, 1, 1)"}, "RuntimeError in line 11"),
}


@pytest.fixture(autouse=True)
def _at_modules(at_tasks: Path) -> None:
    """A folder with a task in float32, a causal one, and a file with two torch modules."""
    tiny = Path("tiny.yaml")
    tiny.write_text(tiny.read_text().replace("depth: 1", "depth: 2") + "precision: float32\n")
    Path("mine.py").write_text(MINE)
    Path("causal.yaml").write_text(SEQUENCES.format(name="causal", kind="induction"))


def test_exported_file_trains_like_its_genome(nas: Any) -> None:
    """Seeds, initial weights and order are equal; sums of the two forms differ in their order."""
    assert nas("export", "mha", "-o", "mha.py").status == 0
    sources = ("mha", "mha.py:Attention")
    command = ("evaluate", *sources, "--tasks", "tiny.yaml", "--seeds", 2, "--json", *LOCAL)
    result = nas(*command, "--record", "record")
    assert result.status == 0, result.err
    answer = json.loads(result.out)
    trained = {(t["mechanism"], t["repeat"]): t for t in answer["trained"]}
    for repeat in (0, 1):
        genome, module = (trained[source, repeat] for source in sources)
        assert module["seed"] == genome["seed"]
        assert module["id"] != genome["id"]
        losses = [training["metrics"]["log_loss"] for training in (genome, module)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    genome, module = (row["parts"]["tiny"] for row in answer["rows"])
    assert (module["is_measured"], genome["is_measured"]) == (True, False)
    for name in ("macs", "params"):
        assert module["costs"][name] == genome["costs"][name], name
    assert "kv_cache_bytes_per_token" not in module["costs"]
    assert nas(*command, "--record", "record").out == result.out


def test_masks_are_passed_and_what_sees_later_tokens_is_left_out(nas: Any) -> None:
    command = ("evaluate", "mine.py:Mixer", "mine.py:Heedless", "--against", "uniform")
    options = ("--tasks", "causal.yaml,tiny.yaml", "--seeds", 1, "--json", *LOCAL)
    result = nas(*command, *options)
    assert result.status == 0, result.err
    _, mixer, heedless = json.loads(result.out)["rows"]
    assert [*mixer["parts"]] == ["causal", "tiny"]
    assert [*heedless["parts"]] == ["tiny"]
    assert (
        "mine.py:Heedless: the output for a token depends on later" in heedless["absent"]["causal"]
    )
    assert set(mixer["parts"]["tiny"]["costs"]) == {"macs", "params"}
    alone = nas("evaluate", "mine.py:Heedless", "--tasks", "causal.yaml", "--seeds", 1, *LOCAL)
    assert alone.status == 2
    assert "depends on later tokens" in alone.err


LATE = """
import torch
from torch import nn


class Late(nn.Module):
    count = 0

    def __init__(self, dim, heads):
        super().__init__()
        self.linear, self.layer = nn.Linear(dim, dim), Late.count
        Late.count += 1
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        if self.training and x.dtype is torch.float32:
            self.steps += 1
        seen = x.cumsum(1) / torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]
        later = x.mean(dim=1, keepdim=True) * (self.steps > 2) * self.where()
        return self.linear(seen + later)


class AfterSteps(Late):
    def where(self):
        return 1.0


class SecondLayer(Late):
    def where(self):
        return float(self.layer % 2)


class BehindGate(Late):
    def where(self):
        return 1e-9
"""


@pytest.mark.parametrize("name", ["AfterSteps", "SecondLayer", "BehindGate"])
def test_leaks_that_begin_in_training_are_no_judgement(nas: Any, name: str) -> None:
    Path("late.py").write_text(LATE)
    task = Path("causal.yaml").read_text().replace("depth: 1", "depth: 2").replace("16", "64")
    Path("two.yaml").write_text(task.replace("name: causal", "name: two"))
    result = nas("judge", f"late.py:{name}", "--task", "two.yaml", "--pairs", 2, *LOCAL)
    assert result.status == 2
    assert f"late.py:{name}: the output for a token depends on later tokens" in result.err


@pytest.mark.slow
def test_confirm_compares_a_front_with_a_module(nas: Any) -> None:
    search = ("search", "--space", "quickstart", "--gens", 1, "--pop", 2, "--run", "a")
    assert nas(*search, "--task", "tiny.yaml", *LOCAL).status == 0
    command = ("confirm", "a", "--seeds", 2, "--members", 1, *LOCAL, "--against")
    result = nas(*command, "mine.py:Mixer", "--json")
    assert result.status == 0, result.err
    answer = json.loads(result.out)
    *members, mixer = answer["rows"]
    own = mixer["parts"]["fresh"]
    assert (mixer["mechanism"], own["is_measured"]) == ("mine.py:Mixer", True)
    assert set(own["costs"]) == {"macs", "params"}
    for member in members:
        part = member["parts"]["fresh"]
        gains = [a - b for a, b in zip(part["values"], own["values"], strict=True)]
        assert part["difference"]["mean"] == pytest.approx(sum(gains) / len(gains))
    again = nas(*command, "mine.py:Mixer")
    assert "[" not in again.err  # all trainings are recorded
    assert "over mine.py:Mixer: mean difference between" in again.out
    assert "* measured on a torch module" in again.out
    assert nas("front", "a").status == 0
    assert nas("report", "a", "-o", "a.html").status == 0
    refused = nas(*command, "mine.py:Mixr")
    assert refused.status == 2
    assert (
        "found no torch module 'Mixr' (did you mean 'Mixer'?) among Mixer, Heedless, Careless"
        in refused.err
    )
    assert refused.err.count("\n") == 1


PLAIN_SUITE = ("import", "constructor", "dtype", "mixes examples", "in place", "exits")


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case in PLAIN_SUITE else pytest.mark.slow) for case in BAD],
)
def test_unusable_module_is_one_sentence(nas: Any, case: str) -> None:
    changes, words = BAD[case]
    Path("bad.py").write_text(TEMPLATE.format(**PARTS | changes))
    command = ("evaluate", "mha", "bad.py:Bad", "--tasks", "tiny.yaml", *LOCAL)
    result = nas(*command, "--time-limit", 2 if case == "loops" else 60)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("nas: bad.py:Bad: ")
    assert words in result.err
    assert result.err.count("\n") == 1


def test_missing_file_and_cost_of_an_unusable_one(nas: Any) -> None:
    missing = nas("evaluate", "missing.py:Bad", "--tasks", "tiny.yaml", *LOCAL)
    assert missing.status == 2
    assert "missing.py cannot be read (No such file or directory)." in missing.err
    Path("bad.py").write_text(TEMPLATE.format(**PARTS | {"forward": "return 1"}))
    cost = nas("cost", "bad.py:Bad", "--dim", 16, "--heads", 2, "--tokens", 17)
    assert (cost.status, cost.err.count("\n")) == (2, 1)
    assert "forward returned a int; expected torch.float32" in cost.err


@pytest.mark.parametrize("backend", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_file_that_replaces_functions_or_exits_leaves_the_reference_as_it_is(
    nas: Any, backend: str
) -> None:
    patches = """
for module, name in ((torch, "randn"), (torch, "softmax"), (nn.functional, "softmax")):
    old = getattr(module, name)
    setattr(module, name, lambda *args, old=old, **options: old(*args, **options) / 2)
nn.init.trunc_normal_ = nn.init.normal_ = lambda weight, *_, **__: nn.init.ones_(weight)
"""
    forward = "len(x) > 4 and os._exit(3); return self.linear(x)"
    parts = PARTS | {"top": patches, "forward": forward}
    Path("bad.py").write_text(TEMPLATE.format(**parts))
    options = ("--tasks", "tiny.yaml", "--seeds", 2, "--json", "--backend", backend)
    alone = json.loads(nas("evaluate", "mha", *options).out)
    both = nas("evaluate", "mha", "bad.py:Bad", *options)
    assert both.out, both.err
    answer = json.loads(both.out)
    (expected, *_), (reference, _) = alone["rows"], answer["rows"]
    assert reference["parts"]["tiny"]["values"] == expected["parts"]["tiny"]["values"]
    errors = {t["error"] for t in answer["trained"] if t["mechanism"] != "mha"}
    assert errors == {"its process ended with exit status 3"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "Heedless",
            "found forward(x) for sequences with padding or a mask; expected forward(x, m",
        ),
        ("Careless", "the output for a token depends on padding, which the mask hides."),
    ],
)
def test_module_that_ignores_padding_is_refused_for_texts(nas: Any, name: str, words: str) -> None:
    fields = "width: 8, heads: 2, depth: 1, epochs: 1, length: 8, words: 64"
    sizes = "train_examples: 16, validation_examples: 8, batch_size: 8"
    Path("texts.yaml").write_text(f"{{name: tiny, kind: texts, {fields}, {sizes}}}")
    command = ("--tasks", "texts.yaml", "--json", *LOCAL)
    result = nas("evaluate", "mine.py:Mixer", f"mine.py:{name}", *command)
    assert result.status == 2
    assert result.err.startswith(f"nas: mine.py:{name}: {words}"), result.err
    trained = nas("evaluate", "mine.py:Mixer", *command)
    assert trained.status == 0, trained.err
