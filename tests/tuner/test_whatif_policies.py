"""What-ifs over several policies of the cache: against full replays of all of them, and how they are asked and told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from api.cli.whatif import asked_policies
from api.report.whatif import whatif_page
from caches.errors import InputError
from caches.policies.catalog import EVICTIONS
from caches.policies.pair import PLAIN, CachePolicy, policies_called
from caches.policies.prefix_settings import PREFIX_EVICTIONS
from envs.interval import column, total_usd, unsafe
from envs.reward import Constraints
from envs.world import World
from tests.envs.worlds import problem, random_trace
from tests.tuner.test_whatif import CURRENT, WHOLE, cells_of, config_of
from traces.whatif import Sampling
from tuner.whatif import Ask, what_if
from tuner.whatif_current import Wish, parse_wish, policy_of
from tuner.whatif_figure import draw_whatif
from tuner.whatif_policies import Policies
from tuner.whatif_result import WhatIf
from tuner.whatif_surface import Cells
from tuner.whatif_text import by_policy, comparison, sentences

SOME = policies_called(("lru", "sieve", "gdsf"), ("all", "tinylfu"))
EASY = Constraints(p99_ttft_seconds=1e6, stale_ratio=1.0)


def cells(world: World, bounded: bool, progress: object) -> Cells:
    return cells_of(world)


@pytest.mark.parametrize("policy", [CachePolicy("s3-fifo"), CachePolicy("lru", "second-hit")], ids=str)
@pytest.mark.parametrize(("plain", "warmup_ratio"), [(True, 0.0), (False, 0.5)])
def test_the_surface_is_what_full_replays_cost_without_slow_requests(
    policy: CachePolicy, plain: bool, warmup_ratio: float
) -> None:
    world = World(problem(random_trace(1, intervals=20, plain=plain), policy=policy))
    found = cells_of(world, warmup_ratio)
    rows = world.replay_static(found.grid.settings, len(world))
    np.testing.assert_allclose(found.grid.usd, total_usd(rows) - column(rows, "slow_usd"), rtol=1e-6)
    np.testing.assert_array_equal(found.hits[0].reshape(12, -1), column(rows, "hits"))
    if found.bound is not None:
        assert (found.bound.values >= found.hit_ratio.values).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "constraints", [EASY, Constraints(p99_ttft_seconds=1.0005, stale_ratio=0.2, max_unsafe_per_1000=400)]
)
@pytest.mark.parametrize("here", [PLAIN, CachePolicy("lfu")], ids=str)
def test_the_choice_is_the_cheapest_safe_of_every_setting_under_every_policy(
    seed: int, constraints: Constraints, here: CachePolicy
) -> None:
    world = World(replace(problem(random_trace(seed, intervals=20)), constraints=constraints))
    asked = Policies(world, SOME, (here, CURRENT))
    asked.survey(cells, None)
    each = asked.choose(WHOLE)
    assert [one.policy for one in each] == list(SOME)
    best = asked.best(each, WHOLE)
    every = [CURRENT, *cells_of(world).grid.settings]
    priced = {(here, CURRENT): 0.0}
    for policy, settings in ((here, [CURRENT]), *((policy, every) for policy in SOME)):
        rows = world.under(policy).replay_static(settings, len(world))
        broken = 1000.0 * unsafe(rows, constraints).mean(axis=1)
        for one, usd, share in zip(settings, total_usd(rows).sum(axis=1), broken, strict=True):
            priced[policy, one] = float(usd) if share <= constraints.max_unsafe_per_1000 else np.inf
    assert best.choice.proven
    assert best.choice.safe == np.isfinite(min(priced.values()))
    if best.choice.safe:
        assert priced[best.policy, best.choice.settings] == min(priced.values())
    for one in each:
        mine = {place: usd for place, usd in priced.items() if place[0] == one.policy}
        assert mine[one.policy, one.choice.settings] == min(mine.values()) or not one.choice.safe


def scanned(wish: Wish = Wish(), **changes: object) -> WhatIf:
    """Four keys of 100 bytes in turn, each asked for twice and then followed by four keys that never come again.

    Between the pairs of a key 19 others are asked for, so with room for 8 LRU hits the second of each pair and no more;
    LFU lets go what was used once, and from the second pair on hits both. Of the 7,000 requests in the 35 intervals of
    10 s, at 20 a second, 291 whole turns of 24 and 16 more: LRU hits 4 x 291 + 3 = 1,167, LFU 8 x 291 - 4 + 6 = 2,330.
    """
    pairs = [(turn, i) for turn in range(300) for i in range(4)]
    key = np.array([k for turn, i in pairs for k in (i, i, *(4 + 16 * turn + 4 * i + j for j in range(4)))])
    trace = replace(
        random_trace(0),
        arrival_seconds=np.arange(len(key)) / 20.0,
        key=key.astype(np.int32),
        size_bytes=np.full(len(key), 100, np.int32),
        num_keys=int(key.max()) + 1,
        prompt_tokens=np.full(len(key), 100, np.int32),
        output_tokens=np.full(len(key), 10, np.int32),
    )
    sizes = {"knobs.cache_size.low": 800.0, "knobs.cache_size.high": 1_600.0, "knobs.cache_size.default": 800.0}
    sizes |= {"prices.memory_usd_per_gib_hour": 1.0, "prices.answer_lifetime_seconds": 1e12}
    config = config_of(**sizes, **{"constraints.p99_ttft_seconds": 1e6})
    return what_if(config, trace, Ask(wish, 2, 2, **changes))  # type: ignore[arg-type]


def test_the_policy_that_lets_passing_keys_go_wins_where_keys_pass() -> None:
    result = scanned(policies=policies_called(("lru", "lfu")))
    assert result.current.policy == "lru"
    assert result.current.hit_ratio == 1_167 / 7_000
    assert result.best.policy == "lfu"
    assert result.best.hit_ratio == 2_330 / 7_000
    assert not result.stays
    assert [one.policy for one in result.policies] == ["lru", "lfu"]
    assert result.policies[1].best == result.best
    assert result.policies[1].saving.usd_per_day == pytest.approx(result.saving.usd_per_day)
    assert result.policies[0].best == result.current  # no size or TTL helps LRU
    assert result.held_out is not None
    assert result.held_out.policy == "lfu"
    assert result.held_out.saving.usd_per_day > 0


def test_the_policies_stand_side_by_side_in_table_page_and_picture() -> None:
    result = scanned(policies=policies_called("all"))
    table = by_policy(result)
    assert {row[0].removesuffix("*") for row in table.rows} == set(EVICTIONS)
    assert sum(row[0].endswith("*") for row in table.rows) == 1
    assert comparison(result).columns[1] == "policy"
    assert any("Of the other policies" in one for one in sentences(result))
    titles = [section.title for section in whatif_page(result, "2026-01-01").sections]
    assert "Which entry goes: policies side by side" in titles
    labels = [text.get_text() for axes in draw_whatif(result).axes[2:4] for text in axes.get_legend().get_texts()]
    for name in EVICTIONS:
        assert sum(label.startswith(("LRU" if name == "lru" else name) + ",") for label in labels) == 2, name


def test_without_a_word_about_policies_none_is_spoken_of() -> None:
    result = scanned()
    assert not result.names_policies
    assert comparison(result).columns[1] == "size"
    assert not any("polic" in one for one in sentences(result))
    assert len(whatif_page(result, "2026-01-01").sections) == 5


def test_samples_of_keys_estimate_every_policy() -> None:
    result = scanned(policies=(PLAIN, CachePolicy("sieve")), exact_up_to=100, sampling=Sampling(2, 4_000))
    assert result.sampled is not None
    for one in result.policies:
        assert one.hit_ratio.error is not None


def test_what_runs_now_is_priced_under_its_own_policy() -> None:
    wish = parse_wish("size=800,ttl=1000,policy=lfu")
    result = scanned(wish, policies=policies_called(("lru", "lfu")))
    assert result.current.policy == "lfu"
    assert result.current.hit_ratio == 2_330 / 7_000
    assert result.stays
    alone = scanned(wish)  # the surface is LRU's
    assert alone.shown == "lru"
    assert alone.best.policy == "lfu"
    assert alone.stays
    assert alone.names_policies


def test_policies_are_asked_for_by_name() -> None:
    config = config_of(**{"cache.eviction_policy": ["lru", "sieve"], "cache.admission": "tinylfu"})
    assert [str(one) for one in asked_policies(config, None, None)] == ["lru + tinylfu", "sieve + tinylfu"]
    assert [str(one) for one in asked_policies(config, "lfu, gdsf", "all")] == ["lfu", "gdsf"]
    assert len(asked_policies(config, "all", "all,second-hit")) == 2 * len(EVICTIONS)
    with pytest.raises(InputError, match="eviction_policy: got 'fifo', expected of lru"):
        asked_policies(config, "fifo", None)
    with pytest.raises(InputError, match="admission: got 'none'"):
        parse_wish("admission=none")
    with pytest.raises(InputError, match="expected it once"):
        parse_wish("policy=lru,eviction_policy=sieve")
    assert policy_of(parse_wish("policy=sieve"), config.cache.policies) == (CachePolicy("sieve"), [])
    taken, remarks = policy_of(Wish(), config.cache.policies)
    assert (taken, len(remarks)) == (PLAIN, 1)


def test_settings_name_one_policy_or_several() -> None:
    assert config_of().cache.policy == PLAIN
    config = config_of(**{"cache.eviction_policy": "all"})
    assert [one.eviction for one in config.cache.policies] == list(EVICTIONS)
    with pytest.raises(InputError, match=r"cache\.eviction_policy: got lru, .*, w-tinylfu, expected one: "):
        _ = config.cache.policy
    assert config.cache.under(CachePolicy("sieve", "tinylfu")).policy == CachePolicy("sieve", "tinylfu")
    for wrong in ("fifo", ["lru", "all"], []):
        with pytest.raises(InputError, match=r"cache\.eviction_policy: got .*, expected one of lru"):
            config_of(**{"cache.eviction_policy": wrong})
    with pytest.raises(InputError, match=r"cache\.admission: got 'x', expected one of all"):
        config_of(**{"cache.admission": "x"})
    for kind, alien in (("prefix", "w-tinylfu"), ("response", "hit-density")):
        with pytest.raises(InputError, match=rf"cache\.eviction_policy: got '{alien}', expected one of lru, "):
            config_of(**{"cache.eviction_policy": alien, "cache.kind": kind})
    with pytest.raises(InputError, match=r"cache\.admission: got 'tinylfu', expected one of all, second-hit"):
        config_of(**{"cache.admission": "tinylfu", "cache.kind": "prefix"})
    every = config_of(**{"cache.eviction_policy": "all", "cache.kind": "prefix"})
    assert [one.eviction for one in every.cache.policies] == list(PREFIX_EVICTIONS)
    assert asked_policies(every, "all", None) == every.cache.policies
    with pytest.raises(InputError, match=r"eviction_policy: got 'w-tinylfu', expected of lru, .* in a prefix cache"):
        asked_policies(every, "w-tinylfu", None)
