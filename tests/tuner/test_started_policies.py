"""A daemon's settings against the eviction policies that the cache beside it tells of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from caches.errors import InputError
from caches.policies.catalog import EVICTIONS
from caches.policies.pair import policies_called
from tests.api.gateway.conftest import configured, emulated
from tests.api.gateway.tuned import QUIET
from tuner.config import TunerConfig
from tuner.starting import Started, require_offered, started

OFFERED = ("s3-fifo", "lru", "sieve")
TIER = '[tiers.memory]\neviction_policy = "s3-fifo"\neviction_policies = ["lru", "sieve", "s3-fifo"]\n'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One that was made with s3-fifo, and offers two others."""
    file = tmp_path_factory.mktemp("gateway") / "gateway.toml"
    with (
        emulated() as backend,
        configured(backend.address, file, f"{TIER}{QUIET}[tuning]\nenabled = true\n") as address,
    ):
        yield address


@contextmanager
def daemon(gateway: str, folder: Path, mlruns: Path, *names: str) -> Iterator[Started]:
    """names: of `[cache] eviction_policy`; none where the section is left out."""
    control = {"gateway": gateway, "ledger": f"sqlite:///{folder / 'setpoint.db'}", "timeout_seconds": 15.0}
    sections = {"control": control, "tracking": {"uri": f"sqlite:///{mlruns / 'mlflow.db'}"}}
    cache = {"cache": {"eviction_policy": names}} if names else {}
    made = started(TunerConfig.model_validate(sections | cache), folder, {})
    try:
        yield made
    finally:
        made.close()


def test_settings_that_say_nothing_beside_another_policy_are_refused(
    gateway: str, tmp_path: Path, mlruns: Path
) -> None:
    """Least recently used is what is meant where nothing is said. Nothing has been written then."""
    told = "got lru, expected s3-fifo, or a list that begins with it: the live cache was made with it"
    with pytest.raises(InputError, match=rf"cache\.eviction_policy: {told}"), daemon(gateway, tmp_path, mlruns):
        pass
    assert not (tmp_path / "setpoint.db").exists()


def test_what_is_not_offered_is_refused(gateway: str, tmp_path: Path, mlruns: Path) -> None:
    told = r"cache\.eviction_policy: got lfu, expected of s3-fifo, lru, sieve: the live cache offers no other"
    names = ("s3-fifo", "lfu", "sieve")
    with pytest.raises(InputError, match=told), daemon(gateway, tmp_path, mlruns, *names):
        pass


def test_policies_are_fitted_to_what_the_settings_name(gateway: str, tmp_path: Path, mlruns: Path) -> None:
    with daemon(gateway, tmp_path, mlruns, "s3-fifo", "sieve") as made:
        followed = made.daemon._policies.cache_policies
        assert made.cache.eviction_policies() == OFFERED
    assert followed == policies_called(("s3-fifo", "sieve"))


@pytest.mark.parametrize("names", [("s3-fifo",), ("s3-fifo", "sieve"), ("s3-fifo", "sieve", "lru"), OFFERED])
def test_the_first_is_the_caches_own_and_the_order_of_the_others_does_not_matter(names: tuple[str, ...]) -> None:
    require_offered(policies_called(names), OFFERED)
    require_offered(policies_called(names, ("second-hit",)), OFFERED)


@pytest.mark.parametrize("names", ["all", ("sieve", "s3-fifo"), ("lru",)])
def test_another_one_first_is_refused(names: str | tuple[str, ...]) -> None:
    with pytest.raises(InputError, match=r"cache\.eviction_policy: got .*, expected s3-fifo, or a list that begins"):
        require_offered(policies_called(names), OFFERED)


def test_a_cache_that_does_not_tell_is_believed() -> None:
    for names in ("all", *EVICTIONS, ("sieve", "lru")):
        require_offered(policies_called(names), ())
