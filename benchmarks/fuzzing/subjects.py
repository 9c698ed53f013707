"""Fuzzer inputs that are files: mutations of valid examples.

Each public function writes a hostile file and returns a function that reads it.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import struct
import zlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from PIL import Image

from benchmarks.fuzzing.values import Rng, edit_bytes, edit_text, hostile, mutate, serialise
from nas.api import genomes
from nas.api.exporting import export
from nas.common.config import read_model
from nas.evaluation.journal import JournaledEvaluator
from nas.exporting import EXPORTS, ExportRequest, Provenance, read_weights
from nas.genome.mechanisms import MECHANISMS
from nas.searching.setup import check_space
from nas.searching.tabular.table import load_table, tables
from nas.space import load_space
from nas.space.rules import load_policy, validate
from nas.surgery.files import _Record
from nas.tasks import load_task
from nas.tasks.images.folder import list_images, read_images
from nas.tasks.sequences.texts import read_folder
from tests.recorded_run import Invented

Work: TypeAlias = Callable[[], object]
Make: TypeAlias = Callable[[Rng, Path], Work]

ROOT: Final = Path(__file__).parents[2]


def genome(rng: Rng, folder: Path) -> Work:
    """Write a genome, or an exported file with one, to be validated, shown or exported."""
    if rng.random() < 0.1:
        path = folder / "genome.py"
        path.write_bytes(edit_bytes(_exported(), rng))
    else:
        names = sorted(MECHANISMS)
        data = MECHANISMS[names[rng.integers(len(names))]].genome.to_dict()
        data = _extended(data, rng) if rng.random() < 0.15 else mutate(data, rng)
        path = _write_document(folder, "genome", data, rng)
    match rng.integers(20):
        case 0:
            return partial(genomes.show, path)
        case 1:
            return partial(genomes.cost, path, tokens=[1, 65])
        case 2:
            return partial(export, path, folder / "exported.py", dim=8, heads=2)
    return partial(genomes.validate, path)


def _extended(data: dict[str, Any], rng: Rng) -> dict[str, Any]:
    """Return the graph extended by many nodes with random inputs."""
    graph = data["graph_def"]
    ops = ("add", "multiply", "linear", "gelu", "topk_filter", "relu", "relu_squared", "layer_norm")
    op = str(rng.choice(ops))
    for _ in range(int(rng.choice([5, 40, 150, 250, 300]))):
        near = int(rng.integers(max(0, len(graph) - 3), len(graph)))
        reads = [near] * (2 if op in ("add", "multiply") else 1)
        graph.append({"op": op, "inputs": reads if rng.random() < 0.9 else reads * 8})
        op = op if rng.random() < 0.9 else str(rng.choice(ops))
    return data


def source(rng: Rng, folder: Path) -> Work:
    """Return a function that validates a hostile SOURCE string."""
    names = sorted(MECHANISMS)
    examples = (
        *names,
        "qana:hidden=8,qk_dim=1/4",
        "sw_sqa:window=16",
        "mha:placement=first",
        "gqa:every=4,count=3,rest=mha:window=16",
        "a/b",
    )
    text = edit_text(str(rng.choice(examples)), rng)
    return partial(genomes.validate, text)


def space(rng: Rng, folder: Path) -> Work:
    """Write a search space."""
    path = _write_document(folder, "space", mutate(_yaml(_names("search_spaces"), rng), rng), rng)
    is_causal = bool(rng.random() < 0.2)
    return lambda: check_space(load_space(str(path)), is_causal=is_causal)


def policy(rng: Rng, folder: Path) -> Work:
    """Write a policy, to validate a genome."""
    data = _yaml(_names("validators"), rng)
    if rng.random() < 0.3 and data["rules"]:
        rule = data["rules"][rng.integers(len(data["rules"]))]
        pieces = (
            ".?",
            ".*",
            "(",
            ")",
            "|",
            "score",
            "*",
            "+",
            "(. .)?",
            "transform",
            "softmax",
            "x",
        )
        count = int(rng.choice([5, 30, 300, 3_000, 30_000]))
        rule["match"] = " ".join(rng.choice(pieces[: int(rng.integers(1, len(pieces)))], count))
        if rng.random() < 0.3:
            data["rules"] += [{**rule, "name": f"r{i}"} for i in range(int(rng.integers(1, 400)))]
    else:
        data = mutate(data, rng)
    path = _write_document(folder, "policy", data, rng)
    names = sorted(MECHANISMS)
    name = names[rng.integers(len(names))]
    if rng.random() < 0.2:
        return partial(genomes.validate, name, policy=str(path))
    return lambda: validate(MECHANISMS[name].genome, load_policy(str(path)))


def task(rng: Rng, folder: Path) -> Work:
    """Write a task."""
    path = _write_document(folder, "task", mutate(_yaml(_names("nas/tasks"), rng), rng), rng)

    def work() -> None:
        loaded = load_task(str(path))
        assert loaded.main.sizes
        assert loaded.fingerprint()
        loaded.to_dict()

    return work


def journal(rng: Rng, folder: Path) -> Work:
    """Write a journal of finished trainings."""
    lines = _journal().splitlines()
    at = int(rng.integers(len(lines)))
    if rng.random() < 0.7:
        lines[at] = serialise(mutate(json.loads(lines[at]), rng), rng, is_yaml=False)
    content = b"\n".join(line.replace(b"\n", b"") for line in lines) + b"\n"
    path = folder / "journal.jsonl"
    path.write_bytes(edit_bytes(content, rng) if rng.random() < 0.4 else content)
    chosen = _quick_task()

    def work() -> None:
        JournaledEvaluator(Invented(), path, chosen, chosen.load()).close()

    return work


def table(rng: Rng, folder: Path) -> Work:
    """Write a table of trainings."""
    path = folder / "table.json.gz"
    match rng.integers(12):
        case 0:
            path.write_bytes(gzip.compress(bytes(int(rng.choice([10**6, 700 * 10**6])))))
        case 1 | 2:
            path.write_bytes(edit_bytes(gzip.compress(json.dumps(_table()).encode()), rng))
        case _:
            content = serialise(mutate(_table(), rng), rng, is_yaml=False)
            path.write_bytes(gzip.compress(content, 1))

    def work() -> None:
        loaded = load_table(str(path))
        for name in (*loaded.metrics, "train_loss", "core_seconds"):
            loaded.scores(name)
            loaded.scores(name, 1)
        assert loaded.setting.sizes

    return work


def images(rng: Rng, folder: Path) -> Work:
    """Write a folder of images with hostile names, types, sizes, links and pipes."""
    root = folder / f"images{rng.integers(2**62):x}"
    for name in ("cats", "dogs"):
        class_folder = root / "train" / name
        class_folder.mkdir(parents=True)
        for number in range(2):
            pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(class_folder / f"{number}.png")
        path = class_folder / "0.png"
        match rng.integers(8):
            case 0 | 1 | 2:
                path.write_bytes(edit_bytes(path.read_bytes(), rng))
            case 3:
                with contextlib.suppress(OSError, ValueError):
                    path.rename(class_folder / f"{hostile(rng)}.png")
            case 4:
                os.rename(path, os.fsencode(class_folder) + b"/\xff\x1b[2J.png")
            case 5:
                path.unlink()
                target = rng.choice(
                    ["/etc/passwd", "../../../../x.png", "0.png", "1.png", "/dev/zero"]
                )
                path.symlink_to(str(target))
            case 6:
                path.unlink()
                os.mkfifo(path)
            case 7:
                path.write_bytes(_png_of(int(rng.choice([10, 9_000, 60_000]))))

    def work() -> None:
        _, paths_by_class = list_images(root)
        read_images([path for paths in paths_by_class for path in paths], 8)

    return work


def _png_of(edge: int) -> bytes:
    """Return a small PNG file whose header claims a square image with this edge in pixels."""
    file = io.BytesIO()
    Image.new("RGB", (1, 1)).save(file, "png")
    content = bytearray(file.getvalue())
    content[16:24] = struct.pack(">II", edge, edge)
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    return bytes(content)


def texts(rng: Rng, folder: Path) -> Work:
    """Write a folder of texts."""
    root = folder / f"texts{rng.integers(2**62):x}"
    for name in ("good", "bad"):
        class_folder = root / "train" / name
        class_folder.mkdir(parents=True)
        (class_folder / "0.txt").write_bytes(edit_bytes(b"fine words\n", rng))
        with contextlib.suppress(OSError, ValueError):
            (class_folder / f"{hostile(rng)}.txt").write_bytes(b"more")
        if rng.random() < 0.1:
            os.mkfifo(class_folder / "pipe.txt")
        if rng.random() < 0.1:
            (class_folder / "link.txt").symlink_to("/etc/passwd")
    return partial(read_folder, root, ("train",))


def weights(rng: Rng, folder: Path) -> Work:
    """Write a file of trained weights, or the record of a swapped model."""
    if rng.random() < 0.3:
        genome = MECHANISMS["mha"].genome.to_dict()
        core = {"genome": genome, "sizes": {"dim": 8, "heads": 2}}
        record = {"version": 1, "model": "BertModel", "attn_implementation": "eager"}
        record |= {"attention": {"encoder.layer.0": core}}
        return partial(
            read_model, _write_document(folder, "record", mutate(record, rng), rng), _Record
        )
    path = folder / "weights.safetensors"
    path.write_bytes(edit_bytes(_weights(), rng))
    return partial(read_weights, path)


def _write_document(folder: Path, name: str, data: Any, rng: Rng) -> Path:
    is_yaml = bool(rng.random() < 0.4)
    path = folder / f"{name}.{'yaml' if is_yaml else 'json'}"
    path.write_bytes(serialise(data, rng, is_yaml=is_yaml))
    return path


@cache
def _names(folder: str) -> tuple[Path, ...]:
    return tuple(sorted((ROOT / folder).glob("*.yaml")))


def _yaml(paths: tuple[Path, ...], rng: Rng) -> Any:
    return json.loads(_parsed(paths[rng.integers(len(paths))]))


@cache
def _parsed(path: Path) -> str:
    import yaml  # noqa: TID251

    return json.dumps(yaml.safe_load(path.read_text()))


@cache
def _exported() -> bytes:
    request = ExportRequest(MECHANISMS["mha"].genome, 8, 2, Provenance("mha"))
    return str(EXPORTS.get("py").content(request)).encode()


@cache
def _quick_task() -> Any:
    small = {"train_examples": 4, "validation_examples": 2, "curve_examples": 1}
    return load_task("recall", overrides=small)


@cache
def _journal() -> bytes:
    """Return a journal of two trainings, as written by ``nas evaluate --record``."""
    from tempfile import TemporaryDirectory

    from nas.evaluation.trial import Trial

    chosen = _quick_task()
    with TemporaryDirectory() as name:
        path = Path(name) / "journal.jsonl"
        evaluator = JournaledEvaluator(Invented(), path, chosen, chosen.load())
        genome = MECHANISMS["mha"].genome
        evaluator.submit([Trial(f"{seed:016x}", genome, seed) for seed in range(2)])
        evaluator.wait()
        evaluator.close()
        return path.read_bytes()


@cache
def _table_text() -> str:
    from nas.searching.tabular.table import FOLDER, SUFFIX

    data = json.loads(gzip.decompress((FOLDER / f"{tables()[0]}{SUFFIX}").read_bytes()))
    for name in ("mechanisms", "keys", "trainings"):
        data[name] = data[name][:3]
    return json.dumps(data)


def _table() -> Any:
    """Return the document of a table with three mechanisms."""
    return json.loads(_table_text())


@cache
def _weights() -> bytes:
    from safetensors.numpy import save

    return save({"layers.0.q.weight": np.zeros((4, 4), np.float32)}, metadata={"task": "x"})
