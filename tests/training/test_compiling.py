"""torch.compile for attention: where it is used, and that it leaves no trace where it is not."""

from __future__ import annotations

import os

import pytest
import torch

from nas.evaluation.trainer import build_backbone
from nas.mechanisms import mechanism
from nas.tasks import load_images, load_task
from nas.tasks.seeds import seeded
from nas.training.compiling import compiled, pays
from nas.training.hardware import Meter, one_thread
from nas.training.session import Session

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def task_for(**overrides):
    small = {"width": 16, "heads": 2, "image_size": 8, "epochs": 1, "train_images": 40,
             "validation_images": 140, "batch_size": 16, "precision": "float32"}  # fmt: skip
    return load_task("vit-cifar10", data="digits", overrides=small | overrides)


@pytest.fixture(scope="module")
def digits():
    return load_images("digits", task_for())


def fit(digits, name="mha", **overrides):
    task = task_for(**overrides)
    model = build_backbone(mechanism(name).genome, task, digits, seed=0)
    session = Session(task, CPU, None, Meter(CPU))
    with one_thread(), seeded(0):
        session.fit(model, digits, 0)
    return session, model


@pytest.mark.parametrize(
    ("asked", "device", "sizes", "steps", "expected"),
    [
        ("never", CUDA, {"image_size": 128}, 10**9, False),
        ("always", CPU, {}, 1, True),
        ("auto", CPU, {"image_size": 128}, 10**9, False),
        ("auto", CUDA, {}, 135, False),  # a proxy
        ("auto", CUDA, {"image_size": 128, "depth": 12, "heads": 8}, 200, False),
        ("auto", CUDA, {"image_size": 128, "depth": 12, "heads": 8}, 5000, True),
    ],
)
def test_pays_where_steps_times_gain_exceed_the_time_to_compile(
    asked, device, sizes, steps, expected
):
    task = load_task("vit-cifar10", overrides={"compile": asked} | sizes)
    assert pays(task, steps, device) is expected


def compile_to(result):
    """In the place of torch.compile, which takes half a minute."""

    def compile_it(forward, **options):
        assert options["dynamic"] is False
        return lambda x: result(forward, x)

    return compile_it


def test_compiled_attention_is_that_of_whole_batches_alone(digits, monkeypatch):
    seen = []

    def noting(forward, x):
        seen.append(len(x))
        return forward(x)

    monkeypatch.setattr(torch, "compile", compile_to(noting))
    plain, _ = fit(digits)
    session, model = fit(digits, compile="always")
    assert session.execution == "cpu, eager, compiled attention"
    assert session.curve == plain.curve  # rehearsing left no trace
    assert set(seen) == {16, 128}
    assert not any("forward" in vars(block) for block in model.attentions())


def test_compiled_attention_that_fails_is_eager_with_its_reason(digits, monkeypatch):
    def failing(forward, x):
        raise NameError("name 'sym_3' is not defined")

    monkeypatch.setattr(torch, "compile", compile_to(failing))
    plain, _ = fit(digits, dropout=0.1)
    session, _ = fit(digits, dropout=0.1, compile="always")
    assert session.execution == (
        "cpu, eager, not compiled (NameError: name 'sym_3' is not defined)"
    )
    assert session.curve == plain.curve


def test_compiled_undoes_itself_when_the_training_fails(digits):
    block = build_backbone(mechanism("mha").genome, task_for(), digits, 0).attentions()[0]

    def train():
        with compiled([block], []):
            assert "forward" in vars(block)
            raise KeyError

    with pytest.raises(KeyError):
        train()
    assert "forward" not in vars(block)


def test_compiled_kernels_are_shared_in_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("NAS_CACHE", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with compiled([], []):
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "inductor")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "a person's own")
    with compiled([], []):
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "a person's own"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mha", "qana", "champion_2025"])
def test_compiled_training_agrees_with_the_eager_one(digits, name, monkeypatch, tmp_path):
    """By the real compiler."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    plain, _ = fit(digits, name, compile="never")
    session, _ = fit(digits, name, compile="always")
    assert session.execution == "cpu, eager, compiled attention"
    ours, theirs = session.curve[0], plain.curve[0]
    assert ours.train_loss == pytest.approx(theirs.train_loss, rel=1e-4)
