"""The benchmark ``exports`` continues if a file terminates the process that runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.exports import _compare
from nas.exporting import EXPORTS, ExportRequest, Provenance, write_export
from nas.exporting.checking import TOLERANCE
from nas.genome.mechanisms import MECHANISMS


@pytest.mark.slow
def test_file_that_terminates_the_process_is_identified(tmp_path: Path) -> None:
    exporter, request = (
        EXPORTS.get("py"),
        ExportRequest(MECHANISMS["mha"].genome, 16, 4, Provenance("a test")),
    )
    assert exporter.expected is not None
    expected, text = exporter.expected(request), str(exporter.content(request))
    write_export(text, tmp_path / "right.py")
    write_export(f"{text}\nimport os\nos._exit(3)\n", tmp_path / "failed.py")
    files = [tmp_path / "right.py", tmp_path / "failed.py"]
    right, failed = _compare([(path, "py", expected) for path in files])
    assert isinstance(right, float)
    assert right <= TOLERANCE
    assert str(failed).startswith("CRASH the process that checks exports failed")
