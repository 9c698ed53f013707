"""Fuzzer inputs that are command lines: known commands and options with hostile values."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn
from unittest.mock import patch

import torch._dynamo  # noqa: F401 - its import, by some commands, makes code and a folder

from benchmarks.fuzzing.records import copy_run
from benchmarks.fuzzing.values import Rng, edit_text, hostile
from nas.cli import COMMANDS, main
from nas.common.errors import NasError
from nas.common.text import printable

# Valid command lines; commands that train use available data.
EXAMPLES: Final = (
    ("runs",),
    ("runs", "--json"),
    ("front", "example"),
    ("front", "example", "--json"),
    ("check", "example"),
    ("report", "example", "-o", "out.html"),
    ("show", "mha"),
    ("show", "example/best", "--json"),
    ("mechanisms",),
    ("mechanisms", "qana", "--dim", "64"),
    ("validate", "mha", "--policy", "two_stage"),
    ("validate", "example/best", "--json"),
    ("cost", "mha", "sqa", "--dim", "64", "--heads", "4", "--tokens", "8,16"),
    ("export", "mha", "-o", "out.py", "--dim", "8", "--heads", "2"),
    ("table", "attention-bench-quick"),
    ("search", "--space", "quickstart", "--data", "digits", "--gens", "1", "--run", "mine"),
    ("resume", "example", "--gens", "9", "--data", "digits"),
    ("evaluate", "mha", "--task", "recall", "--seeds", "1", "--record", "record.jsonl"),
    ("benchmark", "mha", "sqa", "--tasks", "recall,copying", "--seeds", "2"),
    ("confirm", "example", "--members", "2", "--data", "digits"),
    ("explain", "sqa", "--task", "recall", "--seeds", "2"),
)  # fmt: skip
# Words that would need the network or another process.
EXCLUDED: Final = ("hf:", "cifar10", "timm", "pt2", "onnx")


def arguments(rng: Rng, folder: Path) -> Callable[[], object]:
    """Return a function that runs a hostile command line in a folder with one run."""
    words = list(EXAMPLES[rng.integers(len(EXAMPLES))])
    for _ in range(1 + rng.geometric(0.6)):
        at = int(rng.integers(len(words)))
        match rng.integers(6):
            case 0:
                words[at] = str(hostile(rng))
            case 1:
                words[at] = edit_text(words[at], rng)
            case 2:
                words.insert(at + 1, str(hostile(rng)))
            case 3 if len(words) > 1 and at:
                del words[at]
            case 4:
                words.append(words[at])
            case _ if words[at : at + 1] and at:
                words[at] = str(rng.choice(["-1", "0", "1e9", "99999999999999999999", "nan", "é"]))
    # As passed by a shell: no zero bytes, and undecodable bytes as surrogates.
    words = [text.replace("\0", "")[:5000] for text in words]
    if any(word in " ".join(words) for word in EXCLUDED) or "runs" in words[1:]:
        words = ["front", words[-1]]
    if words[0] in ("resume", "confirm") and "--data" not in words:
        words += ["--data", "digits"]  # the data of the run's task would be downloaded
    copy_run(folder)
    return partial(run_command, words, folder)


def run_command(words: list[str], folder: Path) -> None:
    """Run a command line, and check its output and exit status."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="replace") for _ in range(2))
    before = Path.cwd()
    os.chdir(folder)
    try:
        with _without_training(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main(words)
            except SystemExit as error:
                status = error.code
    finally:
        os.chdir(before)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    for text in texts:
        assert printable(text) == text, f"unprintable characters in the output: {text!r:.300}"
    assert status in (0, 1, 2), f"exit status {status}"
    assert len(texts[1]) < 20_000, f"{len(texts[1])} characters on standard error"
    if status == 2:
        raise NasError(texts[1][:500])


@contextlib.contextmanager
def _without_training() -> Iterator[None]:
    """Replace evaluators, so that a command stops where a training would start."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NasError("a training would begin here")

    modules = ["nas.api.runs", "nas.api.explaining", "nas.api.comparing"]
    modules += [f"nas.cli.{name}" for name in COMMANDS]
    with contextlib.ExitStack() as patched:
        for name in modules:
            module = importlib.import_module(name)
            if hasattr(module, "make_evaluator"):
                patched.enter_context(patch.object(module, "make_evaluator", refuse))
        # It starts a shell with a fixed command.
        patched.enter_context(patch("nas.cli.options.announced_sudden_end", contextlib.nullcontext))
        yield
