"""Trained weights of attention layers: read from a run's folder, and saved beside an export."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from nas.common.errors import ExportError
from nas.exporting.formats import write_export
from nas.genome.canonical import digest

if TYPE_CHECKING:
    from nas.exporting.request import ExportRequest

METADATA: Final = "__metadata__"  # the key of the header that is not a tensor
MAX_BYTES: Final = 2**30


def read_weights(path: Path) -> tuple[dict[int, dict[str, Tensor]], dict[str, str]]:
    """The tensors of each layer by their names in the block, and the file's metadata.

    Args:
        path: a run's ``weights/<key>.safetensors``, with keys "layers.<i>.<name>".

    Raises:
        ExportError: the file is missing, damaged or larger than ``MAX_BYTES``.
    """
    layers: dict[int, dict[str, Tensor]] = {}
    try:
        if not path.is_file():  # a pipe would block
            raise FileNotFoundError
        if (size := path.stat().st_size) > MAX_BYTES:
            raise ExportError(f"{path}: found {size:,} bytes; expected at most {MAX_BYTES:,}.")
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 - not a mapping
                if match := re.fullmatch(r"layers\.(\d{1,9})\.(.+)", key):
                    layers.setdefault(int(match[1]), {})[match[2]] = file.get_tensor(key)
            metadata = dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise ExportError(
            f"{path}: no weights can be read ({type(error).__name__}); a run saves the weights of "
            "mechanisms that are likely in its front."
        ) from None
    return layers, metadata


def save_weights(request: ExportRequest, metadata: Mapping[str, str], path: Path) -> None:
    """Write the weights of the request's layer under the names of the exported class.

    Args:
        metadata: metadata of the run's file; genome, digest and layer are added.

    Raises:
        ExportError: the path cannot be written.
    """
    metadata = dict(metadata) | {
        "genome": request.genome.to_json(),
        "digest": digest(request.genome),
        "layer": str(request.layer),
    }
    content = save(dict(request.state(request.layer)), metadata=metadata)
    write_export(_with_sorted_metadata(content), path)


def _with_sorted_metadata(content: bytes) -> bytes:
    """A safetensors file with its metadata sorted; the library writes it in random order."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header[METADATA] = dict(sorted(header[METADATA].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + content[end:]
