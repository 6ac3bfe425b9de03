"""The errors of the emulator, beside those that every server has."""

from __future__ import annotations

from api.http.errors import ApiError


class RateLimited(ApiError):
    """An error that `fail_ratio` asked for."""

    status = 429
    kind = "requests"
    code = "rate_limit_exceeded"


class Failed(ApiError):
    """An error that `fail_ratio` asked for."""

    code = "emulated_failure"
