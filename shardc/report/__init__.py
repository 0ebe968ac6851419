"""What a user reads of a plan: its JSON, the same as attributes, and the table."""

from shardc.report.table import table
from shardc.report.view import PlanView, to_json, view

__all__ = ["PlanView", "table", "to_json", "view"]
