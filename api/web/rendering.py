"""Templates to answers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment

from api.report.page import TEMPLATES, template_environment

HERE = Path(__file__).parent
STATIC = HERE / "static"


@lru_cache(maxsize=1)
def environment() -> Environment:
    return template_environment(HERE / "templates", TEMPLATES)


def page(template: str, status: int = 200, **told: Any) -> HTMLResponse:
    text = environment().get_template(template).render(**told)
    return HTMLResponse(text, status, {"cache-control": "no-store"})
