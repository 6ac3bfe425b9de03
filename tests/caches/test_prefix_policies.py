from __future__ import annotations

from pathlib import Path as FilePath

import numpy as np
import pytest

from caches.errors import InputError
from caches.policies.live.prefix import EvictingPrefixCache
from caches.policies.prefix_cache import PolicyPrefixCache
from caches.policies.prefix_settings import (
    PREFIX_EVICTIONS,
    DepthCost,
    HitDensity,
    KnownBlocks,
    PrefixRules,
    prefix_eviction_called,
    prefix_rules,
)
from caches.policies.settings import Lfu, Lru, LruK
from caches.shadow import chain
from caches.shadow.chain import PrefixCache
from tests.caches.test_chain import chains_from, check_circles, followed_live, followed_shadow, path_of, run_shadow
from tests.contracts.prefix_contract import Arrive, Finish, Path, Script, Seen
from tests.contracts.prefix_policy_contract import PrefixPolicyContract, model_with

BLOCK_TOKENS = 2_048  # a short prompt of 4 blocks, a short continuation of 1
CASES = {
    "lru": (Lru(), None),
    "lru-2": (LruK(2), None),
    "lru-3 second hit": (LruK(3), KnownBlocks()),
    "lfu": (Lfu(), None),
    "gdsf": (DepthCost(1e-4), None),
    "hit density": (HitDensity(every=3, strength=0.5, half_life=20), None),
    "hit density takes all": (HitDensity(every=2, strength=0.1, takes_all=True), None),
    "hit density second hit": (HitDensity(every=4, strength=2.0), KnownBlocks()),
}


def rules_for(case: str) -> PrefixRules:
    eviction, admission = CASES[case]
    return (
        prefix_rules(eviction, BLOCK_TOKENS) if admission is None else prefix_rules(eviction, BLOCK_TOKENS, admission)
    )


def run_policy_shadow(script: Script, rules: PrefixRules) -> list[Seen]:
    chains = chains_from(script.prompts)
    names = path_of(chains, script.prompts)
    cache = PolicyPrefixCache(chains, rules, script.upper, script.ttl, script.lower)
    return followed_shadow(cache, script, names, check_all)


def check_all(cache: PolicyPrefixCache) -> None:
    check_circles(cache)
    check_leaves(cache)


def check_leaves(cache: PolicyPrefixCache) -> None:
    """Exactly those that may go, each where it says that it stands."""
    state, notes = cache.state, cache.notes
    upper = np.flatnonzero(state.place == chain.UPPER)
    with_child = {int(cache.chains.parent[node]) for node in upper}
    leaves = [int(node) for node in upper if state.pins[node] == 0 and int(node) not in with_child]
    listed = notes.leaf[: notes.tally[0]]
    assert sorted(listed.tolist()) == leaves
    assert [int(notes.spot[node]) for node in listed] == list(range(len(listed)))
    assert np.count_nonzero(notes.spot >= 0) == len(listed)


def run_policy_live(script: Script, rules: PrefixRules) -> list[Seen]:
    return followed_live(EvictingPrefixCache(rules, script.upper, script.ttl, script.lower), script)


for number, name in enumerate(CASES):
    for kind, runner in (("Shadow", run_policy_shadow), ("Live", run_policy_live)):
        parts = {"run": staticmethod(runner), "rules": rules_for(name)}
        globals()[f"Test{kind}{number}"] = type(f"Test{kind}{number}", (PrefixPolicyContract,), parts)
del parts, runner

RUNS = pytest.mark.parametrize("run", [run_policy_shadow, run_policy_live, model_with], ids=["shadow", "live", "model"])


def in_turn(prompts: tuple[Path, ...], seconds: tuple[float, ...], upper: int) -> Script:
    steps = [step for t, at in enumerate(seconds) for step in (Arrive(at, t), Finish(at, t))]
    return Script(prompts, upper, np.inf, 0, tuple(steps))


def hits_of(told: list[Seen]) -> list[int]:
    return [sum(seen.answer) for seen in told[::2]]


@RUNS
@pytest.mark.parametrize("case", ["lru-2", "lfu"])
def test_what_was_used_twice_outlives_what_was_used_once(run: object, case: str) -> None:
    # room for 2: 1 twice, 2 once; 3 takes the place of 2, where the least recently used would be 1
    script = in_turn(((1,), (1,), (2,), (3,), (1,)), (0.0, 1.0, 2.0, 3.0, 4.0), 2)
    assert hits_of(run(script, rules_for(case))) == [0, 1, 0, 0, 1]
    assert hits_of(run(script, rules_for("lru"))) == [0, 1, 0, 0, 0]


@RUNS
def test_uses_fade(run: object) -> None:
    # after 100 minutes two uses count 2 x 0.95 ^ 100 = 0.012, less than one use now
    script = in_turn(((1,), (1,), (2,), (3,), (1,)), (0.0, 1.0, 6_000.0, 6_001.0, 6_002.0), 2)
    assert hits_of(run(script, rules_for("lfu"))) == [0, 1, 0, 0, 0]


@RUNS
def test_what_is_deep_costs_more(run: object) -> None:
    # a block costs 1 more than the one before it. 1 is worth 1, 12 worth 2, 3 worth 1. Room for 3.
    # 4: of the leaves 12 and 3 the cheaper, 3, goes, so the age is 1 and 4 worth 2.
    # 5: 12 and 4 are worth the same, 12 was used first and goes. 1 2: hits 1.
    rules = prefix_rules(DepthCost(1 / BLOCK_TOKENS), BLOCK_TOKENS)
    script = in_turn(((1, 2), (3,), (4,), (5,), (1, 2)), (0.0, 1.0, 2.0, 3.0, 4.0), 3)
    assert hits_of(run(script, rules)) == [0, 0, 0, 0, 1]
    assert hits_of(run(script, rules_for("lru"))) == [0, 0, 0, 0, 0]


@RUNS
def test_second_hit_takes_in_what_was_asked_for_before(run: object) -> None:
    rules = prefix_rules(Lru(), BLOCK_TOKENS, KnownBlocks())
    script = in_turn(((1, 2), (1, 3), (1, 2), (1, 2)), (0.0, 1.0, 2.0, 3.0), 9)
    told = run(script, rules)
    # 1 is taken in by the second request, 12 by the third, which hits 1; the fourth hits both
    assert hits_of(told) == [0, 0, 1, 2]
    assert told[-1].stats.refusals == 3  # 1, 12 and 13


def two_crowds() -> tuple[tuple[Path, ...], tuple[float, ...]]:
    """Every second one prompt of 3 blocks, asked for again after 10 s, and one of 10 blocks that never is."""
    prompts: list[tuple[float, Path]] = []
    for second in range(400):
        blocks = tuple(range(20 * second, 20 * second + 13))
        prompts += [(second, blocks[:3]), (second + 10.5, blocks[:3]), (second, blocks[3:])]
    prompts = [(at, path) for at, path in prompts if at < 400]
    prompts.sort()
    return tuple(path for _, path in prompts), tuple(float(at) for at, _ in prompts)


def test_learns_who_comes_back() -> None:
    prompts, seconds = two_crowds()
    rules = prefix_rules(HitDensity(), BLOCK_TOKENS)
    chains = chains_from(prompts)
    hits = PolicyPrefixCache(chains, rules, 60).run_at(np.array(seconds))
    # 13 blocks come in a second, so 60 are gone after 5 s in order of use; 33 hold all that comes back after 10.5 s
    assert PrefixCache(chains, 60).run(len(prompts)).sum() == 0
    half, seen, again = len(prompts) // 2, set(prompts[: len(prompts) // 2]), 0
    for prompt in prompts[half:]:
        again += len(prompt) if prompt in seen else 0
        seen.add(prompt)
    assert hits[half:].sum() > 0.9 * again
    live: EvictingPrefixCache[int] = EvictingPrefixCache(rules, 60)
    told = []
    for t, (prompt, at) in enumerate(zip(prompts, seconds, strict=True)):
        told.append(sum(live.arrive(t, prompt, at)))
        live.finish(t, at)
    assert told == hits.tolist()


def test_least_recently_used_is_the_cache_of_old() -> None:
    random = np.random.default_rng(3)
    prompts = tuple(tuple(random.integers(0, 3, random.integers(0, 6)).tolist()) for _ in range(300))
    chains = chains_from(prompts)
    old, new = PrefixCache(chains, 20), PolicyPrefixCache(chains, rules_for("lru"), 20)
    assert new.run(300).tolist() == old.run(300).tolist()
    assert new.stats() == old.stats()
    steps = tuple(step for t in range(40) for step in (Arrive(float(t), t), Finish(t + 2.5, t)))
    script = Script(prompts, 8, 6.0, 4, tuple(sorted(steps, key=lambda step: step.time)))
    assert run_policy_shadow(script, rules_for("lru")) == run_shadow(script)


def test_what_makes_no_sense_is_refused() -> None:
    assert prefix_eviction_called("hit-density") == PREFIX_EVICTIONS["hit-density"]
    with pytest.raises(InputError, match="eviction_policy: got 'mru', expected of lru, lru-2, lru-3, lfu, gdsf, hit-d"):
        prefix_eviction_called("mru")
    for bad, text in (
        (lambda: HitDensity(every=0), "every: got 0, expected 1 or more"),
        (lambda: HitDensity(half_life=0), "half_life: got 0, expected 1 or more"),
        (lambda: HitDensity(strength=0.0), "strength: got 0.0, expected above 0"),
        (lambda: DepthCost(-1.0), "attention_per_token: got -1.0, expected 0 to 1"),
        (lambda: prefix_rules(Lru(), 0), "block_tokens: got 0, expected 1 or more"),
        (lambda: prefix_rules(Lru(), 16, remembered=0), "remembered: got 0, expected 1 or more"),
    ):
        with pytest.raises(InputError, match=text):
            bad()
    cache = PolicyPrefixCache(chains_from(((1,), (2,))), rules_for("lfu"), 4)
    with pytest.raises(InputError, match="seconds: got 2, expected one for each of the first requests, in order"):
        cache.run_at(np.array([1.0, 0.0]))


def test_the_example_in_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (FilePath(__file__).parents[2] / "docs" / "prefix-caches.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].partition("```")[0]
    exec(code, {})
    said = [line.rpartition("# ")[2] for line in code.splitlines() if line.startswith("print(")]
    assert capsys.readouterr().out.splitlines() == said
