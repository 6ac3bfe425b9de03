"""Where answers are kept when nobody says where, and when they are not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from api.gateway.building import built
from api.gateway.config import ServeConfig
from api.gateway.default_disk import cache_folder, file_name, with_default_disk


def settings(*, upstream: object = "http://a", **tiers: object) -> ServeConfig:
    return ServeConfig.model_validate({"gateway": {"upstream": upstream}, "tiers": tiers})


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/setpoint"),
        ({"XDG_CACHE_HOME": "c", "HOME": "/h"}, "/h/.cache/setpoint"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/setpoint"),
        ({"HOME": "h"}, None),
        ({}, None),
    ],
)
def test_the_folder_is_where_the_rules_for_caches_say(environ: Mapping[str, str], folder: str | None) -> None:
    assert cache_folder(environ) == (None if folder is None else Path(folder))


def test_each_backend_and_machine_has_a_file_of_its_own() -> None:
    one = file_name(["http://a:1/v1"], "here")
    assert one == file_name(["http://user:pass@a:1/"], "here")
    assert file_name(["http://a:1", "http://b:1"], "here") == file_name(["http://b:1/v1", "http://a:1"], "here")
    others = (["http://a:2"], "here"), (["http://a:1"], "there"), (["http://a:1", "http://b:1"], "here")
    assert len({one, *(file_name(*other) for other in others)}) == 4


def test_there_is_one_unless_something_else_is_said(tmp_path: Path) -> None:
    environ, folder = {"XDG_CACHE_HOME": str(tmp_path)}, tmp_path / "setpoint"
    for plain in (
        settings(disk={"enabled": False}),
        settings(disk={"path": "x"}),
        settings(redis={"url": "redis://a"}),
        settings(cassandra={"url": "cassandra://a/k"}),
        settings(semantic={"entries": "redis://a"}),
        ServeConfig(),
    ):
        assert with_default_disk(plain, environ, "here") == (plain, [])
    assert not folder.exists()
    config, (told,) = with_default_disk(settings(disk={"ttl_seconds": 60}), environ, "here")
    path = folder / file_name(["http://a"], "here")
    assert (config.tiers.disk.path, config.tiers.disk.ttl_seconds) == (path, 60.0)
    assert told == f"Answers are kept in {path} for the next start; --no-disk turns this off."
    several, _ = with_default_disk(settings(upstream=("http://a", "http://b")), environ, "here")
    assert several.tiers.disk.path == folder / file_name(["http://a", "http://b"], "here")


def test_only_its_owner_can_read_the_folder_also_where_it_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "setpoint"
    folder.mkdir(0o755)
    with_default_disk(settings(), {"XDG_CACHE_HOME": str(tmp_path)}, "here")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_used_is_told_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    plain = settings()
    config, (told,) = with_default_disk(plain, {"XDG_CACHE_HOME": str(tmp_path / "file")}, "here")
    assert config == plain
    assert told == f"Answers are not kept on disk: {tmp_path / 'file' / 'setpoint'} cannot be used (Not a directory)."
    config, (told,) = with_default_disk(plain, {}, "here")
    assert config == plain
    assert told == "Answers are not kept on disk: there is no home folder; --disk names a file."


async def test_a_file_that_is_named_and_turned_off_is_not_made(tmp_path: Path) -> None:
    gateway = built(settings(disk={"path": str(tmp_path / "x"), "enabled": False}), "file", {})
    assert list(gateway.places) == ["memory", "semantic"]
    assert not (tmp_path / "x").exists()
    await gateway.service.stack.close()
    await gateway.service.client.aclose()
