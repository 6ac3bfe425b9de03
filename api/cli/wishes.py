"""`setpoint pause`, `resume`, `rollback`, `release`, `kill`: what a person asks of the daemon, by the ledger."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import AsJson, ConfigFile
from api.cli.output import print_json, result_console
from caches.errors import SetpointError
from caches.target import LiveCache
from tuner.config import load_tuner_config
from tuner.kill import restore_static
from tuner.ledger import Ledger
from tuner.ledgers.sql import open_ledger
from tuner.live.named import live_cache
from tuner.records import Wish, WishKind
from tuner.service import TunerService

CacheName = Annotated[str | None, typer.Option("--cache", help="Which cache, in place of control.cache.")]
Reason = Annotated[str, typer.Option(help="Why; it is kept with the request.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for the daemon's answer.")]
POLL_SECONDS = 0.2
KILL_SECONDS = 5.0  # that an active daemon has for it
KILLED = "The operator's static settings hold for all keys, until `setpoint resume`."


def _command(kind: WishKind, told: str) -> Callable[..., None]:
    """A command that asks the daemon for something. told: its help."""

    def ask(
        config_file: ConfigFile = None,
        cache: CacheName = None,
        reason: Reason = "",
        wait: Wait = 0,
        as_json: AsJson = False,
    ) -> None:
        _ask(kind, config_file, cache, reason, wait, as_json)

    ask.__doc__ = told
    return ask


pause = _command(WishKind.PAUSE, "Hold all settings where they are, until `setpoint resume`.")
resume = _command(WishKind.RESUME, "Let policies decide again after `setpoint pause` or `setpoint kill`.")
rollback = _command(
    WishKind.ROLL_BACK,
    """End the running experiment and keep its challenger out; without one, take the champion out.

    Keys go back to the control arm at once. The rollback stays until `setpoint release` or a new version.
    """,
)
release = _command(WishKind.RELEASE, "Forget a rollback: what was rolled back may be tried again.")


def kill(config_file: ConfigFile = None, cache: CacheName = None, reason: Reason = "", as_json: AsJson = False) -> None:
    """Restore the operator's static settings for all keys at once, and hold them until `setpoint resume`.

    The daemon does it at its next look. Where no daemon is active, or it does not answer, this command does it itself:
    it takes over the cache and needs nothing but the ledger and the gateway.
    """
    config = load_tuner_config(config_file, Path.cwd(), os.environ, {"control.cache": cache})
    live = live_cache(config, os.environ)
    ledger = open_ledger(config.control.ledger, Path.cwd())
    try:
        by = f"{getpass.getuser()} (cli)"
        wish = ledger.wish(Wish(live.name, WishKind.KILL, by, time.time(), reason))
        lease = ledger.lease(live.name)
        active = lease is not None and lease.until_seconds > time.time()
        if not (active and _is_static(live, KILL_SECONDS)):
            restore_static(live, ledger, f"{by} {os.getpid()}", time.time())
    finally:
        ledger.close()
        live.close()
    if as_json:
        print_json({"id": wish.id, "kind": wish.kind.value, "cache": wish.cache, "answer": KILLED})
    else:
        result_console().print(KILLED)


def _is_static(live: LiveCache, seconds: float) -> bool:
    """Whether all keys have the operator's settings, at once or within so many seconds."""
    static, deadline = live.knob_space().default(), time.monotonic() + seconds
    while True:
        plan = live.standing().plan
        if plan.control == static and not plan.split.treatment:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)


def _ask(kind: WishKind, config_file: Path | None, cache: str | None, reason: str, wait: float, as_json: bool) -> None:
    config = load_tuner_config(config_file, Path.cwd(), os.environ, {"control.cache": cache})
    ledger = open_ledger(config.control.ledger, Path.cwd())
    try:
        wish = TunerService(ledger, None, time.time).wish(
            config.control.cache, kind, f"{getpass.getuser()} (cli)", reason
        )
        answer = _answer(ledger, wish, wait)
    finally:
        ledger.close()
    if as_json:
        print_json({"id": wish.id, "kind": kind.value, "cache": wish.cache, "answer": answer})
    else:
        result_console().print(answer or f"Asked for; the daemon acts on it at its next look (wish {wish.id}).")
    if wait and answer is None:
        raise SetpointError(f"The daemon has not answered within {wait:g} s; the wish stays.")


def _answer(ledger: Ledger, wish: Wish, wait: float) -> str | None:
    deadline = time.monotonic() + wait
    while True:
        found = next((one for one in ledger.wishes(wish.cache) if one.id == wish.id), None)
        if found is not None and found.answer is not None:
            return found.answer
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_SECONDS)
