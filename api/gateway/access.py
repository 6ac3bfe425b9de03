"""Who asks: the tenant of an API key, and who may look after the cache."""

from __future__ import annotations

import hmac
import ipaddress

from fastapi import Request

from api.gateway.errors import NoKey, NotAllowed
from api.gateway.settings import GatewaySettings, key_hash
from api.http.errors import BadRequest
from caches.errors import InputError
from caches.keys.partitions import partition_of
from caches.keys.request_key import Partition

NAMESPACE_HEADER = "x-setpoint-namespace"
DEFAULT = "default"


def tenant_of(request: Request, settings: GatewaySettings) -> str:
    """Raises NoKey where keys are asked for and this one is not known."""
    if not settings.tenants:
        return DEFAULT
    tenant = settings.tenants.get(key_hash(_bearer(request)))
    if tenant is None:
        raise NoKey("This gateway asks for an API key, and does not know the one that was sent.")
    return tenant


def partition_of_request(request: Request, settings: GatewaySettings) -> Partition:
    """Raises BadRequest for what is no name."""
    return checked_partition(tenant_of(request, settings), request.headers.get(NAMESPACE_HEADER, DEFAULT))


def checked_partition(tenant: str, namespace: object) -> Partition:
    try:
        return partition_of(tenant, namespace)  # type: ignore[arg-type]  # it is checked there
    except InputError as error:
        raise BadRequest(str(error), "namespace") from error


def check_admin(request: Request, settings: GatewaySettings) -> None:
    """With an admin key only who has it; without, only programs on this machine, and no page in a browser there."""
    if settings.admin_key_hash is not None:
        if not hmac.compare_digest(key_hash(_bearer(request)), settings.admin_key_hash):
            raise NotAllowed("This needs the admin key of the gateway, as a bearer token.")
    elif not _is_local(request) or "origin" in request.headers:
        raise NotAllowed("Without an admin key, this is only for programs on the machine of the gateway.")


def admins_tenant(request: Request, settings: GatewaySettings) -> str:
    """An admin key may belong to a tenant as well."""
    return settings.tenants.get(key_hash(_bearer(request)), DEFAULT)


def _bearer(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _is_local(request: Request) -> bool:
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:  # a name, for example that of a test
        return False
