"""Why it works: what ``nas explain`` found each part of a mechanism to be worth."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import LEVEL
from nas.report.explanation import ROWS, TITLES, signed
from nas.report.page.markup import Markup, element, join, link
from nas.report.page.plots import Scale, bar, mark
from nas.report.text import plural
from nas.report.trials import points
from nas.report.units import FRACTION, header, quantity
from nas.store.answers import damaged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nas.report.page.content import Content

WIDTH, HEIGHT = 160.0, 24.0
MINUS: Final = str.maketrans({"-": "−"})
ORDER: Final = ("needed", "harmful", "harmless", "unresolved")


def why(contents: Sequence[Content]) -> Markup:
    """All explanations of all runs."""
    found = []
    for content in contents:
        for path, answer in content.explained:
            try:
                found.append(_explanation(content, answer))
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise damaged(path, "explain") from error
    none = element(
        "p",
        "Nothing was explained yet: ",
        element("code", f"nas explain {contents[0].label}/best"),
        " trains it without each of its parts; the next report says what each is worth.",
        class_="note",
    )
    return join(*found) if found else none


def _explanation(content: Content, answer: Mapping[str, Any]) -> Markup:
    digest, unit = answer["id"], answer["metric"]["unit"]
    known = content.by_digest.get(digest)
    called = content.called(known.key) if known and known.key in content.trained else digest[:8]
    metric, mean = answer["metric"]["name"].replace("_", " "), answer["mean"]
    reached = (
        "it could not be trained"
        if mean is None
        else (f"{metric} {quantity(mean, unit, answer['error'])}")
    )
    about = f"{reached} under {answer['task']}, {plural(len(answer['values']), 'fresh seed')}"
    rows = [row for part in TITLES for row in answer[part]]
    ends = [d[end] for row in rows if (d := row["difference"]) for end in ("low", "high")]
    scale = Scale.over([*ends, 0.0], 6, WIDTH - 6)
    tables = [
        _table(part, answer, scale, title.format(source=called))
        for part, title in TITLES.items()
        if answer[part]
    ]
    margin = points(answer["margin"], None, unit).lstrip("+")
    what = f"points of {metric}" if unit == FRACTION else metric
    looks = " and ".join(map(str, answer["seeds"]))
    note = (
        f"Differences in {what}, between trainings that share their seed, ± standard error; the "
        f"bar is the 95 % interval, the band a margin of {margin} either way. All verdicts "
        f"together: p below {LEVEL} after Holm's correction, looked at after {looks} seeds."
    )
    missing = None if answer["has_path"] else "No path of single legal edits from mha was found."
    return element(
        "div",
        element("h3", link(called, content.name, digest), element("small", about)),
        element("p", _summary(answer["edits"], unit)),
        *(element("div", table, class_="scroll") for table in tables),
        element("p", missing, class_="note") if missing else None,
        element("p", note, class_="note"),
        class_="explanation",
        data_of=content.name,
        data_about=digest,
    )


def _summary(edits: Sequence[Mapping[str, Any]], unit: str) -> str:
    """How many edits are needed, harmful, harmless; and what costs most to take away."""
    counts = Counter(row["verdict"] for row in edits)
    said = ", ".join(f"{counts[word]} {word}" for word in ORDER if counts[word])
    needed = [row for row in edits if row["verdict"] == "needed"]
    most = max(needed, key=lambda row: abs(row["difference"]["mean"]), default=None)
    if most is None:
        return f"Of {plural(len(edits), 'part')}: {said}."
    over = _points(most["difference"], unit)
    return (
        f"Of {plural(len(edits), 'part')}: {said}. Most depends on this: {most['words']}, {over}."
    )


def _table(part: str, answer: Mapping[str, Any], scale: Scale, title: str) -> Markup:
    rows, unit, margin = answer[part], answer["metric"]["unit"], answer["margin"]
    if part == "edits":
        sign = 1 if answer["metric"]["direction"] == "max" else -1
        rows = sorted(
            rows, key=lambda r: sign * r["difference"]["mean"] if r["difference"] else 0.0
        )
    costs = [name for name in rows[0]["added_costs"] if any(r["added_costs"][name] for r in rows)]
    heads = [ROWS[part], "", "difference", "verdict", *(header(name) for name in costs), "formula"]
    lines = [
        element(
            "tr",
            element("td", _words(row)),
            element("td", _interval(row, scale, margin, unit)),
            element("td", _points(row["difference"], unit)),
            element("td", element("span", row["verdict"], class_=f"judged {row['verdict']}")),
            *(element("td", signed(row["added_costs"][c]).translate(MINUS)) for c in costs),
            element("td", element("code", row["formula"]), class_="formula", title=row["formula"]),
        )
        for row in rows
    ]
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    return element(
        "table", element("caption", title), element("thead", head), element("tbody", *lines)
    )


def _words(row: Mapping[str, Any]) -> str:
    """The edit; and how many trainings failed, of which nothing is said."""
    failed = "; ".join(f"{n} failed, {reason}" for reason, n in row["failed"].items())
    return f"{row['words']} ({failed})" if failed else str(row["words"])


def _interval(row: Mapping[str, Any], scale: Scale, margin: float, unit: str) -> Markup | None:
    found, middle = row["difference"], HEIGHT / 2
    if not found:
        return None
    low, high = (min(max(scale(s * margin), 0.0), WIDTH) for s in (-1, 1))
    zero = scale(0.0)
    said = f"{points(found['low'], None, unit)} to {points(found['high'], None, unit)}"
    return element(
        "svg",
        element("title", said.translate(MINUS)),
        element("rect", class_="margin", x=low, y=0.0, width=high - low, height=HEIGHT),
        element("line", class_="zero", x1=zero, x2=zero, y1=0.0, y2=HEIGHT),
        bar(scale(found["low"]), middle, scale(found["high"]), middle, "square"),
        mark("square", scale(found["mean"]), middle, 4.5),
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        role="img",
    )


def _points(found: Mapping[str, Any] | None, unit: str) -> str:
    return points(found["mean"], found["error"], unit).translate(MINUS) if found else "–"
