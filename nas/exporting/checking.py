"""Compare exported files with the reference interpreter, in a process that cannot import nas.

The interpreter computes the expected outputs in float64, one operation at a time. Batch sizes and
lengths differ from the inputs with which graphs are traced. clean.py loads each file as its users
would. The difference of a file is the largest absolute difference between its float32 outputs and
the expected outputs, divided by max(1, largest absolute expected output).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from nas.common.errors import ExportError

if TYPE_CHECKING:
    from nas.exporting.request import ExportRequest, State

TOLERANCE: Final = 1e-5
SIZES: Final = ((3, 11), (1, 29))  # (batch, tokens); tracing uses (2, 7)
_SCRIPT: Final = Path(__file__).with_name("clean.py")


@dataclass(frozen=True)
class Case:
    """One call of an exported file, with the outputs that it must give.

    Attributes:
        inputs: tensors by argument name.
        expected: outputs of the reference interpreter, in float64.
        is_causal: the argument ``is_causal`` of the call; None for a file that has no such
            argument.
        is_loaded: whether the weights ``ExpectedOutputs.state`` are loaded before the call.
            Otherwise the call uses the weights in the file.
    """

    inputs: dict[str, Tensor]
    expected: Tensor
    is_causal: bool | None = None
    is_loaded: bool = False


@dataclass(frozen=True)
class ExpectedOutputs:
    """Calls of an exported file with expected outputs, and the weights that some calls load."""

    cases: tuple[Case, ...]
    state: State = field(default_factory=dict)


def block_outputs(
    request: ExportRequest,
    masks: Sequence[str],
    causal: Sequence[bool | None],
    *,
    with_file_weights: bool,
) -> ExpectedOutputs:
    """Return calls that check an exported attention block, with the outputs that they must give.

    The calls load weights with added noise into the block.

    Args:
        masks: names of the masks that every call passes.
        causal: values of the argument ``is_causal``, each of which gets its own calls. None is for
            a file without this argument, whose outputs depend on ``request.is_causal``.
        with_file_weights: whether to add calls that use the weights in the file.
    """
    reference = request.reference(request.written_layer)
    cases: list[Case] = []
    if with_file_weights:
        cases += _cases(reference, request, masks, causal, is_loaded=False)
    perturb(reference)
    state = {name: tensor.float() for name, tensor in reference.state_dict().items()}
    reference.load_state_dict(state)  # rounds to float32
    cases += _cases(reference, request, masks, causal, is_loaded=True)
    return ExpectedOutputs(tuple(cases), state)


def perturb(block: nn.Module) -> None:
    """Add noise to all weights of a module in place.

    Without noise, a term that is multiplied by a zero weight could be wrong without any effect on
    the outputs.
    """
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in block.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))


def block_inputs(batch: int, tokens: int, dim: int, masks: Sequence[str]) -> dict[str, Tensor]:
    """Return random tokens and random masks as inputs for one call.

    In the first sequence of the batch, the padding mask marks the last third of the tokens, and the
    attention mask hides the last key from every query.
    """
    generator = torch.Generator().manual_seed(tokens)
    inputs = {"x": torch.randn(batch, tokens, dim, generator=generator)}
    if "attn_mask" in masks:
        mask = torch.rand(batch, 1, tokens, tokens, generator=generator) < 0.7
        mask[0, :, -1] = False
        inputs["attn_mask"] = mask
    if "key_padding_mask" in masks:
        inputs["key_padding_mask"] = torch.zeros(batch, tokens, dtype=torch.bool)
        inputs["key_padding_mask"][0, tokens - tokens // 3 :] = True
    return inputs


def _cases(
    reference: nn.Module,
    request: ExportRequest,
    masks: Sequence[str],
    causal: Sequence[bool | None],
    *,
    is_loaded: bool,
) -> Iterator[Case]:
    for batch, tokens in SIZES:
        inputs = block_inputs(batch, tokens, request.dim, masks)
        for argument in causal:
            is_causal = request.is_causal if argument is None else argument
            arguments = inputs | {"x": inputs["x"].double()}
            with torch.no_grad():
                expected = reference(**arguments, is_causal=is_causal)
            if not bool(expected.isfinite().all()):
                raise ExportError("the mechanism's outputs are not finite, so nothing is checked.")
            yield Case(inputs, expected, argument, is_loaded)


def differences(jobs: Sequence[tuple[Path, str, ExpectedOutputs]]) -> list[float | str]:
    """Return the difference of each file from its expected outputs, or its error message.

    Args:
        jobs: triples of a file or folder, the name of its loader in clean.py, and its expected
            outputs.

    Raises:
        ExportError: the process that runs the files failed.
    """
    with TemporaryDirectory(prefix="nas-export-") as name:
        folder = Path(name)
        data = [_job(folder / f"{i}.safetensors", *job) for i, job in enumerate(jobs)]
        (folder / "jobs.json").write_text(json.dumps(data))
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
            "HF_MODULES_CACHE": str(folder / "modules"),
            "HF_HUB_OFFLINE": "1",
        }
        command = [sys.executable, "-I", str(_SCRIPT), str(folder)]
        done = subprocess.run(  # noqa: S603 - our own script, by its full path
            command, env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        results = folder / "results.json"
        if not results.is_file():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ExportError(f"the process that checks exports failed ({last}).")
        answer: list[float | str] = json.loads(results.read_text())
    return answer


def check_outputs(path: Path, loader: str, expected: ExpectedOutputs) -> float:
    """Return the difference of an exported file's outputs, as the module's docstring defines it.

    Args:
        loader: name of the function in clean.py that loads the file.

    Raises:
        ExportError: the file cannot be run, or differs by more than ``TOLERANCE``.
    """
    (difference,) = differences([(path, loader, expected)])
    if isinstance(difference, str):
        raise ExportError(f"the export cannot be run in a clean process: {difference}.")
    if not difference <= TOLERANCE:
        raise ExportError(
            f"the export differs from the mechanism by {difference:.1e} of its outputs; "
            f"expected at most {TOLERANCE:.0e}. Nothing is written."
        )
    return difference


def _job(path: Path, exported: Path, loader: str, expected: ExpectedOutputs) -> dict[str, Any]:
    tensors = {f"state/{name}": tensor for name, tensor in expected.state.items()}
    for index, case in enumerate(expected.cases):
        tensors |= {f"{index}/{name}": tensor for name, tensor in case.inputs.items()}
        tensors[f"{index}/"] = case.expected
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, path)
    cases = [{"is_causal": c.is_causal, "is_loaded": c.is_loaded} for c in expected.cases]
    return {"path": str(exported.resolve()), "loader": loader, "tensors": str(path), "cases": cases}
