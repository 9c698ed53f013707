"""A candidate changes neither torch's global state nor standard output."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from nas.training.isolation import (
    MAX_PRINTED,
    SETTINGS,
    bounded_output,
    isolated_torch_state,
    settings,
)


def test_isolated_torch_state_restores_and_names_changed_settings():
    def unruly():
        assert torch.get_num_threads() == 1
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.autograd.set_detect_anomaly(True)
        torch.set_float32_matmul_precision("medium")
        for device in ("cpu", "cuda"):
            torch.set_autocast_enabled(device, True)
        torch.inference_mode().__enter__()
        torch.backends.mkldnn.set_flags(False)
        torch.set_num_threads(2)
        torch.backends.cuda.enable_cudnn_sdp(True)
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


def test_isolated_torch_state_restores_and_names_replaced_functions():
    before = functional.softmax, nn.Linear.forward, Tensor.softmax
    with isolated_torch_state() as changed:
        functional.softmax = Tensor.softmax = nn.Linear.forward = lambda *_: None
    assert (functional.softmax, nn.Linear.forward, Tensor.softmax) == before
    assert changed == ["torch.nn.functional.softmax", "Tensor.softmax", "Linear.forward"]


def test_bounded_output_shows_the_beginning_on_standard_error(capsys):
    with bounded_output():
        print("\x1b[2Jbegins")
        for _ in range(1000):
            print("x" * 1000)
            print("y", file=sys.stderr)
    print("the answer")
    out, err = capsys.readouterr()
    assert out == "the answer\n"
    assert err.startswith("\\u001b[2Jbegins\nxxx")
    assert MAX_PRINTED < len(err) < MAX_PRINTED + 100
    assert err.count("left out") == 1
