"""A page: one self-contained HTML file that shows runs.

writer.py     writes the HTML file                     figures.py  positions in static figures
rendering.py  renders templates with escaped texts     sections.py  data of the page's sections
packing.py    prepares the data for the scripts        templates/   templates of HTML and SVG
page.css      style of the page                        scripts/     JavaScript of the page
"""

from nas.report.page.writer import write_report

__all__ = ["write_report"]
