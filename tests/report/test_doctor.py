"""`nas doctor`: what is broken is said, secrets are not."""

from __future__ import annotations

import builtins
import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from nas.report import doctor
from nas.report.doctor import Finding, doctor_answer, examine_machine, show_doctor

from .conftest import Printed

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())


def found(findings: list[Finding], about: str) -> Finding:
    return next(one for one in findings if one.about == about)


def test_modules_are_those_of_the_project() -> None:
    """By the names that they are imported by."""
    packages = metadata.packages_distributions()

    def names(modules: tuple[str, ...]) -> list[str]:
        return sorted({name.lower() for module in modules for name in packages[module]})

    def listed(lines: list[str]) -> list[str]:
        return sorted(re.split(r"[^\w-]", line)[0] for line in lines)

    assert names(doctor.NEEDED) == listed(PROJECT["project"]["dependencies"])
    for name, own in doctor.EXTRAS.items():
        assert names(own) == listed(PROJECT["project"]["optional-dependencies"][name])


def test_a_sound_machine_works_and_no_value_of_a_variable_is_told(
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


def test_what_is_broken_is_said_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_torch(name: str, *rest: Any) -> Any:
        if name == "torch":
            raise OSError("libcudart.so: cannot open")
        return real(name, *rest)

    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", no_torch)
    monkeypatch.setattr(doctor, "NEEDED", ("torch", "no_such_module"))
    (tmp_path / "file").touch()
    findings = examine_machine(tmp_path / "file")
    assert not doctor_answer(findings)["works"]
    broken = {one.about: one for one in findings if one.state == "broken"}
    assert set(broken) == {"packages", "torch", "runs"}
    assert broken["packages"].found == "no no_such_module"
    assert "libcudart" in broken["torch"].found
    assert all(one.help for one in broken.values())


def test_a_network_drive_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_file_system", lambda folder: "nfs4")
    noted = found(examine_machine(tmp_path), "runs")
    assert (noted.state, "nfs4" in noted.found) == ("note", True)
