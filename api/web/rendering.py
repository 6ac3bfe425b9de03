"""Templates to answers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.report.page import TEMPLATES, PageTable, Paragraph, Picture, Points, typeset

HERE = Path(__file__).parent
STATIC = HERE / "static"


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Everything is escaped; what is missing is an error."""
    made = Environment(
        loader=FileSystemLoader([HERE / "templates", TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["typeset"] = typeset
    made.tests |= {
        "paragraph": lambda block: isinstance(block, Paragraph),
        "points": lambda block: isinstance(block, Points),
        "table": lambda block: isinstance(block, PageTable),
        "picture": lambda block: isinstance(block, Picture),
    }
    return made


def page(template: str, status: int = 200, **told: Any) -> HTMLResponse:
    text = environment().get_template(template).render(**told)
    return HTMLResponse(text, status, {"cache-control": "no-store"})
