"""The kind of input that is a command line: known commands and options with hostile values."""

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

from benchmarks.fuzzing.records import copy_run
from benchmarks.fuzzing.values import Rng, edited, hostile
from nas.cli import COMMANDS, main
from nas.common.errors import NasError
from nas.common.text import printable

# Each with arguments that are well; what trains asks for data that are there.
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
# They would ask the network, or compare in another process.
LEFT_OUT: Final = ("hf:", "cifar10", "timm", "pt2", "onnx")


def arguments(rng: Rng, folder: Path) -> Callable[[], object]:
    """A command line, run where there is one run."""
    given = list(EXAMPLES[rng.integers(len(EXAMPLES))])
    for _ in range(1 + rng.geometric(0.6)):
        at = int(rng.integers(len(given)))
        match rng.integers(6):
            case 0:
                given[at] = str(hostile(rng))
            case 1:
                given[at] = edited(given[at], rng)
            case 2:
                given.insert(at + 1, str(hostile(rng)))
            case 3 if len(given) > 1 and at:
                del given[at]
            case 4:
                given.append(given[at])
            case _ if given[at : at + 1] and at:
                given[at] = str(rng.choice(["-1", "0", "1e9", "99999999999999999999", "nan", "é"]))
    # As the shell hands them on: no zero bytes, and bytes that are no characters as surrogates.
    given = [text.replace("\0", "")[:5000] for text in given]
    if any(word in " ".join(given) for word in LEFT_OUT) or "runs" in given[1:]:
        given = ["front", given[-1]]
    copy_run(folder)
    return partial(_typed, given, folder)


def _typed(given: list[str], folder: Path) -> None:
    """Run a command line, and judge what it printed and how it ended."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="replace") for _ in range(2))
    before = Path.cwd()
    os.chdir(folder)
    try:
        with _nothing_trains(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main(given)
            except SystemExit as ended:
                status = ended.code
    finally:
        os.chdir(before)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    for text in texts:
        assert printable(text) == text, f"raw text is printed: {text!r:.300}"
    assert status in (0, 1, 2), f"the status {status}"
    assert len(texts[1]) < 20_000, f"{len(texts[1])} characters on standard error"
    if status == 2:
        raise NasError(texts[1][:500])


@contextlib.contextmanager
def _nothing_trains() -> Iterator[None]:
    """Up to where a training would begin, all is real."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NasError("a training would begin here")

    modules = ["nas.api.runs", "nas.api.explaining", "nas.api.comparing"]
    modules += [f"nas.cli.{name}" for name in COMMANDS]
    with contextlib.ExitStack() as patched:
        for name in modules:
            module = importlib.import_module(name)
            if hasattr(module, "make_evaluator"):
                patched.enter_context(patch.object(module, "make_evaluator", refuse))
        yield
