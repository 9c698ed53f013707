"""Save and load models of Hugging Face's transformers whose attention a mechanism replaced.

    nas.save_swapped(model, "folder")
    model = nas.load_swapped("folder")

transformers writes ``config.json`` and ``generation_config.json``. ``nas_attention.json`` holds the
genome and the sizes of each swapped attention, ``nas_model.safetensors`` all parameters and
buffers; tied parameters are stored once. The name is not ``model.safetensors``, so that a plain
``from_pretrained``, which would drop the mechanism, finds no weights. Loading runs no code from the
folder.
"""

from __future__ import annotations

import glob
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

import pydantic
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nas.common.config import read_document, read_model
from nas.common.errors import NasError
from nas.genome import Genome
from nas.surgery.core import AttentionCore
from nas.surgery.hosts import CORE
from nas.surgery.swap import swap_attention

RECORD: Final = "nas_attention.json"
WEIGHTS: Final = "nas_model.safetensors"


class _Attention(pydantic.BaseModel, extra="forbid", frozen=True):
    """The genome of a swapped module, and the sizes of the attention that it replaced."""

    genome: dict[str, Any]
    sizes: dict[str, int | bool]


class _Record(pydantic.BaseModel, extra="forbid", frozen=True):
    """The content of ``nas_attention.json``."""

    version: Literal[1]
    model: str
    attn_implementation: Literal["eager", "sdpa"]
    attention: dict[str, _Attention]


def save_swapped(model: nn.Module, folder: str | Path) -> None:
    """Save a Hugging Face model whose attention was replaced by ``nas.swap_attention``.

    Raises:
        NasError: the model's class is not one of the package ``transformers``, no attention of the
            model was replaced, or the folder cannot be written.
    """
    cores = {
        name.removesuffix(".core"): core
        for name, core in model.named_modules()
        if isinstance(core, AttentionCore)
    }
    kind = type(model).__name__
    is_own = type(model).__module__.partition(".")[0] == "transformers"
    if not is_own or type(model) is not _class(kind, "save_swapped"):
        raise NasError(
            f"save_swapped: {kind} is not a class of transformers; save the model's state_dict(), "
            "and load it into a model with the same swap."
        )
    if not cores:
        raise NasError(
            f"save_swapped: {kind} holds no swapped attention; its save_pretrained saves it."
        )
    transformer: Any = model
    record = {
        "version": 1,
        "model": kind,
        "attn_implementation": transformer.config._attn_implementation,
        "attention": {
            name: {"genome": core.genome.to_dict(), "sizes": asdict(core.sizes)}
            for name, core in cores.items()
        },
    }
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        transformer.config.save_pretrained(folder)
        if transformer.can_generate():
            transformer.generation_config.save_pretrained(folder)
        tensors = {name: t.detach().cpu().contiguous() for name, t in _tensors(model).items()}
        save_file(tensors, folder / WEIGHTS)
        (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise NasError(f"{folder}: cannot be written ({error.strerror}).") from error


def load_swapped(folder: str | Path) -> nn.Module:
    """Return the model that ``save_swapped`` wrote, on the CPU, in eval mode.

    Its outputs equal the outputs of the saved model.

    Raises:
        NasError: the folder was not written by ``save_swapped``, or its files do not match.
        GenomeError, ViolationError: the folder holds an invalid genome.
    """
    folder = Path(folder)
    if not (folder / RECORD).is_file():
        raise NasError(f"{folder}: has no {RECORD}; expected a folder that nas.save_swapped wrote.")
    record = read_model(folder / RECORD, _Record)
    with torch.random.fork_rng(devices=[]):
        model = _initialised(folder, record)
        for name, attention in record.attention.items():
            genome = Genome.from_dict(attention.genome, f"{folder / RECORD}, {name}")
            swap_attention(model, genome, where=[glob.escape(name)], preserve=False)
            core: Any = model.get_submodule(f"{name}.{CORE}")
            sizes = asdict(core.sizes)
            # Folders of earlier versions lack sizes that were added since.
            if not attention.sizes.items() <= sizes.items():
                raise NasError(
                    f"{folder}: found {name} with sizes {sizes}; expected {attention.sizes}."
                )
    _load_weights(model, folder)
    return model.eval()


def _class(name: str, where: str) -> Any:
    """Return transformers' model class of this name; raise NasError if there is none."""
    try:
        import transformers
    except ImportError as error:
        raise NasError(f"{where}: needs transformers, which is not installed.") from error
    kind = getattr(transformers, name, None) if name.isidentifier() else None
    is_model = isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)
    if not is_model or getattr(kind, "config_class", None) is None:
        raise NasError(
            f"{where}: {name!r} is no model of transformers; expected one of its classes."
        )
    return kind


def _initialised(folder: Path, record: _Record) -> nn.Module:
    kind = _class(record.model, str(folder / RECORD))
    try:
        from transformers import GenerationConfig

        document = read_document(folder / "config.json")
        if '"use_pretrained_backbone"' in json.dumps(document):
            raise NasError(f"{folder}: its config asks for a backbone, which would be downloaded.")
        config = kind.config_class.from_dict(document)
        # An implementation from the file could name code to download.
        config._attn_implementation = record.attn_implementation
        model: nn.Module = kind(config)
        if (folder / "generation_config.json").is_file():
            settings: Any = GenerationConfig.from_pretrained(folder, local_files_only=True)
            model.generation_config = settings
    except NasError:
        raise
    except Exception as error:
        raise NasError(
            f"{folder}: its config makes no {record.model} ({type(error).__name__}); expected the "
            "files that nas.save_swapped wrote."
        ) from error
    return model


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers, also buffers that the state_dict omits."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def _load_weights(model: nn.Module, folder: Path) -> None:
    path, expected = folder / WEIGHTS, _tensors(model)
    try:
        loaded: dict[str, Tensor] = load_file(path)
    except Exception as error:
        raise NasError(
            f"{path}: cannot be read as safetensors ({type(error).__name__})."
        ) from error
    if other := sorted(loaded.keys() ^ expected.keys()):
        raise NasError(
            f"{path}: {', '.join(other[:3])} in the file or in the model alone; expected the "
            "weights of this model."
        )
    for name, tensor in expected.items():
        new = loaded[name]
        are_floats = new.is_floating_point() and tensor.is_floating_point()
        if new.shape != tensor.shape or not (are_floats or new.dtype == tensor.dtype):
            raise NasError(
                f"{path}: {name} is {new.dtype} of shape {tuple(new.shape)}; expected "
                f"{tensor.dtype} of {tuple(tensor.shape)}."
            )
        tensor.data = new
