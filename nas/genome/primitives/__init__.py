"""The primitives: the operations of genomes, by name.

To add a primitive, use the ``primitive`` decorator in a file of this folder, or in a module that a
package declares under the entry point group ``nas.primitives``.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from dataclasses import replace

from nas.common.config import near
from nas.common.errors import GenomeError
from nas.genome import Genome, Node, ParamValue
from nas.genome.primitives.base import REGISTRY, Kind, Primitive, Role, Signature, Sizes, primitive

__all__ = [
    "Kind",
    "Primitive",
    "Role",
    "Signature",
    "Sizes",
    "check_params",
    "check_vocabulary",
    "full_params",
    "get",
    "names",
    "primitive",
]


def get(name: str, where: str = "genome") -> Primitive:
    """Return the primitive of that name; ``where`` begins the message of an error.

    Raises:
        GenomeError: no primitive has this name; the message suggests the most similar name.
    """
    try:
        return REGISTRY[name]
    except GenomeError as error:
        raise GenomeError(f"{where}: {error}") from None


# Primitives are pickled by name, since their fields may hold lambdas.
copyreg.pickle(Primitive, lambda entry: (get, (entry.name,)))


def names() -> tuple[str, ...]:
    """Return the names of all primitives, sorted."""
    return tuple(sorted(REGISTRY))


def check_params(op: str, params: Mapping[str, ParamValue], where: str) -> dict[str, ParamValue]:
    """Return valid parameters of a primitive in normal form, such as 4.0 for 4 in a real parameter.

    Raises:
        GenomeError: the primitive or a parameter does not exist, a value is outside its domain, or
            values exclude each other. The message begins with ``where``.
    """
    entry, accepted = get(op, where), dict[str, ParamValue]()
    for name, value in params.items():
        if name not in entry.parameters:
            expected = ", ".join(entry.parameters) or "none, since it has no parameters"
            raise GenomeError(
                f"{where}: {op} has no parameter {name!r}{near(name, entry.parameters)}; "
                f"expected {expected}."
            )
        try:
            accepted[name] = entry.parameters[name].accept(value)
        except ValueError as error:
            raise GenomeError(f"{where} ({op}), {name}: {error}.") from None
    try:
        entry.check(entry.full(accepted))
    except ValueError as error:
        raise GenomeError(f"{where} ({op}): {error}.") from None
    return accepted


def full_params(node: Node) -> dict[str, ParamValue]:
    """Return the parameters of a node, with the defaults of those that it does not set."""
    return get(node.op).full(dict(node.params))


def check_vocabulary(genome: Genome, where: str = "genome") -> Genome:
    """Return the genome with all parameters in normal form, after checking them and all primitives.

    Raises:
        GenomeError: a primitive or parameter does not exist, or a parameter's value is invalid.
    """
    nodes = []
    for index, node in enumerate(genome.nodes):
        params = check_params(node.op, dict(node.params), f"{where}, node {index}")
        nodes.append(Node(node.op, node.inputs, tuple(sorted(params.items()))))
    return replace(genome, nodes=tuple(nodes))
