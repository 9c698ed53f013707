"""A page: one self-contained HTML file that shows runs.

writer.py     writes the HTML file                     sections.py   data of the page's sections
rendering.py  renders templates with escaped texts     mechanism.py  data of one mechanism's panel
page.css, page.js, templates/: style, script (selection, search, tooltips) and HTML of the page
"""

from nas.report.page.writer import write_report

__all__ = ["write_report"]
