"""Numbers and times have the same words on the page as on a terminal, in two languages."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest

from nas.report import units

pytestmark = pytest.mark.browser
SECONDS = (0, 0.4, 47, 59.6, 60, 3599.4, 3600, 7500, 172_799, 172_800, 273_600, 1e7)
COUNTS = (0, 7, -12, 999, 1000, 1234, 9.996, 99.96, 999.6, 999_600, 1_234_567, 5e16)
NAMES = (*units.NAMES, "accuracy", "log_loss")


def test_both_say_the_same(browser: Any) -> None:
    script = (resources.files("nas.report.page") / "scripts" / "format.js").read_text("utf-8")
    page = browser.new_page()
    theirs = page.evaluate(
        """async ([script, seconds, counts, names]) => {
          const made = await import(`data:text/javascript,${encodeURIComponent(script)}`);
          return [seconds.map(made.duration), counts.map(made.human), names.map(made.header)];
        }""",
        [script, SECONDS, COUNTS, NAMES],
    )
    page.close()
    assert theirs == [
        [units.duration(one) for one in SECONDS],
        [units.human(one) for one in COUNTS],
        [units.header(name) for name in NAMES],
    ]
