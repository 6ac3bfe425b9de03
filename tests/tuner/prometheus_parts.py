"""A real Prometheus for tests of signals: over samples that are written by hand, or over pages that tests change."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.servers import free_port, is_ready, require, running
from tuner.prometheus.client import PrometheusServer
from tuner.prometheus.source import PrometheusSignals, asked_by
from tuner.signal_sections import SignalsConfig

START_SECONDS = 1_700_000_000  # of samples written by hand
STEP_SECONDS = 10
PATIENT_SECONDS = 15.0  # for a reading on a busy machine
SCRAPE = "500ms"
TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Running:
    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def backfilled(
    folder: Path, series: Mapping[str, Sequence[float | None]], start_seconds: int = START_SECONDS
) -> Iterator[str]:
    """URL of a Prometheus that scrapes nothing and knows these series: values every STEP_SECONDS from a start on, by
    name with labels; None for no sample."""
    families: dict[str, list[str]] = {}
    for name, values in series.items():
        family = families.setdefault(name.partition("{")[0], [])
        times = [start_seconds + STEP_SECONDS * i for i in range(len(values))]
        family += [f"{name} {value} {at}" for at, value in zip(times, values, strict=True) if value is not None]
    lines = [line for name, rows in families.items() for line in (f"# TYPE {name} unknown", *rows)]
    (folder / "samples.om").write_text("\n".join([*lines, "# EOF", ""]), encoding="utf-8")
    command = [require("promtool"), "tsdb", "create-blocks-from", "openmetrics", "samples.om", "data"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with scraping(folder, {}) as server:
        yield server.url


@contextmanager
def scraping(folder: Path, ports: Mapping[str, Sequence[int]]) -> Iterator[Running]:
    """A Prometheus that scrapes the pages behind these ports, by job."""
    jobs = "".join(
        f"  - {{job_name: {job}, static_configs: [{{targets: {[f'127.0.0.1:{port}' for port in found]}}}]}}\n"
        for job, found in ports.items()
    )
    text = f"global: {{scrape_interval: {SCRAPE}}}\nscrape_configs:\n{jobs}"
    (folder / "prometheus.yml").write_text(text, encoding="utf-8")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        require("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running(command, folder, lambda: is_ready(f"{url}/-/ready")) as process:
        yield Running(url, process)


class Page:
    """What a small HTTP server answers to every request; change `text` or `answer` at will."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.answer: Callable[[BaseHTTPRequestHandler], None] | None = None
        self.asked: list[str] = []
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.asked.append(self.path)
                if page.answer is not None:
                    page.answer(self)
                else:
                    send(self, page.text, TEXT)

            def log_message(self, *_: object) -> None:
                """Not to the test's output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def send(handler: BaseHTTPRequestHandler, text: str, kind: str = "application/json", status: int = 200) -> None:
    body = text.encode()
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def signals_of(url: str, clock_seconds: float = 5.0, **settings: object) -> PrometheusSignals:
    """A source as the settings make it. clock_seconds: infinite to read samples written by hand."""
    told = {"preset": [], "timeout_seconds": PATIENT_SECONDS, **settings}
    config = SignalsConfig.model_validate({"prometheus": url, **told})
    server = PrometheusServer(url)
    return PrometheusSignals(
        server, asked_by(config), config.timeout_seconds, config.max_age_seconds, clock_seconds=clock_seconds
    )
