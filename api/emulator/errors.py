"""The errors of the emulator, beside those that every server has."""

from __future__ import annotations

from api.http.errors import ApiError


class BadBody(ApiError):
    """The body cannot be answered."""

    status = 400
    kind = "invalid_request_error"


class RateLimited(ApiError):
    """An error that `fail_ratio` asked for."""

    status = 429
    kind = "requests"

    @property
    def code(self) -> str:
        return "rate_limit_exceeded"


class Failed(ApiError):
    """An error that `fail_ratio` asked for."""

    @property
    def code(self) -> str:
        return "emulated_failure"
