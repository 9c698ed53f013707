"""What a training asks of its machine, and how it leaves it."""

from __future__ import annotations

import pytest
import torch

from nas.errors import DeviceError
from nas.training.hardware import check_device, hardware_name, own_state, resolve_precision

CPU = torch.device("cpu")


def test_check_device_refuses_what_it_does_not_know():
    assert check_device("cpu").type == "cpu"
    for name in ("tpu", "mps", "", "cuda:banana"):
        with pytest.raises(DeviceError, match="expected cpu, cuda"):
            check_device(name)


def test_resolve_precision_obeys_what_was_asked():
    assert resolve_precision("float32", CPU) == "float32"
    assert resolve_precision("bfloat16", CPU) == "bfloat16"
    assert resolve_precision("auto", CPU) in ("float32", "bfloat16")
    assert "cores" in hardware_name(CPU)


def seen():
    return (
        torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_default_device(),
        torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(),
    )  # fmt: skip


def test_own_state_undoes_what_a_candidate_leaves_behind():
    def unruly():
        assert torch.get_num_threads() == 1
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(2)
        raise ZeroDivisionError

    before = seen()
    with pytest.raises(ZeroDivisionError), own_state():
        unruly()
    assert seen() == before
