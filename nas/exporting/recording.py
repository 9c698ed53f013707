"""Recorded outputs of the interpreter, and a clean process that compares a file with them.

Inputs have lengths and batches that no tracing saw. The file is loaded where ``nas`` cannot be
imported (clean.py), by what its users load it with. What is compared is the largest difference in
32 bits over the largest output, or over 1 where outputs are smaller.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors.torch import save_file

from nas.common.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from nas.exporting.subject import State, Subject

TOLERANCE: Final = 1e-5
SIZES: Final = ((3, 11), (1, 29))  # batches and lengths; tracing sees 2 and 7
_SCRIPT: Final = Path(__file__).with_name("clean.py")


@dataclass(frozen=True)
class Case:
    """One call of an exported file.

    Attributes:
        inputs: by name.
        expected: in 64 bits.
        is_causal: told at the call; None where the file has it fixed.
        is_loaded: whether the recording's state is loaded first, else the file's own weights are.
    """

    inputs: dict[str, Tensor]
    expected: Tensor
    is_causal: bool | None = None
    is_loaded: bool = False


@dataclass(frozen=True)
class Recording:
    """What a file must give.

    Attributes:
        state: weights that are loaded into what the file holds.
    """

    cases: tuple[Case, ...]
    state: State = field(default_factory=dict)


def record_block(
    subject: Subject, masks: Sequence[str], causal: Sequence[bool | None], *, own: bool
) -> Recording:
    """Cases of one block.

    Args:
        masks: which masks each call gets, all at once.
        causal: what each call is told; None takes the subject's.
        own: the block's own weights, too, beside others under which no part of it is silent.
    """
    reference = subject.reference(subject.layer)
    cases = list(_cases(reference, subject, masks, causal, False)) if own else []
    stir(reference)
    state = {name: tensor.float() for name, tensor in reference.state_dict().items()}
    reference.load_state_dict(state)  # what 32 bits hold
    cases += _cases(reference, subject, masks, causal, True)
    return Recording(tuple(cases), state)


def stir(block: nn.Module) -> None:
    """Move all weights a little: zeros at the start hide what they multiply."""
    draws = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in block.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=draws, dtype=weight.dtype))


def _cases(
    block: nn.Module,
    subject: Subject,
    masks: Sequence[str],
    causal: Sequence[bool | None],
    is_loaded: bool,
) -> Iterator[Case]:
    for batch, tokens in SIZES:
        inputs = block_inputs(batch, tokens, subject.dim, masks)
        for told in causal:
            is_causal = subject.is_causal if told is None else told
            given = inputs | {"x": inputs["x"].double()}
            with torch.no_grad():
                out = block(**given, is_causal=is_causal)
            if not bool(out.isfinite().all()):
                raise ExportError("the mechanism's outputs are not finite, so nothing is checked.")
            yield Case(inputs, out, told, is_loaded)


def block_inputs(batch: int, tokens: int, dim: int, masks: Sequence[str]) -> dict[str, Tensor]:
    """Tokens and masks of one call; some rows see nothing, and the first example is padded."""
    draws = torch.Generator().manual_seed(tokens)
    inputs = {"x": torch.randn(batch, tokens, dim, generator=draws)}
    if "attn_mask" in masks:
        seen = torch.rand(batch, 1, tokens, tokens, generator=draws) < 0.7
        seen[0, :, -1] = False
        inputs["attn_mask"] = seen
    if "key_padding_mask" in masks:
        padding = torch.zeros(batch, tokens, dtype=torch.bool)
        padding[0, tokens - tokens // 3 :] = True
        inputs["key_padding_mask"] = padding
    return inputs


def differences(given: Sequence[tuple[Path, str, Recording]]) -> list[float | str]:
    """By how much files differ from their recordings, or why one cannot be run; one process.

    Args:
        given: a file or folder, the loader's name in clean.py, and what it must give.

    Raises:
        ExportError: the process itself failed.
    """
    with TemporaryDirectory(prefix="nas-export-") as name:
        folder = Path(name)
        jobs = [_job(folder / f"{i}.safetensors", *one) for i, one in enumerate(given)]
        (folder / "jobs.json").write_text(json.dumps(jobs))
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
            "HF_MODULES_CACHE": str(folder / "modules"),
            "HF_HUB_OFFLINE": "1",
        }
        command = [sys.executable, "-I", str(_SCRIPT), str(folder)]
        done = subprocess.run(  # noqa: S603 - our own script, by its full path
            command, env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        found = folder / "found.json"
        if not found.is_file():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ExportError(f"the process that checks exports failed ({last}).")
        result: list[float | str] = json.loads(found.read_text())
    return result


def check(path: Path, loader: str, recording: Recording) -> float:
    """The difference of a file from its recording.

    Raises:
        ExportError: it cannot be run, or gives something else.
    """
    (found,) = differences([(path, loader, recording)])
    if isinstance(found, str):
        raise ExportError(f"what was exported cannot be run in a clean process: {found}.")
    if not found <= TOLERANCE:
        raise ExportError(
            f"what was exported differs from the mechanism by {found:.1e} of its outputs; "
            f"expected at most {TOLERANCE:.0e}. Nothing is written."
        )
    return found


def _job(path: Path, exported: Path, loader: str, recording: Recording) -> dict[str, Any]:
    tensors = {f"state/{name}": tensor for name, tensor in recording.state.items()}
    for index, case in enumerate(recording.cases):
        tensors |= {f"{index}/{name}": tensor for name, tensor in case.inputs.items()}
        tensors[f"{index}/"] = case.expected
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, path)
    told = [{"is_causal": c.is_causal, "is_loaded": c.is_loaded} for c in recording.cases]
    return {"path": str(exported.resolve()), "loader": loader, "tensors": str(path), "cases": told}
