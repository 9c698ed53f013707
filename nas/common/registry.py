"""A registry: named members, built in or from other packages.

    TASKS: Registry[type[Task]] = Registry("task family", "nas.tasks", error=TaskError)

    @TASKS.register("images")
    class ImageTask(Task): ...

Other packages add members under the registry's entry point group. Plug-ins are imported at the
first look-up. If the import of one fails, its members are removed, a ``NasWarning`` and errors
about unknown names mention it, and all other members work.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeVar

from nas.common.config import near
from nas.common.errors import ConfigError, NasWarning
from nas.common.interrupts import record_interrupts

M = TypeVar("M")
GROUPS: Final = "nas."  # prefix of all entry point groups
_MOST_TEXT: Final = 300


@dataclass(frozen=True)
class Plugin:
    """An imported entry point of another package.

    Attributes:
        group, name, value: as the package declares them.
        package, version: of the package.
        members: the names that it registered.
        fault: why its import failed; empty if it did not.
    """

    group: str
    name: str
    value: str
    package: str
    version: str
    members: tuple[str, ...] = ()
    fault: str = ""

    @property
    def complaint(self) -> str:
        """The warning about a broken plug-in."""
        return (
            f"The plug-in {self.name!r} of {self.package} {self.version}, which offers names of "
            f"{self.group} here, is broken: {self.fault}."
        )


class Registry(Mapping[str, M]):
    """Members by name, in the order in which they were registered.

    Args:
        noun: what a member is called in an error, such as "algorithm".
        group: the entry point group of other packages' members.
        modules: modules with the built-in members; imported at the first look-up.
        error: the error for unknown and for duplicate names.
        check: raises an error for an invalid member of another package.
    """

    def __init__(
        self,
        noun: str,
        group: str,
        *,
        modules: tuple[str, ...] = (),
        error: type[ConfigError] = ConfigError,
        check: Callable[[M], object] = lambda member: None,
    ) -> None:
        self.noun, self.group = noun, group
        self._modules, self._error, self._check = modules, error, check
        self._members: dict[str, M] = {}
        self._origins: dict[str, str] = {}  # the module that registered a name
        self._plugins: list[Plugin] = []
        self._is_loaded = False

    def register(self, name: str) -> Callable[[M], M]:
        """Decorate a member with its name.

        Raises:
            ConfigError, or the registry's own error: the name is taken.
        """
        origin = _running_module()

        def add(member: M) -> M:
            if name in self._members:
                raise self._error(
                    f"{self._origins.get(name)} and {origin} both have a {self.noun} {name!r}; "
                    "expected one"
                )
            self._members[name] = member
            self._origins[name] = origin
            return member

        return add

    def get(self, name: str) -> M:  # type: ignore[override]
        """The member of that name; an unknown name raises, unlike in ``dict.get``.

        Raises:
            ConfigError, or the registry's own error: unknown name; the message suggests the
                nearest name and mentions broken plug-ins.
        """
        self._load()
        if name not in self._members:
            raise self._error(
                f"there is no {self.noun} {name!r}{near(name, self._members)}; "
                f"expected one of {', '.join(self._members)}.{self.complaints()}"
            )
        return self._members[name]

    __getitem__ = get

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    @property
    def registered(self) -> Mapping[str, M]:
        """The members registered so far, without any import."""
        return self._members

    def names(self) -> tuple[str, ...]:
        """The names of all members."""
        self._load()
        return tuple(self._members)

    def plugins(self) -> tuple[Plugin, ...]:
        """Plug-ins of other packages, the broken ones included."""
        self._load()
        return tuple(self._plugins)

    def complaints(self) -> str:
        """The warnings about all broken plug-ins, to append to an error; may be empty."""
        return "".join(f" {plugin.complaint}" for plugin in self.plugins() if plugin.fault)

    def _load(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True  # first, since imported modules may look up members
        try:
            for module in self._modules:
                import_module(module)
            points = tuple(entry_points(group=self.group))
            self._plugins = [self._joined(point, points) for point in points]
        except BaseException:
            self._is_loaded = False
            raise
        for plugin in self._plugins:
            if plugin.fault:
                warnings.warn(plugin.complaint, NasWarning, stacklevel=3)

    def _joined(self, point: EntryPoint, points: tuple[EntryPoint, ...]) -> Plugin:
        """Import a plug-in; if that fails, its members are removed."""
        before = set(self._members)
        fault = _fault(point.load)
        offered = [name for name in self._members if self._offers(point, points, name, before)]
        for name in offered:
            fault = fault or _fault(self._check, self._members[name])
        if fault:
            for name in offered:
                del self._members[name]
            offered = []
        package, version = (point.dist.name, point.dist.version) if point.dist else ("?", "?")
        place = point.group, point.name, point.value
        return Plugin(*place, package, version, tuple(offered), fault)

    def _offers(
        self, point: EntryPoint, points: tuple[EntryPoint, ...], name: str, before: set[str]
    ) -> bool:
        """Whether this plug-in registered a name, and not another plug-in that it imported."""
        within = f"{self._origins.get(name)}."
        owners = [p.module for p in points if within.startswith(f"{p.module}.")]
        return max(owners, key=len) == point.module if owners else name not in before


def plugin_versions() -> dict[str, str]:
    """Versions of the packages with plug-ins, by name, without importing them."""
    groups = entry_points()
    points = (p for group in sorted(groups.groups) for p in groups.select(group=group))
    return {p.dist.name: p.dist.version for p in points if p.group.startswith(GROUPS) and p.dist}


def _running_module() -> str:
    """The name of the module whose body registers a member."""
    frame = sys._getframe(2)
    while frame.f_code.co_name != "<module>" and frame.f_back:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def _fault(call: Callable[..., object], *arguments: Any) -> str:
    """The exception of a call on one line, SystemExit included; empty if it raises none.

    Raises:
        KeyboardInterrupt: the user interrupted the process during the call.
    """
    text = ""
    with record_interrupts() as interrupts:
        try:
            call(*arguments)
        except BaseException as error:
            text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".:")
    if interrupts:  # even if the plug-in caught the exception
        raise KeyboardInterrupt
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
