"""Every format in a clean process; what is refused says which node and why."""

from __future__ import annotations

import ast
import json
import re
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load, load_file

import nas
from benchmarks.exports import FORMATS
from nas.common.errors import ExportError, NasError
from nas.compiler import formula_of, make_plan
from nas.exporting import EXPORTS, MASKS, ExportRequest, Provenance, checking, write_export
from nas.exporting.checking import (
    TOLERANCE,
    ExpectedOutputs,
    check_outputs,
    differences,
    perturb,
)
from nas.genome import PLACEMENTS, Visibility
from nas.genome.canonical import digest
from nas.genome.exported import genome_of_export
from nas.genome.mechanisms import MECHANISMS
from nas.genome.primitives import names
from nas.genome.primitives.base import REGISTRY
from nas.tasks import load_task
from tests.recorded_run import CONFIRMED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nas.genome import Genome
    from tests.genomes import Build

MHA, QANA = MECHANISMS["mha"].genome, MECHANISMS["qana"].genome
EXAMPLE = Path(__file__).resolve().parents[2] / "runs" / "example"


def request(genome: Genome, **options: Any) -> ExportRequest:
    """A small request with weights that are nowhere zero."""
    initial, weights = ExportRequest(genome, 16, 4, Provenance("a test"), **options), {}
    for layer in range(initial.depth):
        block = initial.reference(layer)
        perturb(block)
        weights[layer] = block.float().state_dict()
    return replace(initial, weights=weights)


def expected_outputs(made: ExportRequest, format_: str) -> ExpectedOutputs:
    expected = EXPORTS.get(format_).expected
    assert expected is not None
    return expected(made)


def hf_files(made: ExportRequest) -> Any:
    """The files of an hf folder by name."""
    return EXPORTS.get("hf").content(made)


def hf_classes(files: Any) -> dict[str, Any]:
    """The classes of an hf folder by name."""
    scope: dict[str, Any] = {"__name__": "exported"}
    exec(files["modeling_mechanism.py"], scope)
    return scope


def test_all_formats_equal_the_interpreter_at_sizes_that_tracing_did_not_use(
    tmp_path: Path,
) -> None:
    """Causal and not, with all masks and none, with a window, head groups, biases, a placement."""
    windowed = MECHANISMS["sw_sqa"].genome
    requests = {
        "masked": (request(MHA, is_causal=True, masks=MASKS), FORMATS),
        "windowed": (request(windowed, is_causal=True, masks=(), qkv_bias=True), ("pt2", "onnx")),
        "placed": (
            request(replace(QANA, placement=PLACEMENTS["first"]), masks=("attn_mask",)),
            ("hf",),
        ),
    }
    jobs = {}
    for name, (made, formats) in requests.items():
        for format_ in formats:
            written = EXPORTS.get(format_)
            path = tmp_path / f"{name}_{format_}{written.suffix}"
            write_export(written.content(made), path)
            jobs[name, format_] = path, written.loader, expected_outputs(made, format_)
    results = dict(zip(jobs, differences(list(jobs.values())), strict=True))
    assert len(results) == 8
    wrong = {k: r for k, r in results.items() if isinstance(r, str) or not r <= TOLERANCE}
    assert not wrong


def test_a_file_with_wrong_outputs_or_an_import_of_nas_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = request(MHA)
    text, expected = str(EXPORTS.get("py").content(made)), expected_outputs(made, "py")
    wrong, dependent = tmp_path / "wrong.py", tmp_path / "dependent.py"
    wrong.write_text(text.replace("self.wo(", "1.001 * self.wo("))
    dependent.write_text(text.replace("import torch\n", "import torch, nas\n", 1))
    results = differences([(path, "py", expected) for path in (wrong, dependent)])
    assert isinstance(results[0], float)
    assert "ModuleNotFoundError" in str(results[1])
    for result, words in zip(
        results, ("differs from the mechanism by", "clean process"), strict=True
    ):
        monkeypatch.setattr(checking, "differences", lambda jobs, found=result: [found])
        with pytest.raises(ExportError, match=words):
            check_outputs(wrong, "py", expected)


def test_trained_weights_of_a_run_are_exported(tmp_path: Path) -> None:
    """One layer in a graph, all in a model, whose card says that the rest is not trained."""
    written = nas.export(f"{EXAMPLE}/best", tmp_path / "best.pt2", format="pt2")
    assert (written.is_trained, written.weights) == (True, None)
    assert written.difference is not None
    assert written.difference <= TOLERANCE
    beside = nas.export(f"{EXAMPLE}/best", tmp_path / "best.py", weights=True)
    with pytest.raises(ExportError, match="layer 1 does not hold the mechanism; expected one of 0"):
        nas.export(f"{EXAMPLE}/best", tmp_path / "x.pt2", format="pt2", layer=1)
    assert beside.weights is not None
    kept = load_file(beside.weights)
    program = torch.export.load(tmp_path / "best.pt2")
    assert {f"block.{name}" for name in kept} == set(program.state_dict)
    for name, tensor in kept.items():
        assert torch.equal(program.state_dict[f"block.{name}"], tensor)

    placed = request(replace(QANA, placement=PLACEMENTS["alternate"]))
    files = hf_files(placed)
    tensors = load(files["model.safetensors"])
    for layer, state in placed.weights.items():
        for name, tensor in state.items():
            assert torch.equal(tensors[f"model.layers.{layer}.attention.{name}"], tensor)
    assert "The attention weights of all layers were trained" in files["README.md"]
    assert "Attention: Any" not in files["modeling_mechanism.py"]  # a placeholder of the template
    fresh = hf_files(ExportRequest(QANA, 16, 4, Provenance("x")))
    assert "Nothing is trained" in fresh["README.md"]


def test_file_and_card_state_how_each_number_was_obtained(tmp_path: Path) -> None:
    """Estimates with standard errors, predictions and counts; seeds, task and date of trainings."""
    nas.export(f"{CONFIRMED}/best", tmp_path / "best.py")
    text = (tmp_path / "best.py").read_text()
    facts = (
        r"accuracy [\d.]+ ± [\d.]+ % \(estimate .* measured mean [\d.]+ %\)",
        r"time_ms [\d.]+ ms \(predicted\)",
        r"macs .* \(counted\)",
        r"\d+ trainings? \(seeds \d+.*\) of task vit-cifar10, run started 20\d\d-\d\d-\d\d",
    )
    for fact in facts:
        assert re.search(fact, text)
    provenance = Provenance("x", "a run", ("1 training", "accuracy 0.4 (estimate)"))
    files = hf_files(ExportRequest(MHA, 16, 4, provenance))
    assert "accuracy 0.4 (estimate)" in files["README.md"]
    assert "easured" not in files["README.md"]


def test_card_is_titled_by_name_or_formula() -> None:
    plan = make_plan(replace(QANA, placement=PLACEMENTS["alternate"]))
    for genome, title in ((QANA, "qana"), (plan.genome, f"`{formula_of(plan)}`")):
        files = hf_files(ExportRequest(genome, 16, 4, Provenance("x")))
        (found,) = re.findall("^# (.*)$", files["README.md"], re.MULTILINE)
        assert found == title
        assert f"Digest: {digest(genome)}\n" in files["README.md"]


@pytest.mark.parametrize(
    ("task", "words", "is_shifted"),
    [("text-classification", 8192, False), ("recall", 80, True), ("bytes", 256, False)],
)
def test_hf_folder_has_the_vocabulary_of_the_task(task: str, words: int, is_shifted: bool) -> None:
    """And its card says what of the task's embedding it has not."""
    sizes: Any = load_task(task)
    found = ExportRequest(MHA, 64, 4, Provenance("x"), task=sizes)
    files = hf_files(found)
    assert json.loads(files["config.json"])["vocab_size"] == words
    assert load(files["model.safetensors"])["lm_head.weight"].shape == (words, 64)
    assert ("embedding of the previous token" in files["README.md"]) == is_shifted


@pytest.fixture
def _unexportable() -> Iterator[None]:
    names()  # all of ours are there before more are
    before = dict(REGISTRY._members)
    import_module("tests.exporting.unexportable")
    yield
    sys.modules.pop("tests.exporting.unexportable")
    REGISTRY._members = before


@pytest.mark.usefixtures("_unexportable")
@pytest.mark.parametrize(
    ("format_", "op", "words"),
    [
        ("pt2", "branching", r"torch.export cannot trace node \d \(branching\) \("),
        ("onnx", "branching", r"torch.export cannot trace node \d \(branching\) \("),
        ("onnx", "special", r"ONNX has no operation for node \d \(special\) \("),
    ],
)
def test_a_failed_trace_names_the_node(genome: Build, format_: str, op: str, words: str) -> None:
    found = genome(
        ("scaled_dot_product", ["q", "k"]), ("softmax", [0]), (op, ["v"]), ("weighted_sum", [1, 2])
    )
    with pytest.raises(ExportError, match=words):
        EXPORTS.get(format_).content(ExportRequest(found, 16, 4, Provenance("x")))


def test_onnx_names_the_node_that_needs_a_solver() -> None:
    request = ExportRequest(MECHANISMS["deltanet"].genome, 16, 4, Provenance("deltanet"))
    with pytest.raises(ExportError, match=r"ONNX has no operation for node \d+ \(delta\)"):
        EXPORTS.get("onnx").content(request)


def test_a_mechanism_that_sees_later_tokens_cannot_be_causal(genome: Build) -> None:
    found = genome(
        ("short_conv", ["v"], {"causal": False}),
        ("scaled_dot_product", ["q", "k"]),
        ("softmax", [1]),
        ("weighted_sum", [2, 0]),
    )
    with pytest.raises(ExportError, match=r"node \d \(short_conv\) sees later tokens"):
        ExportRequest(found, 16, 4, Provenance("x"), is_causal=True)


@pytest.mark.parametrize(
    ("format_", "package"),
    [("onnx", "onnxruntime"), ("hf", "transformers"), ("timm", "timm"), ("onnx", "onnxscript")],
)
def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExportError, match=f"`pip install {package}`"):
        nas.export("mha", tmp_path / f"x{EXPORTS.get(format_).suffix}", format=format_)


@pytest.mark.parametrize(
    ("format_", "options", "words"),
    [
        ("onnx", {"fast": True}, "--fast is not for onnx; expected module, py, timm"),
        ("py", {"causal": False}, "--causal is not for py; expected pt2, onnx, hf"),
        ("timm", {"masks": ["attn_mask"]}, "--masks is not for timm; expected pt2, onnx"),
        ("pt2", {"masks": ["mask"]}, "found 'mask'; expected attn_mask or key_padding_mask"),
        ("onnx", {"weights": True}, "has no trained weights"),
        ("timm", {"dim": 30}, "dim 30 and heads 4"),
        ("hf", {"dim": 30}, "dim 30 and heads 4"),
        ("pt2", {"dim": 30}, "dim 30 and heads 4"),
    ],
)
def test_unsupported_options_and_sizes_raise_an_error(
    tmp_path: Path, format_: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(NasError, match=words):
        nas.export("mha", tmp_path / f"x{EXPORTS.get(format_).suffix}", format=format_, **options)
    assert not list(tmp_path.iterdir())


def test_the_suffix_decides_on_the_format(tmp_path: Path) -> None:
    small = {"dim": 16, "heads": 2}
    assert nas.export("mha", tmp_path / "a.py", **small).difference is None
    assert nas.export("mha", tmp_path / "a.pt2", **small).difference is not None
    assert torch.export.load(tmp_path / "a.pt2").graph_signature.user_outputs
    with pytest.raises(ExportError, match=r"ends in \.py"):
        nas.export("mha", tmp_path / "a.docx")


def test_a_folder_is_written_atomically_and_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "precious").write_text("")
    with pytest.raises(ExportError, match="exists already"):
        nas.export("mha", tmp_path / "taken", format="hf")
    write_export({"a": "1", "b": b"2"}, tmp_path / "new")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["a", "b"]
    with pytest.raises(ExportError, match="cannot be written"):
        write_export({"a": "1", "b/c": "2"}, tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "taken"]


def test_timm_vision_transformer_trains_with_the_exported_class(tmp_path: Path) -> None:
    """From the mechanism's own start, with the biases that timm asks for."""
    from timm.models.vision_transformer import VisionTransformer

    text = str(EXPORTS.get("timm").content(ExportRequest(QANA, 16, 4, Provenance("qana"))))
    (tmp_path / "qana.py").write_text(text)
    assert genome_of_export(tmp_path / "qana.py") == QANA
    in_first = ExportRequest(
        replace(QANA, placement=PLACEMENTS["first"]), 16, 4, Provenance("qana")
    )
    assert "is: first." in str(EXPORTS.get("timm").content(in_first))
    assert "placement" not in text
    scope: dict[str, Any] = {"__name__": "exported"}
    exec(text, scope)
    layer = scope["ViTAttention"]
    sizes: dict[str, Any] = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "num_classes": 3}
    model = VisionTransformer(depth=2, num_heads=4, proj_drop_rate=0.1, attn_layer=layer, **sizes)
    tail = model.blocks[1].attn.qana_0.tail
    assert int((tail.weight == 0).sum()) > 0  # zero_out, which timm's own draws would undo
    assert float(model.blocks[1].attn.wq.weight.detach().std()) > 0.05
    model(torch.randn(2, 3, 16, 16)).square().sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())
    assert layer(24, num_heads=4, qkv_bias=True, proj_bias=False).wo.bias is None
    with pytest.raises(ValueError, match="no qk_norm"):
        layer(24, num_heads=4, qk_norm=True)
    with pytest.raises(ValueError, match="expected a bool mask"):
        layer()(torch.randn(1, 3, 16), attn_mask=torch.zeros(3, 3))


def test_causal_hf_model_trains_and_generates() -> None:
    files = hf_files(ExportRequest(QANA, 16, 4, Provenance("x"), is_causal=True))
    scope = hf_classes(files)
    config = scope["MechanismConfig"](hidden_size=16, vocab_size=9, is_causal=True)
    model = scope["MechanismForCausalLM"](config)
    assert int((model.model.layers[0].attention.qana_0.tail.weight == 0).sum()) > 0
    ids = torch.randint(9, (2, 6))
    found = model(ids, labels=ids)
    found.loss.backward()
    assert found.logits.shape == (2, 6, 9)
    made = model.eval().generate(ids, max_new_tokens=3, do_sample=False)
    assert made.shape == (2, 9)
    again = model(made[:, :-1]).logits[:, 5:].argmax(-1)  # what is made follows from all before it
    assert torch.equal(again, made[:, 6:])
    assert model.accepts_loss_kwargs is False  # else Trainer expects it to divide by all tokens
    with pytest.raises(ValueError, match="at most 512"):
        model(torch.zeros(1, 513, dtype=torch.long))
    with pytest.raises(ValueError, match="exported to see later tokens"):
        scope["MechanismForCausalLM"](scope["MechanismConfig"]())


def test_hf_outputs_do_not_depend_on_the_side_of_padding(genome: Build) -> None:
    """Nor what is generated: a mechanism that counts places counts from the first token."""
    values = genome(
        ("scaled_dot_product", ["q", "k"]),
        ("softmax", [0]),
        ("rope", ["v"]),
        ("weighted_sum", [1, 2]),
    )
    seen = Visibility(window=3, global_tokens=2)
    for found in (QANA, values, replace(MHA, visibility=seen)):
        files = hf_files(request(found, is_causal=True))
        scope = hf_classes(files)
        config = scope["MechanismConfig"](hidden_size=16, vocab_size=9, is_causal=True)
        model = scope["MechanismForCausalLM"](config).eval()
        ids = torch.randint(9, (2, 6))
        plain = model(ids, output_hidden_states=True)
        for own in (slice(2, 8), slice(6)):
            padded, mask = torch.zeros(2, 3, 8, dtype=torch.long)
            padded[:2, own], mask[:2, own] = ids, 1
            padded[2], mask[2] = torch.arange(8), 1
            out = model(padded, mask, output_hidden_states=True)
            torch.testing.assert_close(out.logits[:2, own], plain.logits)
            for mine, theirs in zip(out.hidden_states, plain.hidden_states, strict=True):
                torch.testing.assert_close(mine[:2, own], theirs)
            if own.start:
                more = {"max_new_tokens": 3, "do_sample": False}
                made = model.generate(padded, attention_mask=mask, **more)
                assert torch.equal(made[:2, own.start :], model.generate(ids, **more))


def test_no_module_imports_another_framework_before_it_is_needed() -> None:
    frameworks = {"onnx", "onnxscript", "onnxruntime", "timm", "transformers"}
    for path in Path(nas.__file__).parent.rglob("*.py"):
        if path.name == "modeling.py":  # a template, never imported
            continue
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not frameworks & {name.partition(".")[0] for name in names}, path
