"""A page: one self-contained HTML file that shows runs.

writer.py     the file: policy, style, scripts, sections   templates/  its HTML and SVG
rendering.py  templates to HTML, all texts escaped         scripts/    its interaction
packing.py    runs as data for the scripts                 page.css    its style
encoding.py   columns as base64 of gzip                    figures.py  positions in drawings
sections.py   data of the other sections                   serving.py  the page of an open run
"""

from nas.report.page.writer import write_report

__all__ = ["write_report"]
