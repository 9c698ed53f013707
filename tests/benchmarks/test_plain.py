"""The plain loops train the same model on the same images as our evaluation."""

from __future__ import annotations

import pytest
import torch

from benchmarks.plain import Transformer, loaders, preloaded
from nas.evaluation.trainer import build_model
from nas.genome.mechanisms import mechanism
from nas.tasks import Data, load_task
from nas.tasks.images import ImageTask
from nas.tasks.images.model import patches


@pytest.fixture(scope="module")
def task() -> ImageTask:
    few = {"train_images": 40, "validation_images": 20, "epochs": 1, "precision": "float32"}
    return load_task("published-proxy", data="digits", overrides=few)


@pytest.fixture(scope="module")
def data(task: ImageTask) -> Data:
    return task.load()


@pytest.mark.parametrize("sizes", [{"depth": 1, "heads": 1}, {"depth": 3, "heads": 4}], ids=str)
def test_plain_model_equals_ours(task: ImageTask, data: Data, sizes: dict[str, int]) -> None:
    task = task.model_copy(update=sizes)
    torch.manual_seed(0)
    channels = data.train["images"].shape[1]
    plain = Transformer(task, channels, len(data.facts["classes"])).eval()
    ours = build_model(task.resolve(mechanism("mha").genome), task, data, seed=0).eval()
    names = {"out": "wo", "query": "wq", "key": "wk", "value": "wv"}
    others = {"class_token": "learned", "mlp.0": "first", "mlp.2": "second"}
    weights = ours.state_dict()
    with torch.no_grad():
        for name, weight in plain.named_parameters():
            parts = name.split(".")
            if len(parts) == 4 and parts[2] in names:  # layers, number, module, weight
                parts[2] = f"attention.{names[parts[2]]}"
            our_name = ".".join(parts)
            for theirs, own in others.items():
                our_name = our_name.replace(theirs, own)
            weight.copy_(weights.pop(our_name).view_as(weight))
    assert not weights
    images = torch.randn(3, channels, task.image_size, task.image_size)
    torch.testing.assert_close(
        plain(images), ours(patches(images, task.patch)), atol=1e-5, rtol=1e-5
    )


def test_loaders_and_memory_give_the_same_images(task: ImageTask, data: Data) -> None:
    one_by_one, in_memory = (get(data, 7)[1] for get in (loaders, preloaded))
    for (images, labels), (others, their_labels) in zip(one_by_one, in_memory, strict=True):
        torch.testing.assert_close(images, others, atol=1e-5, rtol=1e-5)
        assert torch.equal(labels, their_labels)
