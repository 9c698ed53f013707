"""``nas validate``: judge a genome."""

from __future__ import annotations

import json

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Policy, Source


@app.command()
def validate(
    source: Source, policy: Policy = "score_normalize_aggregate", as_json: AsJson = False
) -> None:
    """Judge a genome by types and a policy's path rules; exit status 1 if it is not legal."""
    from nas import api
    from nas.cli.console import print_json, tell

    answer = api.validate(source, policy=policy)
    violations = answer["violations"]
    if as_json:
        print_json(answer)
    elif answer["valid"]:
        tell(f"{source} is legal under {answer['policy']} (digest {answer['digest']}).")
    else:
        lines = [f"  {violation['message']}" for violation in violations]
        tell("\n".join([f"{source} is not legal under {answer['policy']}:", *lines]))
        if violations[0]["repair"] is not None:
            tell(f"The nearest legal genome found:\n  {json.dumps(violations[0]['repair'])}")
    if violations:
        raise typer.Exit(1)
