"""Vectors in a Chroma server, spoken to over its HTTP interface, version 2.

A collection for each space and partition, so that a search cannot leave the partition. The context is a condition of
the search, and it begins the name of each row: a row of another one is refused, whatever the server says.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import orjson

from caches.errors import InputError
from caches.keys.request_key import Partition
from caches.semantic.embedder import Vectors
from caches.semantic.index import Group
from caches.semantic.store import Alike, Place
from caches.tiers.tier import TierError

PAGE = 1_000  # collections in one answer
AT_ONCE = 100  # rows in one call that removes
NOT_FOUND = 404


@dataclass(frozen=True)
class ChromaOptions:
    """prefix: of the names of collections. tenant, database: Chroma's own, which must be there. token: sent as
    `x-chroma-token`, and shown nowhere. timeout_seconds: for each call of a method that makes one."""

    prefix: str = "setpoint-semantic"
    tenant: str = "default_tenant"
    database: str = "default_database"
    token: str | None = None
    timeout_seconds: float = 1.0


class ChromaVectors:
    """Numbers are kept as they are given, four bytes each."""

    form = "fp32"
    number_bytes = 4

    def __init__(self, url: str, name: str = "semantic", options: ChromaOptions = ChromaOptions()) -> None:
        """url: up to and without `/api/v2`. Nothing is sent yet."""
        self._name, self._options = name, options
        headers = {"content-type": "application/json"}
        if options.token is not None:
            headers["x-chroma-token"] = options.token
        self._client = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/api/v2", headers=headers, timeout=options.timeout_seconds
        )
        self._database = f"/tenants/{quote(options.tenant, '')}/databases/{quote(options.database, '')}"
        self._ids: dict[str, str] = {}  # of collections, by their names

    async def begin(self) -> None:
        if await self._asked("GET", self._database) is None:
            raise InputError(
                f"tier {self._name}: got a server without the database {self._options.database!r} of the tenant "
                f"{self._options.tenant!r}, expected a Chroma server (version 1 or newer) that has it"
            )

    async def add(self, place: Place, vector: Vectors, question: str) -> None:
        row = {
            "ids": [_row_name(place)],
            "embeddings": [np.asarray(vector, np.float32)],
            "documents": [question],
            "metadatas": [{"context": place.group.context.hex()}],
        }
        name = self._collection(place.space, place.group.partition)
        for _ in range(2):
            collection = await self._known(name) or await self._made(name, place.group.partition)
            if await self._asked("POST", f"{collection}/upsert", row) is not None:
                return
            self._ids.pop(name, None)  # somebody removed the collection
        raise TierError(f"tier {self._name}: the collection {name} goes as soon as it is made")

    async def nearest(self, space: bytes, group: Group, vector: Vectors, count: int) -> list[Alike]:
        context = group.context.hex()
        wanted = {
            "query_embeddings": [np.asarray(vector, np.float32)],
            "n_results": count,
            "where": {"context": context},
            "include": ["distances", "documents"],
        }
        found = await self._of_collection(space, group.partition, "query", wanted)
        if found is None:
            return []
        try:
            rows = zip(found["ids"][0], found["distances"][0], found["documents"][0], strict=True)
            return [self._alike(context, *row) for row in rows]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise TierError(f"tier {self._name}: got neighbours {str(found)[:80]}, expected Chroma's") from error

    async def remove(self, places: Sequence[Place]) -> None:
        of_collection: dict[tuple[bytes, Partition], list[str]] = {}
        for place in places:
            of_collection.setdefault((place.space, place.group.partition), []).append(_row_name(place))
        for (space, partition), names in of_collection.items():
            for first in range(0, len(names), AT_ONCE):
                await self._of_collection(space, partition, "delete", {"ids": names[first : first + AT_ONCE]})

    async def clear(self, partition: Partition) -> None:
        ours = {"tenant": partition.tenant, "namespace": partition.namespace}
        names = [
            str(one["name"])
            async for one in self._collections()
            if one["name"].startswith(f"{self._options.prefix}-") and _named(one) == ours
        ]
        for name in names:
            await self._asked("DELETE", f"{self._database}/collections/{name}")
            self._ids.pop(name, None)

    async def close(self) -> None:
        await self._client.aclose()

    def _alike(self, context: str, row: str, distance: float, question: str) -> Alike:
        """Chroma gives 1 - the inner product."""
        if not row.startswith(context):
            raise ValueError("a row of another context")
        return Alike(bytes.fromhex(row[len(context) :]), 1.0 - float(distance), str(question))

    def _collection(self, space: bytes, partition: Partition) -> str:
        digest = hashlib.blake2b(space + partition.prefix, digest_size=16).hexdigest()
        return f"{self._options.prefix}-{digest}"

    async def _collections(self) -> AsyncIterator[dict[str, Any]]:
        first, more = 0, True
        while more:
            page: list[dict[str, Any]] = (
                await self._asked("GET", f"{self._database}/collections?limit={PAGE}&offset={first}") or []
            )
            first, more = first + len(page), len(page) == PAGE
            for one in page:
                yield one

    async def _of_collection(self, space: bytes, partition: Partition, what: str, body: Any) -> Any:
        """None where there is no such collection."""
        name = self._collection(space, partition)
        for _ in range(2):
            collection = await self._known(name)
            found = None if collection is None else await self._asked("POST", f"{collection}/{what}", body)
            if collection is None or found is not None:
                return found
            self._ids.pop(name, None)  # somebody removed it, and may have made it anew
        return None

    async def _known(self, name: str) -> str | None:
        """The path of a collection; None where there is none."""
        if name not in self._ids:
            found = await self._asked("GET", f"{self._database}/collections/{name}")
            if found is None:
                return None
            self._ids[name] = str(found["id"])
        return f"{self._database}/collections/{self._ids[name]}"

    async def _made(self, name: str, partition: Partition) -> str:
        body = {
            "name": name,
            "get_or_create": True,
            "metadata": {"tenant": partition.tenant, "namespace": partition.namespace},
            "configuration": {"hnsw": {"space": "ip"}},
        }
        found = await self._asked("POST", f"{self._database}/collections", body)
        if found is None:
            raise TierError(f"tier {self._name}: Chroma has no database {self._options.database!r}")
        self._ids[name] = str(found["id"])
        return f"{self._database}/collections/{self._ids[name]}"

    async def _asked(self, method: str, path: str, body: Any = None) -> Any:
        """What the server answers; None for what is not there."""
        content = None if body is None else orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        try:
            async with asyncio.timeout(self._options.timeout_seconds):
                answer = await self._client.request(method, path, content=content)
            if answer.status_code == NOT_FOUND:
                return None
            answer.raise_for_status()
            return orjson.loads(answer.content)
        except httpx.HTTPStatusError as error:
            raise TierError(f"tier {self._name}: Chroma answers with status {error.response.status_code}") from error
        except (httpx.HTTPError, TimeoutError) as error:
            raise TierError(f"tier {self._name}: Chroma cannot be reached: {type(error).__name__}") from error
        except ValueError as error:
            raise TierError(f"tier {self._name}: Chroma answers with something that is no JSON") from error


def _row_name(place: Place) -> str:
    return place.group.context.hex() + place.fingerprint.hex()


def _named(collection: dict[str, Any]) -> dict[str, str]:
    about = collection.get("metadata") or {}
    return {name: about.get(name, "") for name in ("tenant", "namespace")}
