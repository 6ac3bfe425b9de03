"""The OpenAPI of the REST interface, beyond what the framework finds by itself."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.schemas import FieldError, ProblemOut

SUMMARY = "What the tuning daemon did and why, what it saved, and what a person may ask of it."
DESCRIPTION = """Roles: **viewer** reads; **operator** also starts, stops, pauses, resumes, rolls back and kills;
**admin** also promotes and releases. Errors are `application/problem+json` (RFC 9457). Reads carry an ETag. What is
asked for is a *wish*: it is written down, and the daemon acts on it at its next tick."""
PLACE = "#/components/schemas/{model}"


def described(app: FastAPI) -> None:
    """Has the application describe itself so at /openapi.json."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI documents it so


def _described(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(
        title=app.title, version=app.version, summary=SUMMARY, description=DESCRIPTION, routes=app.routes
    )
    components = schema.setdefault("components", {})
    problem = ProblemOut.model_json_schema(ref_template=PLACE)
    problem.pop("$defs", None)
    components.setdefault("schemas", {}).update(
        {"ProblemOut": problem, "FieldError": FieldError.model_json_schema(ref_template=PLACE)}
    )
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}}
    schema["security"] = [{"key": []}, {}]  # none where the server has no keys and is asked on its own machine
    return schema
