"""The emulator as a web application: paths, errors, and nothing of what an answer is or when it comes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from api.emulator.answers import Answer, chat_answer, completion_answer
from api.emulator.bodies import ChatBody, CompletionBody, EmbeddingBody, checked, parse_json
from api.emulator.delivery import EmulatorHeader
from api.emulator.digests import Digest, draw, request_digest
from api.emulator.embeddings import embedding_answer, embedding_tokens
from api.emulator.errors import Failed, RateLimited
from api.emulator.metrics import CONTENT_TYPE, metrics_page
from api.emulator.queueing import Clock, Queue, Sleep
from api.emulator.settings import EmulatorSettings
from api.emulator.streams import events
from api.emulator.wire import CREATED, ChatForm, CompletionForm, Form
from api.http.delivery import (
    EventStream,
    gone_response,
    handled_error,
    handled_refusal,
    json_response,
    unless_gone,
)
from api.http.errors import ApiError, Missing

OWNER = "setpoint-emulator"
RETRY_AFTER_SECONDS = 1


def create_emulator(settings: EmulatorSettings, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep) -> FastAPI:
    """An application of its own, with a queue and metrics of its own. It starts nothing and needs no lifespan."""
    emulator = _Emulator(settings, Queue(settings.backend, settings.speed, clock, sleep))
    app = FastAPI(title="Setpoint emulator", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(EmulatorHeader, value=f"no model ran; profile {settings.profile.name}")
    app.add_exception_handler(ApiError, handled_error)
    app.add_exception_handler(HTTPException, handled_refusal)
    app.add_api_route("/v1/chat/completions", emulator.chat, methods=["POST"])
    app.add_api_route("/v1/completions", emulator.completions, methods=["POST"])
    app.add_api_route("/v1/embeddings", emulator.embeddings, methods=["POST"])
    app.add_api_route("/v1/models", emulator.models, methods=["GET"])
    app.add_api_route("/v1/models/{model:path}", emulator.model, methods=["GET"])
    app.add_api_route("/healthz", emulator.health, methods=["GET"])
    app.add_api_route("/health", emulator.health, methods=["GET"])  # as vLLM calls it
    app.add_api_route("/metrics", emulator.metrics, methods=["GET"])
    app.state.queue = emulator.queue
    return app


class _Emulator:
    """The endpoints."""

    def __init__(self, settings: EmulatorSettings, queue: Queue) -> None:
        self.settings, self.queue = settings, queue

    async def chat(self, request: Request) -> Response:
        raw, digest = await self._read(request)
        body = checked(ChatBody, raw)
        answer = chat_answer(body, digest)
        return await self._deliver(request, answer, ChatForm(), body)

    async def completions(self, request: Request) -> Response:
        raw, digest = await self._read(request)
        body = checked(CompletionBody, raw)
        answer = completion_answer(body, digest)
        return await self._deliver(request, answer, CompletionForm(), body)

    async def embeddings(self, request: Request) -> Response:
        """One sequence without output, which takes in all texts."""
        raw, digest = await self._read(request)
        body = checked(EmbeddingBody, raw)
        self._fail_perhaps(digest)
        served = await unless_gone(request, self.queue.serve(embedding_tokens(body), 0))
        return gone_response() if served is None else json_response(embedding_answer(body, self.settings.seed))

    async def models(self) -> Response:
        return json_response({"object": "list", "data": [self._model()]})

    async def model(self, model: str) -> Response:
        if model != self.settings.profile.name:
            raise Missing(f"The model {model!r} is not here.", "model")
        return json_response(self._model())

    async def health(self) -> Response:
        return json_response({"status": "ok", "emulator": True})

    async def metrics(self) -> Response:
        return Response(metrics_page(self.queue, self.settings.profile.name), headers={"content-type": CONTENT_TYPE})

    async def _read(self, request: Request) -> tuple[dict[str, Any], Digest]:
        raw = parse_json(await request.body())
        return raw, request_digest(self.settings.seed, request.url.path, raw)

    async def _deliver(self, request: Request, answer: Answer, form: Form, body: ChatBody | CompletionBody) -> Response:
        self._fail_perhaps(answer.digest)
        fingerprint, interval = self.settings.fingerprint, self.settings.stream_interval
        if body.stream:
            return EventStream(events(answer, form, self.queue, fingerprint, interval, with_usage=body.usage_in_stream))
        served = await unless_gone(request, self._serve_all(answer))
        return gone_response() if served is None else json_response(form.whole(answer, fingerprint))

    async def _serve_all(self, answer: Answer) -> bool:
        """Every choice is a sequence of its own. They end together, also when one is cancelled."""
        async with asyncio.TaskGroup() as group:
            for choice in answer.choices:
                group.create_task(self.queue.serve(choice.prompt_tokens, len(choice.pieces)))
        return True

    def _fail_perhaps(self, digest: Digest) -> None:
        """For a share of all requests, always the same ones: half of them 429, half 500."""
        chance = draw(digest, "fail")
        if chance < self.settings.fail_ratio / 2:
            headers = {"retry-after": str(RETRY_AFTER_SECONDS)}
            raise RateLimited("Too many requests, as fail_ratio of the emulator asks.", headers=headers)
        if chance < self.settings.fail_ratio:
            raise Failed("The emulator fails, as its fail_ratio asks.")

    def _model(self) -> dict[str, Any]:
        name = self.settings.profile.name
        return {"id": name, "object": "model", "created": CREATED, "owned_by": OWNER}
