"""A wish, from whoever asks by REST or by the page: may they, does it make sense now, was it asked before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from fastapi import Request

from api.access.callers import address_of
from api.errors import Problem
from api.routes.common import audit_of, caller_of, require, service_of
from tuner.api_sections import ApiRole
from tuner.records import ControlState, Wish, WishKind
from tuner.rollout import RUNNING, TABLE, Move
from tuner.wish_key import KeyUsed, WishKey

# PROMOTE goes past the proof, RELEASE past a rollback
ROLES = dict.fromkeys(WishKind, ApiRole.OPERATOR) | {
    WishKind.PROMOTE: ApiRole.ADMIN,
    WishKind.RELEASE: ApiRole.ADMIN,
}
OF_ROLLOUTS = frozenset({WishKind.STOP, WishKind.PROMOTE, WishKind.ROLL_BACK, WishKind.RELEASE})


@dataclass(frozen=True)
class Asked:
    """key: of idempotency; None where none was sent."""

    cache: str
    kind: WishKind
    reason: str = ""
    arguments: Mapping[str, object] | None = None
    key: str | None = None

    @property
    def fingerprint(self) -> str:
        """Of all that was asked for."""
        told = [self.cache, self.kind.value, self.reason, dict(self.arguments or {})]
        return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()


def ask(request: Request, asked: Asked) -> Wish:
    """Writes the wish down, and in the audit before that. Raises Problem; NotFound for a cache that is not there."""
    service, caller = service_of(request), caller_of(request)
    require(caller, ROLES[asked.kind])
    key = None if asked.key is None else WishKey(caller.name, asked.key, asked.fingerprint)
    try:
        before = None if key is None else service.wished_before(key)
        if before is not None:
            return before
        why_not = objection(service.status(asked.cache).state, asked.kind)
        if why_not is not None:
            raise Problem(409, why_not)
        audit_of(request).note(
            "wish", caller.name, address_of(request), cache=asked.cache, kind=asked.kind, reason=asked.reason
        )
        return service.wish(asked.cache, asked.kind, caller.name, asked.reason, asked.arguments, key)
    except KeyUsed as error:
        raise Problem(422, str(error)) from error


def objection(state: ControlState, kind: WishKind) -> str | None:
    """Why a wish would change nothing now, as far as that can be said at once; the daemon has the last word."""
    if kind is WishKind.START and state.phase in RUNNING:
        return "An experiment runs: stop it first."
    if kind in OF_ROLLOUTS and TABLE[state.phase, kind] is Move.STAY:
        return f"In the phase {state.phase.value.replace('_', ' ')} there is nothing to {kind.value.replace('_', ' ')}."
    return None
