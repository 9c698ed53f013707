"""Read trained weights of attention layers from a run's folder, and save them beside an export."""

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
from nas.store.weights import check_weights_file

if TYPE_CHECKING:
    from nas.exporting.request import ExportRequest

METADATA: Final = "__metadata__"  # the key of the header that is not a tensor


def read_weights(path: Path) -> tuple[dict[int, dict[str, Tensor]], dict[str, str]]:
    """Return the state dict of each layer's attention by layer index, and the file's metadata.

    Args:
        path: a file ``weights/<key>.safetensors`` of a run, with tensors "layers.<i>.<name>".

    Raises:
        ExportError: the file is missing, damaged, too large (see ``check_weights_file``), or does
            not fit into the memory.
    """
    layers: dict[int, dict[str, Tensor]] = {}
    try:
        check_weights_file(path)
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 - not a mapping
                if match := re.fullmatch(r"layers\.(\d+)\.(.+)", key):
                    layers.setdefault(int(match[1]), {})[match[2]] = file.get_tensor(key)
            metadata = dict(file.metadata() or {})
    except (OSError, MemoryError, RuntimeError, SafetensorError) as error:  # Runtime: no mmap
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ExportError(
            f"{path}: no weights can be read ({reason}); a run saves the weights of mechanisms "
            "that are likely in its front."
        ) from None
    return layers, metadata


def save_weights(request: ExportRequest, metadata: Mapping[str, str], path: Path) -> None:
    """Write the attention weights of ``request.written_layer`` to a safetensors file.

    Args:
        metadata: metadata for the file, to which genome, digest and layer are added.

    Raises:
        ExportError: the path cannot be written.
    """
    metadata = dict(metadata) | {
        "genome": request.genome.to_json(),
        "digest": digest(request.genome),
        "layer": str(request.written_layer),
    }
    content = save(dict(request.state(request.written_layer)), metadata=metadata)
    write_export(_with_sorted_metadata(content), path)


def _with_sorted_metadata(content: bytes) -> bytes:
    """Return a safetensors file's content with sorted metadata, for reproducible files."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header[METADATA] = dict(sorted(header[METADATA].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + content[end:]
