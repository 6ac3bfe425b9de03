"""Policies and aliases, from a real MLflow store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.registry import Registry
from agents.version_tags import TEST_SAVING, VALIDATION_SAVING
from tests.agents.bundles import static_bundle
from tests.api.html_pages import HtmlPage
from tests.api.rest.conftest import Place, placed
from tests.api.rest.history import CACHE, Told, ended
from tuner.records import Outcome


@pytest.fixture
def registered(registry: Registry, tmp_path: Path) -> Iterator[Place]:
    """Version 1 is the champion, 2 the challenger, and no experiment runs."""
    static_bundle().save(tmp_path / "bundle")
    for _ in range(2):
        with registry.start_run("run", {}) as run:
            registry.register(tmp_path / "bundle", run, {VALIDATION_SAVING: 0.02})
    assert registry.swap_champion(1, None) is None
    registry.set_challenger(2)
    registry.set_tag(1, TEST_SAVING, "1.6")
    registry.set_tag(2, TEST_SAVING, "by hand")
    told = Told(intervals=3, lead_in=1)
    place = placed(tmp_path, told, registry)
    assert place.lease is not None
    ended(place.ledger, told, place.lease, Outcome.BETTER)
    yield place
    place.ledger.close()


async def test_versions_and_aliases(registered: Place) -> None:
    async with registered.client() as client:
        listed = (await client.get("/v1/policies")).json()["items"]
        one = (await client.get("/v1/policies/1")).json()
        aliases = await client.get("/v1/aliases")
        again = await client.get("/v1/aliases", headers={"if-none-match": aliases.headers["etag"]})
        none = await client.get("/v1/policies/3")
    assert [(found["version"], found["aliases"], found["kind"]) for found in listed] == [
        (2, ["challenger"], "static"),
        (1, ["champion"], "static"),
    ]
    assert one == listed[1]
    assert one["validation_saving_percent"] == pytest.approx(2.0)
    assert (one["test_saving_percent"], listed[0]["test_saving_percent"]) == (1.6, None)
    assert aliases.json() == {"aliases": {"champion": 1, "challenger": 2}}
    assert (again.status_code, none.status_code) == (304, 404)


async def test_only_what_is_registered_can_be_tried(registered: Place) -> None:
    path = f"/v1/caches/{CACHE}/experiments"
    async with registered.client() as client:
        unknown = await client.post(path, json={"challenger": 3})
        known = await client.post(path, json={"challenger": 2})
        form = HtmlPage((await client.get(f"/wish?cache={CACHE}&kind=start")).text)
    assert (unknown.status_code, known.status_code) == (422, 202)
    assert unknown.json()["detail"] == "challenger: got 3, expected a registered version"
    assert "2 (challenger, static) 1 (champion, static)" in form.text
