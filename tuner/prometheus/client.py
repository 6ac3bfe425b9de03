"""Questions to a Prometheus, or to what speaks as one. Whatever it does instead of answering is a reason in words."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as WaitedTooLong

from caches.errors import InputError, SetpointError

LARGEST_ANSWER_BYTES = 4 * 2**20
PIECE_BYTES = 2**16
LEAST_SECONDS = 0.001  # a wait that libraries take for one


class NotAnswered(SetpointError):
    """Why there is no answer, as a sentence."""


@dataclass(frozen=True)
class Sample:
    """One value of an answer. labels: of its series, without a name where the query has computed it."""

    labels: Mapping[str, str]
    value: float


class PrometheusServer:
    """url: may hold a user and a password, which are never shown. token: sent as a bearer token."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InputError("prometheus: expected a URL such as http://127.0.0.1:9090")
        self._url = url.rstrip("/")
        self.shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else None

    def inquiry(self, timeout_seconds: float) -> Inquiry:
        """For questions that are all to be answered within this time from now."""
        return Inquiry(self._url, self.shown, self._headers, time.monotonic() + timeout_seconds)


class Inquiry:
    """Several threads may ask at once. A context manager: its connections are closed in the end."""

    def __init__(self, url: str, shown: str, headers: dict[str, str] | None, deadline: float) -> None:
        self.shown, self._deadline = shown, deadline
        session = requests.Session()
        session.hooks["response"].append(self._judge)
        # Nothing is asked twice: the time is better spent on telling what is wrong.
        self._client = PrometheusConnect(url, headers=headers or {}, session=session, retry=0)

    def __enter__(self) -> Inquiry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()

    def left_seconds(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def late(self) -> NotAnswered:
        return NotAnswered(f"{self.shown} did not answer in time: see how busy it is, or wait longer")

    def ask(self, query: str, at_seconds: float | None) -> tuple[Sample, ...]:
        """The value of a query now, or at a Unix time. Raises NotAnswered."""
        left = self.left_seconds()
        if left < LEAST_SECONDS:
            raise self.late()
        params = {"timeout": f"{max(1, round(left * 1000))}ms"}
        if at_seconds is not None:
            params["time"] = f"{at_seconds:.3f}"
        try:
            return _samples(self._client.custom_query(query, params, timeout=left))  # type: ignore[arg-type]  # a float will do
        except (requests.Timeout, WaitedTooLong):
            raise self.late() from None
        except (requests.RequestException, HTTPError) as error:
            raise NotAnswered(f"{self.shown} cannot be reached ({type(error).__name__}): see whether it runs") from None
        except (PrometheusApiClientException, ValueError, TypeError, LookupError) as error:
            raise NotAnswered(f"{self.shown} answered nonsense ({type(error).__name__}: {_short(error)})") from None

    def _judge(self, response: requests.Response, **_: Any) -> None:
        """Read an answer, within limits, and raise NotAnswered unless it is a whole one: the client takes a status of
        200 for a success and drops warnings, by which servers say that an answer is partial."""
        if response.is_redirect:
            return
        body = self._body(response)
        response.raw = io.BytesIO(body)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            kind = response.headers.get("content-type", "no content type").partition(";")[0]
            raise NotAnswered(
                f"{self.shown} answered {response.status_code} with {kind} and not with JSON: is this the URL of a "
                "Prometheus, past any login page?"
            ) from None
        if (
            not isinstance(answer, dict)
            or answer.get("status") != "success"
            or response.status_code != requests.codes.ok
        ):
            said = _short(answer.get("error", "nothing")) if isinstance(answer, dict) else "nothing"
            raise NotAnswered(f"{self.shown} answered {response.status_code} and refused the query: {said}")
        if answer.get("warnings"):
            raise NotAnswered(f"{self.shown} warns that its answer may not be whole: {_short(answer['warnings'])}")
        if (kind := answer["data"]["resultType"]) not in {"vector", "scalar"}:
            raise NotAnswered(f"the query gives a {kind}, expected one value at one time: add a function over it")

    def _body(self, response: requests.Response) -> bytes:
        body = bytearray()
        while piece := response.raw.read1(PIECE_BYTES, decode_content=True):
            body += piece
            if len(body) > LARGEST_ANSWER_BYTES:
                raise NotAnswered(f"{self.shown} sends more than {LARGEST_ANSWER_BYTES} bytes: narrow the query down")
            if self.left_seconds() <= 0.0:
                raise self.late()
        return bytes(body)


def _samples(result: Any) -> tuple[Sample, ...]:
    """Of a vector, or of a scalar, which is one pair. A histogram in the place of a value is a KeyError."""
    if result and not isinstance(result[0], dict):
        return (Sample({}, float(result[1])),)
    return tuple(Sample(dict(series["metric"]), float(series["value"][1])) for series in result)


def _short(said: object, limit: int = 200) -> str:
    text = " ".join(str(said).split())
    return text if len(text) <= limit else f"{text[:limit]}…"
