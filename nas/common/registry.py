"""A registry of named members, which are built in or come from plug-ins.

    TASKS: Registry[type[Task]] = Registry("task family", "nas.tasks", error=TaskError)

    @TASKS.register("images")
    class ImageTask(Task): ...

Plug-ins are entry points of the registry's group, imported at the first look-up, and files, by
``load_plugin``. If an entry point fails, its members are removed, and a ``NasWarning`` and errors
about unknown names mention it.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any, Final, TypeVar

from nas.common.arguments import public
from nas.common.config import near
from nas.common.errors import ConfigError, NasWarning

M = TypeVar("M")
GROUPS: Final = "nas."  # prefix of all entry point groups
_MOST_NAMES: Final = 30  # in an error
# Files of ``load_plugin`` with their digests at import, by the name of their module.
_FILES: Final[dict[str, tuple[Path, str]]] = {}
_REGISTRIES: Final[list[Registry[Any]]] = []


@dataclass(frozen=True)
class Plugin:
    """An imported entry point (``group``, ``name``, ``value``), or a file.

    ``members`` are the names that it registered, ``fault`` is the exception of its import, or "".
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
        """A sentence that says why the plug-in is broken."""
        return (
            f"The plug-in {self.name!r} of {self.package} {self.version}, which offers names of "
            f"{self.group} here, is broken: {self.fault}."
        )


class Registry(Mapping[str, M]):
    """A mapping of names to members (such as classes), in the order of their registration.

    ``modules`` have the built-in members, and are imported at the first look-up. ``error`` is the
    class of the errors about unknown and duplicate names, in which a member is called ``noun``.
    ``check`` raises an error for an invalid member of a plug-in.
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
        _REGISTRIES.append(self)

    def register(self, name: str, origin: str = "") -> Callable[[M], M]:
        """Return a decorator that registers an object; it raises ``error`` if the name is taken.

        ``origin`` is the module that defines the member, by default the calling module.
        """
        origin = origin or str(sys._getframe(1).f_globals["__name__"])

        def add(member: M) -> M:
            if origin in _FILES:  # a name that is taken is an error of the file
                self._load()
                self._check(member)
            if name in self._members:
                raise self._error(
                    f"{self._origins.get(name)} and {origin} both have a {self.noun} {name!r}; "
                    "expected one"
                )
            self._members[name], self._origins[name] = member, origin
            return member

        return add

    def __getitem__(self, name: str) -> M:
        """Return the member of a name; raise ``error`` if the name is unknown."""
        self._load()
        if name in self._members:
            return self._members[name]
        expected = ", ".join(self._members)
        if len(self._members) > _MOST_NAMES:
            expected = f"those that `{self.group.replace('.', ' ')}` lists, or of a plug-in"
        raise self._error(
            f"there is no {self.noun} {name!r}{near(name, self._members)}; "
            f"expected one of {expected}.{self.complaints()}"
        )

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    @property
    def registered(self) -> Mapping[str, M]:
        """The members so far; reading them imports no module."""
        return self._members

    def names(self) -> tuple[str, ...]:
        """Return all names."""
        self._load()
        return tuple(self._members)

    def plugins(self) -> tuple[Plugin, ...]:
        """Return all plug-ins, also broken ones."""
        self._load()
        files = []
        for module, (path, digest) in _FILES.items():
            if members := tuple(n for n, origin in self._origins.items() if origin == module):
                files.append(Plugin(self.group, module, module, path.name, digest, members))
        return (*self._plugins, *files)

    def remove(self, module: str) -> None:
        """Remove the members that a module has registered."""
        for name in [name for name, origin in self._origins.items() if origin == module]:
            self._members.pop(name, None)
            del self._origins[name]

    def complaints(self) -> str:
        """Return sentences about the broken plug-ins, to append to an error."""
        return "".join(f" {plugin.complaint}" for plugin in self.plugins() if plugin.fault)

    def _load(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True  # first, since imported modules may look up members
        for module in self._modules:
            import_module(module)
        self._plugins = [self._import_plugin(point) for point in entry_points(group=self.group)]
        for plugin in self._plugins:
            if plugin.fault:
                warnings.warn(plugin.complaint, NasWarning, stacklevel=3)

    def _import_plugin(self, point: EntryPoint) -> Plugin:
        before = set(self._members)
        fault = _one_line(error) if (error := _raised(point.load)) else ""
        offered = [name for name in self._members if name not in before]
        try:
            for name in offered:
                self._check(self._members[name])
        except Exception as error:
            fault = fault or _one_line(error)
        if fault:
            for name in offered:
                del self._members[name], self._origins[name]
            offered = []
        assert point.dist, "an entry point that is installed has a distribution"
        place = point.group, point.name, point.value, point.dist.name, point.dist.version
        return Plugin(*place, tuple(offered), fault)


@public
def load_plugin(path: str | Path) -> None:
    """Import a Python file that registers primitives, tasks or other members as a module.

    Its folder is appended to ``sys.path``, also in workers. ``nas --plugin FILE.py`` does the same.

    Examples:
        >>> nas.load_plugin("tests/plugins/primitive.py")
        >>> "squared_score" in nas.list_primitives()
        True

    Raises:
        ConfigError: there is no such file, another module has its name, its import fails, or it has
            changed since its import.
    """
    file = Path(path).absolute()
    name = file.stem
    if not file.is_file():
        raise ConfigError(f"{path}: there is no such file.")
    if file.suffix != ".py" or not name.isidentifier() or name == "__main__":
        raise ConfigError(
            f"{path}: expected a Python file whose name is a module's, such as my_scores.py."
        )
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    if name in _FILES and _FILES[name] == (file, digest):
        return
    if name in _FILES:
        raise ConfigError(f"{path}: module {name!r} has changed since its import; restart Python.")
    found = find_spec(name)
    if found is not None and Path(found.origin or "").resolve() != file.resolve():
        raise ConfigError(
            f"{path}: there is another module {name!r}, {found.origin}; expected another name."
        )
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    _FILES[name] = file, digest
    if error := _raised(lambda: import_module(name)):
        del _FILES[name]
        for registry in _REGISTRIES:
            registry.remove(name)
        raise ConfigError(f"{path}: cannot be imported ({_one_line(error)}).") from error


def plugin_files() -> list[str]:
    """Return the files of ``load_plugin``, relative to the current folder if they are in it."""
    here, files = Path.cwd(), [path for path, _ in _FILES.values()]
    return [str(f.relative_to(here) if f.is_relative_to(here) else f) for f in files]


def plugin_folders() -> list[str]:
    """Return the folders of the files of ``load_plugin``."""
    return list(dict.fromkeys(str(path.parent) for path, _ in _FILES.values()))


def plugin_versions() -> dict[str, str]:
    """Return versions of packages with plug-ins and digests of plug-in files; import nothing."""
    groups = entry_points()
    points = (p for group in sorted(groups.groups) for p in groups.select(group=group))
    packages = [p.dist for p in points if p.group.startswith(GROUPS) and p.dist]
    files = {path.name: digest for path, digest in _FILES.values()}
    return {package.name: package.version for package in packages} | files


def _raised(load: Callable[[], object]) -> BaseException | None:
    """Import a plug-in, which prints on standard error, and return the exception that it raised."""
    try:
        with redirect_stdout(sys.stderr):  # standard output is the command's answer, such as JSON
            load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    return None


def _one_line(error: BaseException) -> str:
    return shorten(f"{type(error).__name__}: {error}", 300, placeholder="...").rstrip(".:")
