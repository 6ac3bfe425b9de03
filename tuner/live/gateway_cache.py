"""The gateway's tuned tier as a live cache, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from caches.errors import InputError
from caches.knobs import KnobSpace
from caches.target import BalancedSalt, CacheUnavailable, Counted, Fenced, Plan, Standing
from tuner.live.arms_document import PATH, ArmsDocument, first_fault, wish_json
from tuner.live.policies_document import POLICIES_PATH, PoliciesDocument
from tuner.live.salt_document import SALT_PATH, SaltDocument, salt_wish_json

MOST_BYTES = 2**20  # of an answer; two arms take a few thousand
JSON = {"content-type": "application/json"}
OLD_FENCE = 409
UNKNOWN_PATHS = {401, 404}  # an older gateway hands it on as a client's request, and an operator's key is no client's
MEANINGS = {
    400: "it does not take this, such as an eviction policy that it does not offer",
    401: "it asks for a key",
    403: "this key does not open it: reading takes a viewer's, acting an operator's",
    404: "nothing is tuned there, see [tuning] of the gateway's settings",
}


class GatewayCache:
    """A gateway with `[tuning] enabled = true`. Its connection is kept open between calls; `close` it in the end.

    url: of the gateway, with or without /v1. api_key: of an operator of it; None where it asks for none.
    timeout_seconds: to connect, and to the whole answer.
    """

    def __init__(
        self, url: str, api_key: str | None = None, name: str = "gateway", timeout_seconds: float = 5.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InputError(f"url: got {parts.hostname or url!r}, expected a URL such as http://127.0.0.1:8080")
        if not timeout_seconds > 0:
            raise InputError(f"timeout_seconds: got {timeout_seconds}, expected above 0")
        self._name, self._seconds = name, timeout_seconds
        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        verify = parts.scheme == "https"  # certificates are long to load, and of no use without TLS
        try:
            base = url.rstrip("/").removesuffix("/v1")
            self._client = httpx.Client(base_url=base, headers=headers, timeout=timeout_seconds, verify=verify)
        except httpx.InvalidURL as error:
            raise InputError(f"url: got {parts.hostname!r} with {error}, expected a URL") from error

    @property
    def name(self) -> str:
        return self._name

    def knob_space(self) -> KnobSpace:
        return self._read().space()

    def eviction_policies(self) -> tuple[str, ...]:
        """None of a gateway that is too old to tell."""
        status, body = self._answer("GET", POLICIES_PATH, None)
        if status in UNKNOWN_PATHS:
            return ()
        try:
            return PoliciesDocument.model_validate_json(self._checked(status, body)).value()
        except ValidationError as error:
            raise self._senseless(first_fault(error)) from error

    def standing(self) -> Standing:
        return self._read().standing()

    def apply(self, plan: Plan, fence: int) -> Standing:
        return self._ask("PUT", wish_json(plan, fence)).standing()

    def counters(self) -> Counted:
        return self._read().counted()

    def balanced_salt(self, seed: int, shares: Sequence[float]) -> BalancedSalt | None:
        body = self._asked("POST", SALT_PATH, salt_wish_json(seed, shares))
        try:
            return SaltDocument.model_validate_json(body).value()
        except ValidationError as error:
            raise self._senseless(first_fault(error)) from error

    def close(self) -> None:
        self._client.close()

    def _read(self) -> ArmsDocument:
        return self._ask("GET")

    def _ask(self, method: str, content: bytes | None = None) -> ArmsDocument:
        body = self._asked(method, PATH, content)
        try:
            document = ArmsDocument.model_validate_json(body)
            document.space()  # whose own rules say what is no range
        except ValidationError as error:
            raise self._senseless(first_fault(error)) from error
        except InputError as error:
            raise self._senseless(f"knobs.{error}") from error
        return document

    def _senseless(self, why: str) -> CacheUnavailable:
        return CacheUnavailable(f"{self._name}: an answer that makes no sense, {why}")

    def _asked(self, method: str, path: str, content: bytes | None) -> bytes:
        """The body of an answer with status 200."""
        return self._checked(*self._answer(method, path, content))

    def _checked(self, status: int, body: bytes) -> bytes:
        if status == OLD_FENCE:
            raise Fenced(f"{self._name}: another daemon with a higher fence has acted on it since")
        if status != 200:
            meaning = MEANINGS.get(status, "expected 200")
            raise CacheUnavailable(f"{self._name}: got status {status}, {meaning}")
        return body

    def _answer(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        """Status and body. Raises CacheUnavailable where there is none."""
        try:
            return self._streamed(method, path, content)
        except httpx.HTTPError as error:
            raise CacheUnavailable(f"{self._name}: no answer ({type(error).__name__}: {error})") from error

    def _streamed(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        """httpx bounds each wait, so what trickles is bounded here."""
        deadline, body = time.monotonic() + self._seconds, b""
        headers = {} if content is None else JSON
        with self._client.stream(method, path, content=content, headers=headers) as response:
            for piece in response.iter_bytes():
                body += piece
                if len(body) > MOST_BYTES:
                    raise CacheUnavailable(f"{self._name}: an answer of more than {MOST_BYTES:,} bytes")
                if time.monotonic() > deadline:
                    raise CacheUnavailable(f"{self._name}: no whole answer after {self._seconds:g} seconds")
            return response.status_code, body
