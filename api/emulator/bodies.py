"""What clients send, checked. Fields that change nothing here are let through, as they still tell requests apart."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.http.errors import BadRequest

MOST_CHOICES = 128
MOST_TOKENS = 1_000_000

TokenCount = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
Tokens = Annotated[list[int], Field(min_length=1)]
Text = Annotated[str, Field(min_length=1)]


class _Body(BaseModel):
    """Strict as the API is: "5" is not a number, 1 is not true."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class StreamOptions(_Body):
    include_usage: bool | None = None


class _Generating(_Body):
    """What chat and completions share. `ignore_eos` and `min_tokens` are vLLM's: load generators set them."""

    model: str
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    max_tokens: TokenCount | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] | None = None
    ignore_eos: bool | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None

    @property
    def stops(self) -> list[str]:
        """An empty one would stop every text before it starts."""
        wanted = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [stop for stop in wanted if stop]

    @property
    def usage_in_stream(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class Message(_Body):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None


class Function(_Body):
    name: Text
    parameters: dict[str, Any] | None = None


class Tool(_Body):
    type: Literal["function"]
    function: Function


class FunctionName(_Body):
    name: Text


class NamedTool(_Body):
    type: Literal["function"]
    function: FunctionName


class TextFormat(_Body):
    type: Literal["text"]


class JsonObjectFormat(_Body):
    type: Literal["json_object"]


class NamedSchema(_Body):
    name: Text
    schema_: dict[str, Any] = Field(alias="schema")


class JsonSchemaFormat(_Body):
    type: Literal["json_schema"]
    json_schema: NamedSchema


class ChatBody(_Generating):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    response_format: Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")] | None = (
        None
    )

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def schema_wanted(self) -> dict[str, Any] | None:
        return self.response_format.json_schema.schema_ if isinstance(self.response_format, JsonSchemaFormat) else None

    @property
    def top(self) -> int | None:
        """Alternatives to show beside each token; None where no logprobs are wanted."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionBody(_Generating):
    """POST /v1/completions."""

    prompt: Text | Tokens | Annotated[list[Text | Tokens], Field(min_length=1)]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: Literal[False] | None = None  # true is not emulated: an error is better than half an answer

    @property
    def limit(self) -> int:
        """16 where the body is silent, as in the API."""
        return self.max_tokens or 16

    @property
    def prompts(self) -> list[str | list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        whole = [part for part in self.prompt if not isinstance(part, int)]
        return whole or [[part for part in self.prompt if isinstance(part, int)]]


class EmbeddingBody(_Body):
    """POST /v1/embeddings."""

    model: str
    input: Text | Tokens | Annotated[list[Text | Tokens], Field(min_length=1)]
    dimensions: Annotated[int, Field(ge=1, le=8192)] | None = None
    encoding_format: Literal["float", "base64"] | None = None

    @property
    def inputs(self) -> list[str | list[int]]:
        if isinstance(self.input, str):
            return [self.input]
        whole = [part for part in self.input if not isinstance(part, int)]
        return whole or [[part for part in self.input if isinstance(part, int)]]


B = TypeVar("B", bound=_Body)


def parse_json(data: bytes) -> dict[str, Any]:
    """Raises BadRequest unless it is a JSON object."""
    try:
        raw = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The body is not valid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise BadRequest("The body is not a JSON object.")
    return raw


def checked(kind: type[B], raw: dict[str, Any]) -> B:
    """Raises BadRequest that names the first wrong field."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        param = ".".join(map(str, first["loc"]))
        raise BadRequest(f"{param}: {first['msg']}", param) from error
