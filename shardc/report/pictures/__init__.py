"""Pictures of a plan, each from its own data: nothing is priced here."""

from shardc.report.pictures.blocks import blocks
from shardc.report.pictures.curves import Curve, curves_picture
from shardc.report.pictures.front import front_picture
from shardc.report.pictures.links import links_picture
from shardc.report.pictures.memory import memory_picture
from shardc.report.pictures.picture import Picture
from shardc.report.pictures.roofline import roofline_picture
from shardc.report.pictures.steps import step_picture, steps_picture
from shardc.report.pictures.timeline import timeline_picture

__all__ = [
    "Curve",
    "Picture",
    "blocks",
    "curves_picture",
    "front_picture",
    "links_picture",
    "memory_picture",
    "roofline_picture",
    "step_picture",
    "steps_picture",
    "timeline_picture",
]
