"""Shapes in annotations are checked at every call; tests run on one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jaxtyping import install_import_hook

install_import_hook("linear_zoo.primitives", "beartype.beartype")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NAS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
