"""Execute the file of a user's own torch module, and adapt the module to the models of tasks.

The file is executed with all rights of this process; there is no sandbox. The class is constructed
with (dim, heads) and maps ``x``, shape (b, n, dim), to the same shape and dtype by one of

    forward(x)                  without masks; under a causal task it must hide later tokens itself
    forward(x, mask=None)       mask is True where attention is allowed, and broadcastable to
                                (b, h, n, n)
    forward(x, attn_mask=None, key_padding_mask=None, is_causal=False)
                                as a module of ``nas.build_attention`` or an exported file
"""

from __future__ import annotations

import inspect
import linecache
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from torch import Tensor, nn

from nas.common.config import near
from nas.common.errors import ConfigError
from nas.common.text import first_line
from nas.compiler.masks import visible_keys
from nas.costs.measured import measured_costs
from nas.genome import ModelSizes
from nas.tasks.layers import seeded
from nas.training.user_module import UserModule

MASKS: Final = frozenset({"attn_mask", "key_padding_mask", "is_causal"})


class UserAttention(nn.Module):
    """A user's module behind the interface of ``nas.build_attention``.

    Args:
        user_class: the class that ``load_class`` returned for ``module``.

    Raises:
        ConfigError: the signature of the constructor or of ``forward`` is not one of those that
            this file lists.
    """

    def __init__(
        self, module: UserModule, user_class: type[nn.Module], dim: int, heads: int
    ) -> None:
        super().__init__()
        self.source, self.masks = str(module), _masks_of(module, user_class)
        names = _constructor_names(module, user_class)
        values = (dim, heads)
        keywords = dict(zip(names, values, strict=True)) if names else {}
        self.attention = user_class(**keywords) if names else user_class(*values)

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Call the user's module with the masks that it takes."""
        masks: dict[str, Any] = {}
        if self.masks == MASKS:
            masks = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
            masks["is_causal"] = is_causal
        elif self.masks:
            masks = {"mask": visible_keys(x, attn_mask, key_padding_mask, is_causal)}
        elif attn_mask is not None or key_padding_mask is not None:
            raise ConfigError(
                f"{self.source}: found forward(x) for sequences with padding or a mask; expected "
                "forward(x, mask=None)."
            )
        result: Tensor = self.attention(x, **masks)
        return result


def load_class(module: UserModule) -> type[nn.Module]:
    """Execute the text of a user's file, and return the class.

    Every call executes the text anew, so that no state of the file passes from a training to the
    next.

    Raises:
        ConfigError: executing the file failed, or it has no such torch module.
    """
    scope = ModuleType(f"nas_user_module_{module.digest}")
    scope.__file__ = module.path
    sys.modules[scope.__name__] = scope  # dataclasses and pickle look up the module of a class
    lines = module.text.splitlines(keepends=True)
    linecache.cache[module.path] = (len(module.text), None, lines, module.path)
    with failures_of(module, "executing the file", "a file that python can import"):
        exec(compile(module.text, module.path, "exec", dont_inherit=True), vars(scope))  # noqa: S102 - the user names this file to have it executed
    user_class = vars(scope).get(module.class_name)
    if isinstance(user_class, type) and issubclass(user_class, nn.Module):
        return user_class
    classes = [
        name
        for name, value in vars(scope).items()
        if isinstance(value, type) and issubclass(value, nn.Module) and value is not nn.Module
    ]
    if user_class is None:
        hint, known = near(module.class_name, classes), ", ".join(classes) or "no torch modules"
        found = f"found no {module.class_name!r}{hint} among {known}"
    else:
        found = f"{module.class_name} is {_kind_of(user_class)}"
    raise ConfigError(f"{module}: {found}; expected a class that inherits torch.nn.Module.")


def build_attention(module: UserModule, dim: int, heads: int) -> UserAttention:
    """Execute a user's file and return a new module, with weights of torch's global generator."""
    return UserAttention(module, load_class(module), dim, heads)


@lru_cache(maxsize=64)
def module_costs(module: UserModule, sizes: ModelSizes, is_causal: bool) -> dict[str, float]:
    """Return ``macs`` and ``params`` of all attention layers of a model, see ``measured_costs``.

    What decoding with a cache would cost is not known.
    """
    with seeded(0):
        block = build_attention(module, sizes.dim, sizes.heads).eval()
        costs = measured_costs(block, sizes, is_causal=is_causal)
    return {name: sizes.depth * cost for name, cost in costs.items()}


@contextmanager
def failures_of(module: UserModule, action: str, expected: str) -> Iterator[None]:
    """Raise ConfigError with one sentence if the user's code in this block raises an exception."""
    try:
        yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        calls = traceback.extract_tb(error.__traceback__)
        numbers = [call.lineno for call in calls if call.filename == module.path]
        where = f" in line {numbers[-1]}" if numbers else ""
        raise ConfigError(
            f"{module}: {action} raised {type(error).__name__}{where}: {first_line(error)}; "
            f"expected {expected}."
        ) from error


def _constructor_names(module: UserModule, user_class: type[nn.Module]) -> tuple[str, ...]:
    """Return the names under which a constructor takes width and heads; none if by position."""
    signature = inspect.signature(user_class)
    for names in (("dim", "heads"), ()):
        try:
            signature.bind(*(() if names else (0, 0)), **dict.fromkeys(names, 0))
        except TypeError:
            continue
        return names
    raise ConfigError(
        f"{module}: found the constructor {module.class_name}{signature}; expected "
        f"{module.class_name}(dim, heads), and defaults for all further arguments."
    )


def _masks_of(module: UserModule, user_class: type[nn.Module]) -> frozenset[str]:
    """Return the names of the masks that a class's ``forward`` takes."""
    signature = inspect.signature(user_class.forward)
    _, *parameters = (
        p for p in signature.parameters.values() if p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}
    )
    names = {parameter.name for parameter in parameters}
    masks = MASKS if names >= MASKS else names & {"mask"}
    required = {p.name for p in parameters[1:] if p.default is p.empty} - masks
    if not parameters or required or (names & MASKS and not masks):
        raise ConfigError(
            f"{module}: found forward({', '.join(map(str, parameters))}); expected forward(x), "
            "forward(x, mask=None) or forward(x, attn_mask=None, key_padding_mask=None, "
            "is_causal=False)."
        )
    return frozenset(masks)


def _kind_of(value: object) -> str:
    return "a class of another kind" if isinstance(value, type) else f"a {type(value).__name__}"
