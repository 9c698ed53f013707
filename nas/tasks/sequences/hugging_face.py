"""Read texts from the Hugging Face Hub or from a folder with the package ``datasets``.

A data spec has the form ``hf:OWNER/NAME[/CONFIG][:SPLIT]``, with the names that the Hub's pages
show, or the form ``hf:PATH[:SPLIT]``. SPLIT is the split of the data set that is used as training
part, by default ``train``. It may also combine or cut splits, such as ``train+extra`` and
``train[:10%]`` (https://huggingface.co/docs/datasets/loading).
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nas.common import install_command
from nas.common.errors import DataError

if TYPE_CHECKING:
    import datasets

TESTS: Final = ("test", "validation")
COLUMNS: Final = {"text": ("string", "large_string"), "label": ("ClassLabel",)}
"""Names of the columns of texts and classes, and the types of an only column with another name."""


def read_text(spec: str, *, is_test: bool) -> bytes:
    """Return all texts of a data set's training or test part, each followed by a line break.

    Raises:
        DataError: the texts cannot be loaded, or it is not clear which column contains them.
    """
    part = _part(spec, is_test=is_test)
    texts = (text or "" for text in part[_column(spec, part, "text")][:])
    return "".join(text if text.endswith("\n") else f"{text}\n" for text in texts).encode()


def read_classes(spec: str, *, is_test: bool) -> tuple[tuple[str, ...], list[tuple[str, int]]]:
    """Return the class names of a data set, and the texts of one part with their class numbers.

    Raises:
        DataError: the texts cannot be loaded; it is not clear which columns contain texts and
            classes; a text has no class; or there are fewer than two texts or classes.
    """
    part = _part(spec, is_test=is_test)
    column = _column(spec, part, "label")
    texts, labels = part[_column(spec, part, "text")][:], part[column][:]
    names = getattr(part.features[column], "names", None)
    values = range(len(names)) if names else sorted({*labels} - {None})
    numbers = {value: number for number, value in enumerate(values)}
    if missing := sum(label not in numbers for label in labels):
        where = "test part" if is_test else "training part"
        raise DataError(f"{spec}: {missing} texts of its {where} are of no class; expected none.")
    if len(values) < 2 or len(texts) < 2:
        sizes = f"{len(texts)} texts of {len(values)} classes"
        raise DataError(f"{spec}: found {sizes}; expected at least two of both.")
    classes = tuple(map(str, names or values))
    pairs = zip(texts, labels, strict=True)
    return classes, [(text or "", numbers[label]) for text, label in pairs]


def _part(spec: str, *, is_test: bool) -> datasets.Dataset:
    """Return the training part, or the first split in `TESTS` that shares no rows with it."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise DataError(
            f"{spec}: the package datasets is not installed; run {install_command('hf')}."
        ) from None
    source, _, split = spec.partition(":")[2].partition(":")
    try:
        parts = _parts(source)
        sizes = {name: len(part) for name, part in parts.items()}
        chosen = datasets.ReadInstruction.from_spec(split or "train").to_absolute(sizes)
    except Exception as error:  # datasets lets errors of pyarrow, pandas and httpx pass
        is_outer = isinstance(error, datasets.exceptions.DatasetGenerationError)
        reason = textwrap.shorten(str(error.__cause__ if is_outer else error), 300).rstrip(".")
        raise DataError(
            f"{spec}: cannot be loaded ({reason}); expected hf:OWNER/NAME[/CONFIG][:SPLIT] of the "
            "Hub, or hf:./PATH[:SPLIT], a folder of Parquet, JSON or CSV files or one that "
            "save_to_disk wrote."
        ) from None
    if not is_test:
        pieces = [parts[c.splitname].select(range(c.from_, c.to)) for c in chosen]
        return datasets.concatenate_datasets(pieces)
    trained = {c.splitname for c in chosen}
    test = next((name for name in TESTS if name in parts and name not in trained), None)
    if test is None:
        raise DataError(
            f"{spec}: has no test set; found {', '.join(parts)}; expected {' or '.join(TESTS)} "
            "beside what is trained on."
        )
    return parts[test]


def _parts(source: str) -> dict[str, datasets.Dataset]:
    from datasets import Dataset, load_dataset, load_from_disk

    if not source.startswith(("/", "~")):
        name, config = "/".join(source.split("/")[:2]), "/".join(source.split("/")[2:])
        # The prefix prevents datasets from reading a local folder of this name.
        return dict(load_dataset(f"hf://datasets/{name}", config or None))
    root = Path(source).expanduser()
    if not any((root / mark).is_file() for mark in ("state.json", "dataset_dict.json")):
        return dict(load_dataset(str(root)))
    saved = load_from_disk(str(root))
    return {str(saved.split or "train"): saved} if isinstance(saved, Dataset) else dict(saved)


def _column(spec: str, part: datasets.Dataset, name: str) -> str:
    """Return the column ``name``, "text" or "label", or else the only column whose type fits."""
    kinds: dict[str, str] = {
        column: kind.dtype if type(kind).__name__ == "Value" else type(kind).__name__
        for column, kind in part.features.items()
    }
    if name in kinds:
        return name
    fits = [c for c, kind in kinds.items() if kind in COLUMNS[name] and c not in COLUMNS]
    if len(fits) == 1:
        return fits[0]
    columns = ", ".join(f"{column} ({kind})" for column, kind in kinds.items())
    only = " or ".join(COLUMNS[name])
    raise DataError(f"{spec}: found the columns {columns}; expected {name}, or one of type {only}.")
