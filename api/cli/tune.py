"""`setpoint tune`: the tuning daemon beside a live cache."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import ConfigFile, TrackingUri
from caches.errors import InputError
from tuner.config import TunerConfig, load_tuner_config

try:
    from tuner.control import Ticked
    from tuner.retraining import Retraining
    from tuner.starting import started
except ModuleNotFoundError as error:
    if error.name not in {"httpx", "prometheus_api_client", "prometheus_client", "promql_parser", "redis"}:
        raise
    raise InputError(f"setpoint tune needs {error.name}: install it with pip install 'setpoint[live]'") from error

COMMAND = "from api.cli.main import main; main()"  # as the script `setpoint`


def tune(
    config_file: ConfigFile = None,
    gateway: Annotated[str | None, typer.Option(help="URL of the gateway, in place of control.gateway.")] = None,
    mode: Annotated[
        str | None, typer.Option(help="shadow, canary or live, in place of control.mode: how far it may go.")
    ] = None,
    ledger: Annotated[str | None, typer.Option(help="URL of the ledger, in place of control.ledger.")] = None,
    prometheus: Annotated[str | None, typer.Option(help="URL of Prometheus, in place of signals.prometheus.")] = None,
    tracking_uri: TrackingUri = None,
) -> None:
    """Run the tuning daemon beside a live cache, until it is stopped.

    It decides once per control interval and writes down what and why; `setpoint status` and `setpoint api` show it. In
    the mode shadow, which is the default, it applies nothing. Several may run for one cache: one is active, the others
    take over where it stops. At SIGINT and SIGTERM it gives its place up; settings stay as they are.
    """
    overrides = {
        "control.gateway": gateway,
        "control.mode": mode,
        "control.ledger": ledger,
        "signals.prometheus": prometheus,
        "tracking.uri": tracking_uri,
    }
    config = load_tuner_config(config_file, Path.cwd(), os.environ, overrides)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("httpx", "alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    retraining = _retraining(config, config_file)
    daemon = started(config, Path.cwd(), os.environ, lambda ticked, _seconds: _train_if_asked(retraining, ticked))
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: daemon.daemon.stop())
        daemon.daemon.run()
    finally:
        if retraining is not None:
            retraining.stop()
        daemon.close()


def _retraining(config: TunerConfig, config_file: Path | None) -> Retraining | None:
    """None where nobody says what to train on."""
    if config.control.access_log is None:
        return None
    file = [] if config_file is None else ["--config", str(config_file)]
    command = [sys.executable, "-c", COMMAND, "train", str(config.control.access_log), *file]
    return Retraining(command, config.tracking.output / "retraining.log")


def _train_if_asked(retraining: Retraining | None, ticked: Ticked) -> None:
    if retraining is not None and ticked.state is not None:
        retraining.see_to(ticked.state)
