"""Copy classes and functions of ours into a text that imports nothing but torch.

What is copied is the source that trains, found by following the names it uses; only decorators
(the registry's) and jaxtyping's shapes (``Float[Tensor, "b h n w"]`` becomes ``Tensor``) go.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHAPED: Final = re.compile(r'\b(?:Float|Bool|Int|Shaped)\[Tensor, "[^"]*"\]')
# Names that the exported file imports from torch itself.
PROVIDED: Final = frozenset({"torch", "Tensor", "nn", "F"})


def inlined(roots: Iterable[Any]) -> list[str]:
    """The sources of classes and functions and of all they use, each before its users.

    Raises:
        AssertionError: one of them uses something that is neither torch's nor a class or
            function of ours, or two have one name; a primitive must not.
    """
    known: dict[str, Any] = {}
    order: dict[str, str] = {}
    for root in roots:
        _visit(root, known, order)
    return list(order.values())


def _visit(item: Any, known: dict[str, Any], order: dict[str, str]) -> None:
    name = item.__name__
    if name in known:
        other = known[name]
        assert other is item, f"{other.__module__} and {item.__module__} both have a {name}"
        return
    known[name] = item
    source = _source(item)
    scope = vars(sys.modules[item.__module__])
    for used in _globals(source):
        if used in PROVIDED or used not in scope:
            continue
        found = scope[used]
        roots = {"nas", item.__module__.split(".")[0]}
        is_ours = getattr(found, "__module__", "").split(".")[0] in roots
        can_be_copied = is_ours and (inspect.isclass(found) or inspect.isfunction(found))
        assert can_be_copied, f"{item.__module__}.{name} uses {used}, which cannot be inlined"
        _visit(found, known, order)
    order[name] = source


def _source(item: Any) -> str:
    """The source without decorators and shapes."""
    text = textwrap.dedent(inspect.getsource(item))
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.ClassDef | ast.FunctionDef)
    lines = text.splitlines()[tree.lineno - 1 :]
    return _SHAPED.sub("Tensor", "\n".join(lines)).rstrip() + "\n"


def _globals(source: str) -> list[str]:
    """Names that a source reads and nothing in it binds first; annotations included."""
    tree = ast.parse(source)
    read = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return sorted(set(read))
