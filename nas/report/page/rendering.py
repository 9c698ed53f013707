"""Render the templates beside this file as HTML.

Control characters, and characters that change the direction of text, are replaced by escape
sequences. Then Jinja escapes every value. So texts from a run's record are never interpreted as
markup and never reorder a line.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from nas.common.differences import LEVEL
from nas.common.text import plural, printable
from nas.report.units import amount, duration, header, multiple

# A number with its error and unit; no line break is allowed inside.
_NUMBER: Final = re.compile(r"[\d.]+( ± [\d.]+)?( %| points| ×)|[\d.]+ ± [\d.]+")
_CODE: Final = re.compile("`([^`]+)`")


def render(template: str, **values: Any) -> Markup:
    """Return the HTML of a template in ``templates/``, filled with ``values``."""
    return Markup(_ENVIRONMENT.get_template(template).render(**values))  # noqa: S704 - escaped


def prose(text: str) -> Markup:
    """Return a sentence as HTML, with `code` elements and no line breaks inside quantities."""
    text = _NUMBER.sub(lambda match: match[0].replace(" ", "\u00a0"), printable(text))
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before


def address(run: str, digest: str) -> str:
    """Return the fragment of the page's address that selects a mechanism of a run."""
    return f"#run={quote(printable(run), safe='')}&id={digest}"


def _output(value: Any) -> Any:
    if isinstance(value, float):  # a position in pixels
        return f"{value:.1f}".removesuffix(".0")
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return "" if value is None else value


_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("nas.report.page"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_output,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals |= {"LEVEL": LEVEL, "zip": zip}
_ENVIRONMENT.filters |= {
    function.__name__: function for function in (amount, duration, header, multiple, plural, prose)
}
