"""Exported sources for a page, of the mechanisms that somebody is likely to want; needs torch.

A front may have hundreds of members and a source takes milliseconds, so the first ones have theirs
on the page, and of every other one the page says the command that writes it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from nas.common.config import parse_yaml
from nas.common.errors import NasError

if TYPE_CHECKING:
    from nas.report.run_view import RunView

MOST: Final = 24


def code_of(view: RunView) -> dict[str, str]:
    """Plain sources by digest, at the sizes of the run's task; or why one cannot be written.

    Named ones and confirmed ones, best, knee and cheapest, then the front from the best on.
    """
    from nas.compiler import make_plan, plain_source
    from nas.tasks import parse_task

    task = view.setup.task
    try:
        model = parse_task(parse_yaml(task.text, task.name), task.name).main
    except NasError as error:
        return {member.digest: str(error) for member in view.members}
    sources: dict[str, str] = {}
    for digest in islice(_wanted(view), MOST):
        try:
            genome = make_plan(view.by_digest[digest].proposal.genome).genome
            sources[digest] = plain_source(
                genome, model.sizes.dim, model.sizes.heads, qkv_bias=model.qkv_bias
            )
        except NasError as error:
            sources[digest] = str(error)
    return sources


def roles() -> dict[str, str]:
    """What each primitive does in a mechanism, for the colours of a graph."""
    from nas.genome.primitives import get, names

    return {name: str(get(name).signatures[0].role) for name in names()}


def _wanted(view: RunView) -> dict[str, None]:
    confirmed = {one.key for one in view.confirmations}
    keys = [key for key in (*confirmed, *view.names) if key in view.trained]
    wanted = [view.trained[key].digest for key in sorted(keys)]
    return dict.fromkeys([*view.titles, *wanted, *(m.digest for m in view.members)])
