"""A candidate changes neither torch's global state nor standard output."""

from __future__ import annotations

import sys

import torch

from nas.training.isolation import (
    MAX_PRINTED,
    SETTINGS,
    bounded_output,
    isolated_torch_state,
)


def test_isolated_torch_state_restores_and_names_changed_settings():
    def settings():
        return [get() for get, _ in SETTINGS.values()]

    before = settings()
    with isolated_torch_state() as changed:
        assert torch.get_num_threads() == 1
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        torch.set_num_threads(2)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.set_float32_matmul_precision("medium")
        torch.backends.cuda.enable_cudnn_sdp(True)
    assert settings() == before
    assert changed == list(SETTINGS)


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
