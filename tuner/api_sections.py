"""The section `[api]` of the settings: who may use the REST interface and the page, and where they listen."""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, field_validator, model_validator

from envs.units import described
from tuner.key_hash import KeyHash, each_once
from tuner.sections import SECTION

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$"


class ApiRole(StrEnum):
    """What a key opens; each may what those before it may. viewer: to read. operator: to hold, stop, roll back and
    start. admin: to go past a proof or a rollback, by PROMOTE and RELEASE."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: ApiRole) -> bool:
        order = list(ApiRole)
        return order.index(self) >= order.index(other)


class ApiKeyConfig(BaseModel):
    """A key of the REST interface and the page, by its hash; a section for each. Where there is none, programs and
    browsers on this machine are admins, and nobody else may do anything."""

    model_config = SECTION

    sha256: KeyHash = described(..., "Hash of the key.", "name", repr=False)
    name: str = described(..., "Who has it; wishes and the audit log say so.", "name", pattern=NAME)
    role: ApiRole = described(
        ApiRole.VIEWER,
        "viewer: to read. operator: and to start, stop, pause, roll back and kill. admin: and to promote and release.",
        "name",
    )


class ApiConfig(BaseModel):
    """The REST interface and the page."""

    model_config = SECTION

    host: str = described("127.0.0.1", "Address to listen on; another than this machine's needs keys.", "name")
    port: int = described(8090, "Port to listen on; 0: any free one.", "number", ge=0, le=65_535, strict=True)
    keys: tuple[ApiKeyConfig, ...] = described((), "API keys, by their hashes.", "list")
    tls_certificate: Path | None = described(None, "PEM file of the certificate and its chain, for HTTPS.", "path")
    tls_key: Path | None = described(None, "PEM file of its private key; not set: in the same file.", "path")
    tls_password_env: str | None = described(None, "Environment variable with the password of the private key.", "name")
    audit_log: Path | None = described(
        None, "File that a line of JSON is added to for each refusal and each wish; not set: standard error.", "path"
    )
    whatif: Path | None = described(
        None, "What `setpoint whatif --json` printed, for the page to show as a surface.", "path"
    )
    reads_per_minute: int = described(600, "Of one key, or of one address without one.", "number", gt=0, strict=True)
    writes_per_minute: int = described(30, "Of one key, or of one address without one.", "number", gt=0, strict=True)
    failures_per_minute: int = described(
        10, "Wrong keys from one address, before all its requests are refused.", "number", gt=0, strict=True
    )
    largest_body_bytes: int = described(65_536, "Largest request that is read.", "bytes", gt=0, strict=True)
    session_seconds: float = described(
        43_200.0, "Until the page asks for the key anew.", "s", gt=0, allow_inf_nan=False
    )
    poll_seconds: float = described(
        1.0, "Between two looks into the ledger for events.", "s", ge=0.05, le=60, allow_inf_nan=False
    )
    heartbeat_seconds: float = described(
        15.0, "Longest silence of a stream of events.", "s", ge=0.05, le=300, allow_inf_nan=False
    )
    most_streams: int = described(64, "Streams of events at a time.", "number", gt=0, strict=True)

    @field_validator("keys")
    @classmethod
    def _no_key_twice(cls, keys: tuple[ApiKeyConfig, ...]) -> tuple[ApiKeyConfig, ...]:
        return each_once(keys)

    @model_validator(mode="after")
    def _safe(self) -> ApiConfig:
        if not self.keys and not is_loopback(self.host):
            raise ValueError(
                f"a host of this machine, such as 127.0.0.1, or keys: {self.host} can be reached by others, and "
                "without keys everybody would be an admin (setpoint hash-key --new makes one)"
            )
        if self.tls_key is not None and self.tls_certificate is None:
            raise ValueError("tls_certificate beside tls_key")
        return self


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it. A name other than localhost may mean any address."""
    if host.strip("[]").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
