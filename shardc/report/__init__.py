"""What a user reads of a plan: its JSON, the same as attributes, and the table."""

from shardc.report.front import FrontView, front_json, front_table
from shardc.report.table import table
from shardc.report.view import PlanView, to_json, view

__all__ = ["FrontView", "PlanView", "front_json", "front_table", "table", "to_json", "view"]
