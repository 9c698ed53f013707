"""Reading the genome from the docstring of an exported Python file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nas.common.config import parse_json
from nas.common.errors import ConfigError, ExportError
from nas.common.reading import read_regular
from nas.genome.genome import Genome

_LARGEST_FILE: Final = 2**22


def genome_of_export(path: Path) -> Genome:
    """Return the genome in an exported file's docstring, without running the file.

    Raises:
        ExportError: the file cannot be read or was not written by an export.
        GenomeError: the JSON text in the docstring is not a genome.
    """
    try:
        text = read_regular(path, _LARGEST_FILE).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise ExportError(f"{path}: cannot be read ({reason}).") from None
    docstring = text[3:].partition('"""')[0] if text.startswith('"""') else ""
    about, _, genome = docstring.partition("\nGenome:\n")
    try:
        data = parse_json(genome, str(path))
    except ConfigError:
        data = None
    if not about or not isinstance(data, dict):
        raise ExportError(
            f"{path}: holds no genome; expected a file that `nas export` has written."
        )
    return Genome.from_dict(data, str(path))
