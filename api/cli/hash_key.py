"""`setpoint hash-key`: what the settings file of a gateway holds of an API key."""

from __future__ import annotations

import secrets
import sys
from getpass import getpass
from typing import Annotated

import typer

from api.gateway.settings import key_hash
from caches.errors import InputError

LEAST_CHARACTERS = 16  # of a key that cannot be guessed from its hash
NEW_BYTES = 32


def hash_key(
    new: Annotated[bool, typer.Option("--new", help="Make a key, and print it before its hash.")] = False,
) -> None:
    """Print the SHA-256 of an API key, for [[gateway.keys]] of the settings file.

    The key is read from standard input, so that it shows in no list of processes and no history.
    """
    if new:
        key = f"sp-{secrets.token_urlsafe(NEW_BYTES)}"
        typer.echo(key)
    else:
        key = (getpass("API key: ") if sys.stdin.isatty() else sys.stdin.read()).strip()
    if len(key) < LEAST_CHARACTERS:
        raise InputError(f"key: got {len(key)} characters, expected {LEAST_CHARACTERS} or more; --new makes one")
    typer.echo(key_hash(key))
