"""A page: one self-contained HTML file that shows runs.

writer.py     the file: policy, style, scripts, sections   templates/  its HTML and SVG
rendering.py  templates to HTML, all texts escaped         scripts/    its interaction
packing.py    runs as data for the scripts                 page.css    its style
encoding.py   columns as base64 of gzip                    figures.py  positions in its drawings
search.py     operators, failures, incidents               scale.py    axes
answers.py    of ``nas explain`` and ``nas benchmark``     code.py     exported sources
serving.py    the page of a run that is still running
"""

from nas.report.page.writer import write_report

__all__ = ["write_report"]
