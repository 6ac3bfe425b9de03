"""Drawings for a page whose content security policy knows no style inside elements."""

from __future__ import annotations

import re
from dataclasses import replace

from api.report.page import Picture

STYLE = re.compile(r' style="([^"]*)"')
WORN = frozenset({"fill", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray"})  # attributes of SVG as well
INDENTED = "padding-left"  # of the whole drawing: api/report/charts.py leaves room for labels; live.css does here


def stilled(picture: Picture) -> Picture:
    """The same with attributes in the place of styles."""
    assert isinstance(picture.content, str)
    return replace(picture, content=STYLE.sub(_attributes, picture.content))


def _attributes(found: re.Match[str]) -> str:
    told = [one.partition(":") for one in found[1].split(";") if one]
    indented = ' class="indented"' if any(name == INDENTED for name, _, _ in told) else ""
    return indented + "".join(f' {name}="{value}"' for name, _, value in told if name in WORN)
