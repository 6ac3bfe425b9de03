"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file with settings; setpoint.toml by default.")]
TrackingUri = Annotated[str | None, typer.Option(help="MLflow store, in place of tracking.uri.")]

# Of commands that take a trace that may need converting.
FormatName = Annotated[str | None, typer.Option("--format", help="Format of a trace file; detected by default.")]
RequestsPerSecond = Annotated[float | None, typer.Option(help="Even spacing for a source without arrival times.")]
AT_MOST = 30_000_000
AtMost = Annotated[
    int,
    typer.Option(
        min=1,
        help="Requests to hold in memory. A longer Parquet file or folder is read as it streams by, and only the "
        "requests of a share of its keys are kept.",
    ),
]
