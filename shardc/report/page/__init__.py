"""A plan as one page of HTML, or two side by side."""

from shardc.report.page.beside import page_of_two
from shardc.report.page.page import page
from shardc.report.page.reported import Reported

__all__ = ["Reported", "page", "page_of_two"]
