"""A plan as one page of HTML, two side by side, or one beside XLA's own program."""

from shardc.report.page.beside import page_beside_xla, page_of_two
from shardc.report.page.page import page
from shardc.report.page.reported import Reported

__all__ = ["Reported", "page", "page_beside_xla", "page_of_two"]
