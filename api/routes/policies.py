"""The registry: versions of policies and their aliases."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Path

from agents.registry import PolicyVersion
from agents.version_tags import TEST_SAVING, VALIDATION_SAVING
from api.conditional import Tag
from api.routes.common import READ, UNCHANGED, Service, told
from api.schemas import AliasesOut, PoliciesOut, PolicyOut
from caches.errors import NotFound

ROUTES = APIRouter(tags=["policies"])


@ROUTES.get("/policies", responses={**UNCHANGED, **told()})
def list_policies(tag: Tag, service: Service) -> PoliciesOut:
    """All versions, newest first; none where nothing is registered."""
    found = service.policies()
    tag(found)
    return PoliciesOut(items=[policy_out(one) for one in found])


@ROUTES.get("/policies/{version}", responses=READ)
def read_policy(
    tag: Tag,
    service: Service,
    version: Annotated[int, Path(ge=1, le=2**31 - 1, examples=[3])],
) -> PolicyOut:
    """One version."""
    found = next((one for one in service.policies() if one.version == version), None)
    if found is None:
        raise NotFound(f"policy version {version}: there is none")
    tag(found)
    return policy_out(found)


@ROUTES.get("/aliases", responses={**UNCHANGED, **told()})
def read_aliases(tag: Tag, service: Service) -> AliasesOut:
    """Which version is the champion and which the challenger."""
    aliases = {alias: one.version for one in service.policies() for alias in one.aliases}
    tag(sorted(aliases.items()))
    return AliasesOut(aliases=aliases)


def policy_out(found: PolicyVersion) -> PolicyOut:
    validation = found.metrics.get(VALIDATION_SAVING)
    return PolicyOut(
        version=found.version,
        aliases=list(found.aliases),
        kind=found.kind,
        created_seconds=found.created_unix_seconds,
        validation_saving_percent=None if validation is None else _finite(100.0 * validation),
        test_saving_percent=_number(found.tags.get(TEST_SAVING)),
        bundle_sha256=found.bundle_sha256,
        run_id=found.run_id,
    )


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else _finite(float(text))
    except ValueError:  # somebody else wrote the tag
        return None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
