"""`nas doctor`: what is broken is said, secrets are not."""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import pytest

from nas.report import doctor
from nas.report.doctor import Finding, doctor_answer, examine_machine, show_doctor

from .conftest import Printed


def found(findings: list[Finding], about: str) -> Finding:
    return next(one for one in findings if one.about == about)


def test_a_sound_machine_works_and_no_variable_is_disclosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in doctor.VARIABLES:
        monkeypatch.setenv(name, f"secret-{tmp_path}")
    findings = examine_machine(tmp_path / "runs" / "not-there")
    assert doctor_answer(findings)["works"]
    assert doctor_answer(findings)["versions"]["python"]
    assert found(findings, "runs").state == "ok"
    printed = Printed()
    show_doctor(printed.console, findings)
    assert "secret" not in printed.text + str(doctor_answer(findings))
    assert "RAY_AUTH_TOKEN" in printed.text
    assert len(printed.lines) < 24
    narrow = Printed(60)
    show_doctor(narrow.console, findings)
    assert max(map(len, narrow.lines)) <= 60


def test_broken_findings_have_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_torch(name: str, *rest: Any) -> Any:
        if name == "torch":
            raise OSError("libcudart.so: cannot open")
        return real(name, *rest)

    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", no_torch)
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: ["torch", "no-such-module"])
    (tmp_path / "file").touch()
    findings = examine_machine(tmp_path / "file")
    assert not doctor_answer(findings)["works"]
    broken = {one.about: one for one in findings if one.state == "broken"}
    assert set(broken) == {"packages", "torch", "runs"}
    assert broken["packages"].found == "no no-such-module"
    assert "libcudart" in broken["torch"].found
    assert all(one.help for one in broken.values())


def test_gpus_of_the_driver_are_shown_with_what_hinders_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        "echo '580.95.05, 80000 MiB, 81559 MiB, Default, Disabled'\n"
        "echo '580.95.05, 0 MiB, 81559 MiB, Exclusive_Process, Disabled'\n"
        "echo '580.95.05, 80000 MiB, 81559 MiB, Default, Enabled'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    sound, exclusive, divided = (found(examine_machine(), f"GPU {n}") for n in range(3))
    assert sound.state == "ok"
    assert sound.found == (
        "driver 580.95.05, 80000 MiB free of 81559 MiB, compute mode Default, MIG Disabled"
    )
    assert (exclusive.state, "-c DEFAULT" in exclusive.help) == ("note", True)
    assert (divided.state, "CUDA_VISIBLE_DEVICES" in divided.help) == ("note", True)
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    assert found(examine_machine(), "GPU 1").state == "ok"  # MPS is one process to the driver
    program.write_text("#!/bin/sh\necho NVIDIA-SMI has failed; exit 9\n")
    failed = found(examine_machine(), "driver")
    assert (failed.state, failed.found) == ("note", "nvidia-smi fails: NVIDIA-SMI has failed")
