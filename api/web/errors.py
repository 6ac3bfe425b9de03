"""What went wrong, for people."""

from __future__ import annotations

from fastapi.responses import Response

from api.errors import TITLES, Problem
from api.web.rendering import page


def error_page(problem: Problem) -> Response:
    answer = page(
        "error.html.j2", problem.status, title=TITLES.get(problem.status, "Error"), detail=problem.detail, caller=None
    )
    answer.headers.update(problem.headers)
    return answer
