"""A plan as one page of HTML."""

from shardc.report.page.page import page
from shardc.report.page.reported import Reported

__all__ = ["Reported", "page"]
