"""The REST interface and the page on a real ledger, in this process and, where it has to be, behind a real server."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from fastapi import FastAPI

from agents.registry import Registry
from api.access.audit import Audit
from api.access.gate import Access
from api.app import create_app
from api.gateway.settings import key_hash
from tests.api.gateway.conftest import serving
from tests.api.rest.history import Told, end_of, write
from tuner.api_sections import ApiConfig, ApiKeyConfig, ApiRole
from tuner.ledger import Lease, Ledger
from tuner.ledgers.sql import open_ledger
from tuner.service import TunerService

Client = httpx.AsyncClient
LOCAL = "http://127.0.0.1"
VIEWER, OPERATOR, ADMIN = (f"{role}-{secrets.token_hex(8)}" for role in ("viewer", "operator", "admin"))
KEYS = tuple(
    ApiKeyConfig(sha256=key_hash(key), name=name, role=role)
    for key, name, role in (
        (VIEWER, "vera", ApiRole.VIEWER),
        (OPERATOR, "otto", ApiRole.OPERATOR),
        (ADMIN, "ada", ApiRole.ADMIN),
    )
)
MANY = {"reads_per_minute": 1_000_000, "writes_per_minute": 1_000_000, "failures_per_minute": 1_000_000}


@dataclass
class Place:
    """An application and what is behind it. now: of its clock, Unix time."""

    app: FastAPI
    ledger: Ledger
    audit: Path
    now: list[float]
    lease: Lease | None = None

    def client(self, key: str | None = None, url: str = LOCAL, address: str = "127.0.0.1", **headers: str) -> Client:
        """address: where requests come from."""
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False, client=(address, 40_000))
        return httpx.AsyncClient(transport=transport, base_url=url, headers=headers)

    def lines(self) -> list[dict[str, Any]]:
        """Of the audit log."""
        return [orjson.loads(line) for line in self.audit.read_bytes().splitlines()]


def placed(folder: Path, told: Told | None = Told(), registry: Registry | None = None, **config: Any) -> Place:
    """told: None for a ledger in which nothing is."""
    ledger = open_ledger("sqlite:///ledger.db", folder)
    lease = None if told is None else write(ledger, told)
    now = [end_of(told or Told())]
    service = TunerService(ledger, registry, lambda: now[0])
    audit = folder / "audit.jsonl"
    settings = ApiConfig(**{"audit_log": audit, **MANY, **config})
    access = Access(settings, Audit(audit, lambda: now[0]), clock=lambda: now[0], ticks=lambda: now[0])
    return Place(create_app(service, settings, access), ledger, audit, now, lease)


@contextmanager
def served(place: Place) -> Iterator[str]:
    """The address of a real server."""
    with serving(place.app, "on") as address:
        yield address


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With 60 intervals, and no keys. Tests that share it only add wishes."""
    found = placed(tmp_path_factory.mktemp("rest"))
    yield found
    found.ledger.close()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With keys of each role, and 6 intervals."""
    found = placed(tmp_path_factory.mktemp("keyed"), Told(intervals=6, lead_in=2), keys=KEYS)
    yield found
    found.ledger.close()


Placing = Callable[..., Place]


@pytest.fixture
def placing(tmp_path: Path) -> Iterator[Placing]:
    """Places of a test's own."""
    made: list[Place] = []

    def make(told: Told | None = Told(intervals=3, lead_in=1), **config: Any) -> Place:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(placed(folder, told, **config))
        return made[-1]

    yield make
    for one in made:
        one.ledger.close()
