"""A page: one self-contained HTML file that shows runs."""

from nas.report.page.writer import write_report

__all__ = ["write_report"]
