"""A thousand exports go on where one file ends the process that runs it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.exports import _compared
from nas.exporting import EXPORTS, ExportRequest, Provenance, write_export
from nas.exporting.checking import TOLERANCE
from nas.genome.mechanisms import MECHANISMS


def test_a_file_that_ends_the_process_is_found_among_others(tmp_path: Path) -> None:
    written, subject = (
        EXPORTS.get("py"),
        ExportRequest(MECHANISMS["mha"].genome, 16, 4, Provenance("a test")),
    )
    assert written.expected is not None
    recording, text = written.expected(subject), str(written.content(subject))
    write_export(text, tmp_path / "right.py")
    write_export(f"{text}\nimport os\nos._exit(3)\n", tmp_path / "ends.py")
    files = [tmp_path / "right.py", tmp_path / "ends.py"]
    right, ends = _compared([(path, "py", recording) for path in files])
    assert isinstance(right, float)
    assert right <= TOLERANCE
    assert str(ends).startswith("CRASH the process that checks exports failed")
