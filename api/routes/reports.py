"""The report of an experiment, as JSON, CSV or a page, by what is accepted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import Response

from api.conditional import Tag
from api.report.experiment import experiment_page, reckoning
from api.report.experiment_csv import experiment_csv
from api.report.page import render
from api.routes.common import UNCHANGED, ExperimentId, Service, told
from api.routes.media import JSON, chosen
from api.schema_report import ReportOut

ROUTES = APIRouter(tags=["experiments"])
CSV, HTML = "text/csv", "text/html"
OFFERED = (JSON, CSV, HTML)
# a page in one file: its style is inside, and it may load nothing and run nothing
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The report, in the first of these that is accepted",
        "content": {
            CSV: {"schema": {"type": "string"}, "example": "experiment,cache,index,arm\r\n"},
            HTML: {"schema": {"type": "string"}, "example": "<!DOCTYPE html>"},
        },
    },
    **UNCHANGED,
    **told(404, 406, 422),
}


@ROUTES.get("/experiments/{experiment}/report", response_model=ReportOut, responses=ANSWERS)
def read_report(
    tag: Tag,
    service: Service,
    experiment: ExperimentId,
    accept: Annotated[str, Header(description="application/json, text/csv or text/html.")] = "*/*",
) -> Response:
    """Outcome, what was saved (realised beside predicted, with interval), both arms, and what was watched. As CSV:
    every interval."""
    kind = chosen(accept, OFFERED)
    tag(service.revision())
    account = service.account(experiment)
    if kind == CSV:
        return Response(
            experiment_csv(account), headers=tag.headers, media_type=f"{CSV}; charset=utf-8; header=present"
        )
    found = reckoning(account)
    if kind == HTML:
        headers = tag.headers | {"content-security-policy": POLICY}
        return Response(render(experiment_page(found)), headers=headers, media_type=f"{HTML}; charset=utf-8")
    return Response(ReportOut.of(found).model_dump_json(), headers=tag.headers, media_type=JSON)
