"""Device, precision, and the isolation of torch's global state."""

from __future__ import annotations

import pytest
import torch

from nas.common.errors import DeviceError
from nas.training.hardware import (
    SETTINGS,
    check_device,
    hardware_name,
    isolated_torch_state,
    resolve_precision,
    settings,
)

CPU = torch.device("cpu")


def test_check_device_refuses_unknown_names():
    assert check_device("cpu").type == "cpu"
    for name in ("tpu", "mps", "", "cuda:banana"):
        with pytest.raises(DeviceError, match="expected cpu, cuda"):
            check_device(name)


def test_resolve_precision():
    assert resolve_precision("float32", CPU) == "float32"
    assert resolve_precision("bfloat16", CPU) == "bfloat16"
    assert resolve_precision("auto", CPU) in ("float32", "bfloat16")
    assert "cores" in hardware_name(CPU)


def test_isolated_torch_state_restores_and_names_changed_settings():
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

    before = settings()
    with pytest.raises(ZeroDivisionError), isolated_torch_state() as changed:
        unruly()
    assert settings() == before
    assert not torch.is_inference_mode_enabled()
    assert changed == list(SETTINGS)
    with isolated_torch_state() as changed:
        pass
    assert changed == []
