"""The comparison with naive code sees equal and different sums, on small code of our own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from linear_zoo.fla import CASES, differences

CODE = """
import torch

def naive_recurrent_gla(q, k, v, gk):
    q, k, v, gk = (x.float() for x in (q, k, v, gk))
    h = torch.zeros(*k.shape[::2], k.shape[3], v.shape[3], dtype=torch.float32)
    out = []
    for i in range(q.shape[1]):
        h = h * gk[:, i].exp()[..., None] + k[:, i, :, :, None] * v[:, i, :, None]
        out.append((q[:, i, :, :, None] * h).sum(-2) * SCALE)
    return torch.stack(out, dim=1), h
"""


@pytest.mark.parametrize(("scale", "is_same"), [("k.shape[3] ** -0.5", True), ("0.5", False)])
def test_differences_are_those_of_the_sums(tmp_path: Path, scale: str, is_same: bool) -> None:
    code = tmp_path / "fla/ops/gla/naive.py"
    code.parent.mkdir(parents=True)
    code.write_text(CODE.replace("SCALE", scale))
    case = next(case for case in CASES if case.mechanism == "gla")
    for dtype, most in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        found = differences(case, tmp_path, 7, dtype)
        assert (max(found) < most) is is_same
        assert (min(found) > 0.1) is not is_same
    other = replace(case, mechanism="hgrn2")
    assert (max(differences(other, tmp_path, 7, torch.float64)) < 1e-10) is is_same
