"""Keyed hashes of keys: who has the log and not the secret cannot try whether somebody asked a given thing.

A plain hash would let them: they would hash their guess of a prompt and look for it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from caches.errors import InputError, SetpointError

HASH_BYTES = 16  # of a billion keys, some two have one hash with a probability of about 10^-21
SECRET_BYTES = 32
LEAST_BYTES = 16
SECRET_FILE = ".secret"

KeyHash = Callable[[bytes], bytes]


def key_hash(secret: bytes) -> KeyHash:
    """BLAKE2b of a key's id, 16 bytes. Logs under one secret have the same hash for the same key.

    Raises InputError for a secret that could be guessed.
    """
    if len(secret) < LEAST_BYTES:
        raise InputError(f"access log secret: got {len(secret)} bytes, expected at least {LEAST_BYTES}")
    begun = hashlib.blake2b(key=hashlib.sha256(secret).digest(), digest_size=HASH_BYTES)

    def hashed(key_id: bytes) -> bytes:
        digest = begun.copy()
        digest.update(key_id)
        return digest.digest()

    return hashed


def new_secret() -> bytes:
    return secrets.token_hex(SECRET_BYTES).encode()


def secret_in(folder: Path) -> bytes:
    """The secret that lies in a log's folder; the first to ask makes it, for its own user's eyes only.

    Raises SetpointError where the folder cannot be written.
    """
    place = folder / SECRET_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            _make(place)
        return place.read_bytes().strip()
    except OSError as error:
        raise SetpointError(f"{place}: cannot be written: {error.strerror or error}") from error


def _make(place: Path) -> None:
    """Whole or not at all: gateways that begin at the same time agree on one."""
    partial = place.with_name(f"{place.name}.{secrets.token_hex(8)}.partial")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(new_secret())
    try:
        with suppress(FileExistsError):  # another one was first
            os.link(partial, place)
    finally:
        partial.unlink()
