"""Who asks: the tenant of an API key, and who may look after the cache."""

from __future__ import annotations

import ipaddress

from fastapi import Request

from api.gateway.errors import NoKey, NotAllowed
from api.gateway.settings import GatewaySettings, KeyHolder, Role, key_hash
from api.http.errors import BadRequest
from caches.errors import InputError
from caches.keys.partitions import partition_of
from caches.keys.request_key import Partition

NAMESPACE_HEADER = "x-setpoint-namespace"
DEFAULT = "default"
LOOKING_AFTER = (Role.VIEWER, Role.OPERATOR)


def tenant_of(request: Request, settings: GatewaySettings) -> str:
    """Raises NoKey where keys are asked for and this one is no client's."""
    if not settings.asks_for(Role.CLIENT):
        return DEFAULT
    holder = _holder(request, settings)
    if holder is None or holder.role is not Role.CLIENT:
        raise NoKey("This gateway asks for a client's API key, and the one that was sent is none.")
    return holder.tenant


def partition_of_request(request: Request, settings: GatewaySettings) -> Partition:
    """Raises BadRequest for what is no name."""
    return checked_partition(tenant_of(request, settings), request.headers.get(NAMESPACE_HEADER, DEFAULT))


def checked_partition(tenant: str, namespace: object) -> Partition:
    try:
        return partition_of(tenant, namespace)  # type: ignore[arg-type]  # it is checked there
    except InputError as error:
        raise BadRequest(str(error), "namespace") from error


def check_admin(request: Request, settings: GatewaySettings) -> None:
    """Only operators. Where nobody has a key for it, only programs on this machine, and no page in a browser there."""
    _check(request, settings, (Role.OPERATOR,))


def check_viewer(request: Request, settings: GatewaySettings) -> None:
    """As `check_admin`, and viewers too."""
    _check(request, settings, LOOKING_AFTER)


def check_metrics(request: Request, settings: GatewaySettings) -> None:
    """As `check_viewer`; where nobody has a key for this, everybody may."""
    if settings.asks_for(*LOOKING_AFTER):
        check_viewer(request, settings)


def admins_tenant(request: Request, settings: GatewaySettings) -> str:
    """Whose entries are meant where none are named."""
    holder = _holder(request, settings)
    return DEFAULT if holder is None else holder.tenant


def asker_of(request: Request, settings: GatewaySettings) -> str:
    """Whoever asks, for the audit log: role and tenant of the key, and how the hash of the key begins."""
    holder = _holder(request, settings)
    if holder is None:
        return "nobody's key"
    return f"{holder.role.value} {holder.tenant} {key_hash(_bearer(request))[:8]}"


def _check(request: Request, settings: GatewaySettings, roles: tuple[Role, ...]) -> None:
    if settings.asks_for(*LOOKING_AFTER):
        holder = _holder(request, settings)
        if holder is None or holder.role not in roles:
            wanted = " or ".join(f"an {role.value}" if role is Role.OPERATOR else f"a {role.value}" for role in roles)
            raise NotAllowed(f"This needs the key of {wanted} of the gateway, as a bearer token.")
    elif not _is_local(request) or "origin" in request.headers:
        raise NotAllowed("Without a key for it, this is only for programs on the machine of the gateway.")


def _holder(request: Request, settings: GatewaySettings) -> KeyHolder | None:
    """By hash: how long it takes says nothing of the keys that there are."""
    return settings.keys.get(key_hash(_bearer(request)))


def _bearer(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _is_local(request: Request) -> bool:
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:  # a name, for example that of a test
        return False
