"""A page: one HTML file that shows runs, to open anywhere and to pass on.

    content.py    what is shown of a run, read at one moment
    verdict.py    what it comes to, in words               operators.py  which operators paid
    sections.py   the page as HTML, readable as it is      figures.py    its drawings as SVG
    markup.py     elements, with everything escaped        plots.py      scales, ticks and marks
    packing.py    data as columns, for the scripts         columns.py    columns as base64
    code.py       exported sources; needs torch            writer.py     all of it as one file
    page.css      the look                                 scripts/      what answers a pointer

"""

from nas.report.page.writer import write_report

__all__ = ["write_report"]
