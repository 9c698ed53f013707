"""A page: one HTML file that shows runs, to open anywhere and to pass on.

content.py    what is shown of a run, at one moment    verdict.py    what it comes to, in words
sections.py   the page as HTML, readable as it is      course.py     how a search went
figures.py    its drawings as SVG                      plots.py      scales, ticks and marks
why.py        what its parts are worth                 elsewhere.py  under other tasks
operators.py  which operators paid                     markup.py     elements, all escaped
packing.py    a run as columns, for the scripts        columns.py    columns as base64
code.py       exported sources; needs torch            writer.py     all of it as one file
serving.py    the page of a run that goes on
page.css      the look                                 scripts/      what answers a pointer
"""

from nas.report.page.writer import write_report

__all__ = ["write_report"]
