"""Exported sources of selected mechanisms; needs torch.

A front may have hundreds of members and each source takes milliseconds, so the page holds at most
``MOST`` sources. For every other mechanism it shows the export command.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from nas.common.config import parse_yaml
from nas.common.errors import NasError
from nas.report.run_view import RunView

MOST: Final = 24


def code_of(view: RunView) -> dict[str, str]:
    """Sources by digest at the sizes of the run's task; the error text where the export fails.

    Best, knee and cheapest come first, then named and confirmed mechanisms, then the front.
    """
    from nas.compiler import make_plan, plain_source
    from nas.tasks import parse_task

    task = view.setup.task
    try:
        model = parse_task(parse_yaml(task.text, task.name), task.name).main
    except NasError as error:
        return {member.digest: str(error) for member in view.members}
    sources: dict[str, str] = {}
    for digest in islice(_by_priority(view), MOST):
        try:
            genome = make_plan(view.by_digest[digest].proposal.genome).genome
            sources[digest] = plain_source(
                genome, model.sizes.dim, model.sizes.heads, qkv_bias=model.qkv_bias
            )
        except NasError as error:
            sources[digest] = str(error)
    return sources


def roles() -> dict[str, str]:
    """The role of each primitive, which gives its colour in a graph."""
    from nas.genome.primitives import get, names

    return {name: str(get(name).signatures[0].role) for name in names()}


def _by_priority(view: RunView) -> dict[str, None]:
    confirmed = {training.key for training in view.confirmations}
    keys = [key for key in (*confirmed, *view.names) if key in view.trained]
    digests = [view.trained[key].digest for key in sorted(keys)]
    return dict.fromkeys([*view.titles, *digests, *(m.digest for m in view.members)])
