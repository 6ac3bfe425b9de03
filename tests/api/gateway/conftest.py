"""Real gateways in front of real backends, all on free ports of the loopback, in threads of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from openai import OpenAI

from api.emulator.app import create_emulator
from api.emulator.settings import EmulatorSettings
from api.gateway.app import create_gateway
from api.gateway.building import built
from api.gateway.config import load_serve_config
from api.gateway.service import GatewayService
from api.gateway.settings import GatewaySettings, KeyHolder, NamespaceRules, Role
from api.gateway.upstream import upstream_client
from api.http.listening import listen
from caches.keys.rules import KeyRules
from caches.knobs import Knob, KnobSpace
from caches.place import Place, PlaceStats
from caches.semantic.checking import HitChecker
from caches.stack import Stack, StackRules
from caches.tiers.lease import Lease
from caches.tiers.memory import MemoryTier
from envs.serving import load_profile

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
FAST = 1000.0  # times real time: the longest answer takes 4 ms
SPACE = KnobSpace(
    Knob("cache_size", "bytes", 1e4, 1e8, 1e7, 0.1, "log"),
    Knob("ttl_seconds", "seconds", 0.1, 86_400.0, 3_600.0, 0.1, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
)


@dataclass
class Backend:
    """calls: path and headers of each request to the API that reached it."""

    address: str = ""
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    queue: Any = None

    def counting(self, app: Any) -> Any:
        async def counted(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http" and scope["path"].startswith("/v1/"):
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                self.calls.append((scope["path"], headers))
            await app(scope, receive, send)

        return counted


def serving(app: Any, lifespan: str = "off") -> AbstractContextManager[str]:
    config = uvicorn.Config(app, log_level="warning", lifespan=lifespan, timeout_graceful_shutdown=1)
    return served_by(uvicorn.Server(config))


@contextmanager
def served_by(server: uvicorn.Server) -> Iterator[str]:
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)


@contextmanager
def emulated(*, speed: float = FAST, fail_ratio: float = 0.0, slots: int | None = None) -> Iterator[Backend]:
    profile = load_profile("qwen2.5-7b-a100")
    if slots is not None:
        profile = profile.model_copy(update={"max_sequences": slots})
    app, backend = create_emulator(EmulatorSettings(profile=profile, speed=speed, fail_ratio=fail_ratio)), Backend()
    backend.queue = app.state.queue
    with serving(backend.counting(app)) as backend.address:
        yield backend


@contextmanager
def gateway(
    upstream: str | Sequence[str],
    *,
    places: Sequence[Place] | None = None,
    rules: StackRules = StackRules(),
    lease: Lease | None = None,
    key_rules: KeyRules = KeyRules(),
    tenants: Mapping[str, str] | None = None,
    admin_key_hash: str | None = None,
    checker: HitChecker | None = None,
    **settings: Any,
) -> Iterator[str]:
    """The address of a gateway with an empty cache. tenants: of clients, by the hash of their keys."""
    keys = {digest: KeyHolder(tenant) for digest, tenant in (tenants or {}).items()}
    if admin_key_hash is not None:
        keys[admin_key_hash] = KeyHolder((tenants or {}).get(admin_key_hash, "default"), Role.OPERATOR)
    told = GatewaySettings(upstream, **{"rules": NamespaceRules(key_rules), "keys": keys, **settings})
    stack = Stack(places or [Place(MemoryTier(SPACE))], rules, lease)
    service = GatewayService(told, stack, upstream_client(told), checker=checker)
    with serving(create_gateway(service), "on") as address:
        yield address


@contextmanager
def configured(upstream: str, file: Path, text: str) -> Iterator[str]:
    """The address of a gateway with these settings, as `setpoint serve` makes it, and the backend beside them."""
    file.write_text(f'[gateway]\nupstream = "{upstream}"\n{text}', encoding="utf-8")
    made = built(load_serve_config(file, {}), str(file), {})
    with serving(create_gateway(made.service), "on") as address:
        yield address


@dataclass
class Front:
    """A gateway for several tests, since a server takes its time to stop."""

    place: Place = field(default_factory=lambda: Place(MemoryTier(SPACE)))
    address: str = ""

    def emptied(self) -> str:
        """Its address; the cache and what is known of it are new."""
        self.place.tier = MemoryTier(SPACE)
        self.place.stats, self.place._ttl_seconds = PlaceStats(), None
        return self.address


@contextmanager
def shared_gateway(upstream: str, **settings: Any) -> Iterator[Front]:
    front = Front()
    with gateway(upstream, places=[front.place], **settings) as front.address:
        yield front


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with emulated() as one:
        yield one


@pytest.fixture(scope="module")
def shared_front(backend: Backend) -> Iterator[Front]:
    with shared_gateway(backend.address) as one:
        yield one


@pytest.fixture
def front(backend: Backend, shared_front: Front) -> str:
    """A gateway with an empty cache, and a backend that has counted nothing yet."""
    backend.calls.clear()
    return shared_front.emptied()


@pytest.fixture
def client(front: str) -> Iterator[OpenAI]:
    with openai_at(front) as one:
        yield one


def openai_at(address: str, **options: Any) -> OpenAI:
    told = {"api_key": "none", "max_retries": 0, "timeout": 10, "http_client": httpx.Client(verify=False), **options}
    return OpenAI(base_url=f"{address}/v1", **told)


def chat(content: str = "How far?", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": content}], **fields}


def ask(address: str, body: Any = None, path: str = CHAT, **headers: str) -> httpx.Response:
    """headers: with _ for -."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return send("POST", address + path, json=chat() if body is None else body, headers=named)


def send(method: str, url: str, **options: Any) -> httpx.Response:
    """Without the certificates, which take longer to load than all the rest."""
    return httpx.request(method, url, timeout=10, verify=False, **options)


def outcome(response: httpx.Response) -> str:
    return response.headers["x-setpoint-cache"]


def metric(address: str, start: str) -> float:
    """The sum of all values whose line begins so."""
    lines = send("GET", f"{address}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
