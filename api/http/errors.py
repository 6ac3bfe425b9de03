"""Errors as OpenAI's API words them: a status, and a JSON object that client libraries turn into exceptions."""

from __future__ import annotations

from collections.abc import Mapping


class ApiError(Exception):
    """Ends a request. param: the field of the body that is wrong, where there is one."""

    status = 500
    kind = "server_error"
    code: str | None = None

    def __init__(self, message: str, param: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.headers = dict(headers or {})

    def as_json(self) -> dict[str, object]:
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


class BadRequest(ApiError):
    """A header or body that cannot be answered as it is."""

    status = 400
    kind = "invalid_request_error"


class Missing(ApiError):
    """No such path or model."""

    status = 404
    kind = "invalid_request_error"
    code = "not_found"
