"""What a training asks of its machine, and how it leaves it."""

from __future__ import annotations

import pytest
import torch

from nas.common.errors import DeviceError
from nas.training.hardware import (
    SWITCHES,
    check_device,
    hardware_name,
    own_state,
    resolve_precision,
)

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
    return [switch.get() for switch in SWITCHES]


def test_own_state_undoes_and_names_what_a_candidate_leaves_behind():
    def unruly():
        assert torch.get_num_threads() == 1
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.autograd.set_detect_anomaly(True)
        torch.set_float32_matmul_precision("medium")
        for device in ("cpu", "cuda"):
            torch.set_autocast_enabled(device, True)
        torch.inference_mode().__enter__()
        torch.set_num_threads(2)
        raise ZeroDivisionError

    before = seen()
    with pytest.raises(ZeroDivisionError), own_state() as changed:
        unruly()
    assert seen() == before
    assert not torch.is_inference_mode_enabled()
    assert changed == [switch.name for switch in SWITCHES]
    with own_state() as changed:
        pass
    assert changed == []
