"""How pictures look: eight fills, eight textures, ink on paper, by light and in the dark.

A shard's fill and texture are its own up to 64 shards: eight fills plain, then the same eight dotted, striped, ….
The fills were searched for: under normal sight and without red, green or blue receptors no two are closer than 0.1
in OKLab, each has its own lightness, so that they differ in grey, and black text on each keeps a contrast of 4.5.
They are the same in the dark, where ink and paper change places.
"""

from __future__ import annotations

FILLS = ("#74b1fd", "#fcdf35", "#df8602", "#d4fcc8", "#ad65c6", "#44e6f7", "#78988a", "#bbc39b")
LIGHT = {"ink": "#1b1f24", "soft": "#57606a", "faint": "#d0d7de", "paper": "#ffffff", "alarm": "#b3261e"}
DARK = {"ink": "#e6edf3", "soft": "#9aa4af", "faint": "#3d444d", "paper": "#0f1318", "alarm": "#ff8f87"}
ON_FILL = "#000000"

# Of each texture the lines on a tile of 8 by 8; the first is none.
TEXTURES = (
    "",
    "M2 2h1v1h-1zM6 6h1v1h-1z",
    "M0 4h8",
    "M4 0v8",
    "M0 8L8 0",
    "M0 0L8 8",
    "M0 0L8 8M0 8L8 0",
    "M1 4h2M5 4h2M4 0v1M4 7v1",
)
PLUS = "M4 1v6M1 4h6"
MANY = len(FILLS) * len(TEXTURES)
ID = "shardc-"


def fill(number: int) -> str:
    """The look of a shard's fill."""
    return f"f{number % len(FILLS)}"


def texture(number: int) -> str:
    """The look of a shard's texture; none for the first eight."""
    row = number // len(FILLS) % len(TEXTURES)
    return f"x{row}" if row else ""


def _colours(of: dict[str, str]) -> str:
    rules = [
        f"{{0}}.t,{{0}}.s,{{0}}.h,{{0}}.m{{{{fill:{of['ink']}}}}}",
        f"{{0}}.soft{{{{fill:{of['soft']}}}}}",
        f"{{0}}.line,{{0}}.edge{{{{stroke:{of['ink']}}}}}",
        f"{{0}}.grid{{{{stroke:{of['faint']}}}}}",
        f"{{0}}.arrow{{{{fill:{of['ink']}}}}}",
        f"{{0}}.alarm{{{{stroke:{of['alarm']}}}}}",
        f"{{0}}text.alarm{{{{fill:{of['alarm']}}}}}",
        # Words stand clear of the lines behind them.
        f"{{0}}text:not(.k){{{{stroke:{of['paper']};stroke-width:3px;stroke-linejoin:round;paint-order:stroke}}}}",
        f"{{0}}.hollow{{{{fill:{of['paper']}}}}}",
    ]
    return "".join(rules)


def css() -> str:
    """The rules, all within pictures: a notebook has other drawings."""
    root = ".shardc-picture "
    shapes = [
        "{0}text{{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;stroke:none}}",
        "{0}.t{{font-size:12px}}{0}.s{{font-size:10.5px}}{0}.h{{font-size:14px;font-weight:600}}",
        "{0}.m{{font-size:12px;font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}}",
        "{0}.line,{0}.grid,{0}.alarm{{fill:none;stroke-width:1.2}}{0}.edge{{stroke-width:1}}",
        "{0}.dashed{{stroke-dasharray:5 4}}",
        *(f"{{0}}.f{number}{{{{fill:{colour}}}}}" for number, colour in enumerate(FILLS)),
        f"{{0}}.k{{{{fill:{ON_FILL}}}}}{{0}}.map{{{{fill:none;stroke:{ON_FILL};stroke-width:.8}}}}",
        *(f"{{0}}.x{row}{{{{fill:url(#{ID}x{row})}}}}" for row in range(1, len(TEXTURES))),
        f"{{0}}.plus{{{{fill:url(#{ID}plus)}}}}",
    ]
    dark = f"@media (prefers-color-scheme: dark){{{_colours(DARK).format(root)}}}"
    return "".join(rule.format(root) for rule in shapes) + _colours(LIGHT).format(root) + _on_fill(root) + dark


def _on_fill(root: str) -> str:
    """Black on a fill, whatever the ink is: said once more, of more weight."""
    return f"{root}text.k.k{{fill:{ON_FILL}}}"
