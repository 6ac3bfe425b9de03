"""What the gateway says by itself, and what it passes on."""

from __future__ import annotations

from dataclasses import dataclass

from api.http.errors import ApiError

Headers = list[tuple[bytes, bytes]]


class NoKey(ApiError):
    """No API key, or one that nobody has."""

    status = 401
    kind = "invalid_request_error"
    code = "invalid_api_key"


class NotAllowed(ApiError):
    """Only for whoever runs the gateway."""

    status = 403
    kind = "invalid_request_error"


class TooLarge(ApiError):
    """A body over the limit."""

    status = 413
    kind = "invalid_request_error"


class Unreachable(ApiError):
    """The backend cannot be reached, or broke off."""

    status = 502
    code = "upstream_unreachable"


class TooLate(ApiError):
    """The backend took longer than the deadline."""

    status = 504
    kind = "timeout"
    code = "upstream_timeout"


@dataclass(frozen=True, eq=False)
class Reply:
    """What the backend sent, whole, with the headers that may be passed on."""

    status: int
    headers: Headers
    body: bytes


class NotStored(Exception):
    """The backend's reply is no answer to keep, for example an error. It goes to all that waited for it, unchanged.

    in_stream: the reply is the data of an event, after which the backend's stream was of no use.
    """

    def __init__(self, reply: Reply, in_stream: bool = False) -> None:
        super().__init__(f"the backend replied with status {reply.status} and nothing to keep")
        self.reply, self.in_stream = reply, in_stream
