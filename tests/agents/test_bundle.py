"""Policy bundles: what is saved comes back to the bit; what is damaged or does not fit is refused by name."""

from __future__ import annotations

import dataclasses
import math
import string
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.actor import Scaler
from agents.baselines.schedule import HourSchedule
from agents.bundle import MANIFEST_FILE, WEIGHTS_FILE, PolicyBundle
from agents.provenance import Provenance, TracePart, git_commit, package_versions
from agents.whatif import WhatIf, WhatIfController
from caches.errors import InputError, Mismatch
from caches.knobs import KnobSettings
from tests.agents.bundles import (
    PROVENANCE,
    REFERENCE,
    SCALE,
    SPACE,
    layered_weights,
    ppo_bundle,
    rule_bundle,
    static_bundle,
)


def rewrite(folder: Path, **changes: object) -> None:
    """Change entries of the manifest's bundle and leave the hash as it was."""
    document = orjson.loads((folder / MANIFEST_FILE).read_bytes())
    document["bundle"] |= changes
    (folder / MANIFEST_FILE).write_bytes(orjson.dumps(document))


names = st.text(string.ascii_letters + "_.ü ", min_size=1, max_size=12)
finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | finite | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def provenances(draw: st.DrawFn) -> Provenance:
    cuts = sorted(draw(st.sets(st.integers(0, 10**6), min_size=4, max_size=4)))
    uses = ("train", "validation", "test")
    sha256 = draw(st.binary(min_size=32, max_size=32)).hex()
    return Provenance(
        traffic=tuple(
            TracePart(draw(names), sha256, use, first, end)
            for use, first, end in zip(uses, cuts, cuts[1:], strict=False)
        ),
        seed=draw(st.none() | st.integers(0, 2**32)),
        git_commit=draw(st.none() | st.just("f" * 40)),
        versions=draw(st.dictionaries(names, names, max_size=3)),
        metrics=draw(st.dictionaries(names, finite, max_size=3)),
        config=draw(st.dictionaries(names, json_values, max_size=3)),
    )


@st.composite
def bundles(draw: st.DrawFn) -> PolicyBundle:
    reference = SPACE.settings(np.array(draw(st.tuples(*[st.floats(0, 1)] * 3))))
    common = {"knob_space": SPACE, "reference": reference, "provenance": draw(provenances())}
    if draw(st.booleans()):
        return PolicyBundle(kind="static", **common)
    sizes = (draw(st.integers(1, 9)), *draw(st.lists(st.integers(1, 9), max_size=2)), 3)
    scaler = Scaler(np.full(sizes[0], draw(finite)), np.full(sizes[0], 0.5), draw(st.floats(0.1, 100)))
    return PolicyBundle(
        kind="ppo",
        observation_version=draw(names),
        observation_size=sizes[0],
        scale=dataclasses.replace(SCALE, interval_usd=draw(st.floats(1e-9, 1e9))),
        weights=layered_weights(sizes, draw(st.integers(0, 99))) | {"critic.0.weight": np.eye(2)},
        scaler=draw(st.sampled_from([None, scaler])),
        **common,
    )


@settings(max_examples=60, deadline=None)
@given(bundle=bundles())
def test_round_trip_keeps_everything(bundle: PolicyBundle) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bundle")
        bundle.save(path)
        loaded = PolicyBundle.load(path)
    for name in ("kind", "knob_space", "reference", "provenance", "observation_version", "observation_size", "scale"):
        assert getattr(loaded, name) == getattr(bundle, name)
    assert loaded.sha256 == bundle.sha256
    assert loaded.weights.keys() == bundle.weights.keys()
    for name, array in bundle.weights.items():
        assert loaded.weights[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded.weights[name], array)
    assert (loaded.scaler is None) == (bundle.scaler is None)
    if bundle.scaler is not None and loaded.scaler is not None:
        np.testing.assert_array_equal(loaded.scaler.mean, bundle.scaler.mean)
        np.testing.assert_array_equal(loaded.scaler.std, bundle.scaler.std)
        assert loaded.scaler.clip == bundle.scaler.clip


def test_loaded_policy_decides_the_same(tmp_path: Path) -> None:
    bundle = ppo_bundle()
    bundle.save(tmp_path / "b")
    observation = np.linspace(-2, 2, 5).astype(np.float32)
    decided = PolicyBundle.load(tmp_path / "b").actor().act(observation)
    assert decided.tolist() == bundle.actor().act(observation).tolist()


def test_hash_tells_policies_apart_and_is_stable() -> None:
    assert ppo_bundle(seed=0).sha256 == ppo_bundle(seed=0).sha256
    assert ppo_bundle(seed=0).sha256 != ppo_bundle(seed=1).sha256
    other = dataclasses.replace(PROVENANCE, seed=8)
    assert dataclasses.replace(static_bundle(), provenance=other).sha256 != static_bundle().sha256
    # Fixed once, so that a change of format or of a serialiser that orphans registered hashes is noticed.
    weights = {
        "actor.0.weight": np.arange(15, dtype=np.float32).reshape(3, 5),
        "actor.0.bias": np.float32([1, 2, 3]),
    }
    assert static_bundle().sha256 == "3e5f8233f867130ea7b25bc5ca1a9865b223afaa70c626d95621e5d130959714"
    assert (
        dataclasses.replace(ppo_bundle(), weights=weights).sha256
        == "26526e3e5508545d788c2f01b2ac3da28adc329e67c1577cf27c077b069ab852"
    )


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_changed_byte_goes_unnoticed(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A changed byte is refused, or it was white space or escaping in the JSON and the policy is the same."""
    folder = tmp_path_factory.mktemp("tamper") / "b"
    bundle = ppo_bundle()
    bundle.save(folder)
    path = folder / data.draw(st.sampled_from([MANIFEST_FILE, WEIGHTS_FILE]))
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        loaded = PolicyBundle.load(folder)
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017 (both outcomes are claims)
    else:
        assert path.name == MANIFEST_FILE
        assert loaded.sha256 == bundle.sha256


@pytest.mark.parametrize("name", [MANIFEST_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated"])
def test_missing_or_cut_file_is_named(tmp_path: Path, name: str, damage: str) -> None:
    ppo_bundle().save(tmp_path / "b")
    path = tmp_path / "b" / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(b"" if damage == "empty" else content[:-5])
    with pytest.raises(InputError, match=name):
        PolicyBundle.load(tmp_path / "b")


def test_weights_of_another_bundle_are_refused(tmp_path: Path) -> None:
    ppo_bundle(seed=0).save(tmp_path / "a")
    ppo_bundle(seed=1).save(tmp_path / "b")
    (tmp_path / "b" / WEIGHTS_FILE).write_bytes((tmp_path / "a" / WEIGHTS_FILE).read_bytes())
    with pytest.raises(InputError, match=r"weights\.safetensors.*belongs to another bundle"):
        PolicyBundle.load(tmp_path / "b")


def test_pickle_in_place_of_weights_is_refused_unread(tmp_path: Path) -> None:
    """The pickle would create a file when loaded."""
    ppo_bundle().save(tmp_path / "b")
    marker = tmp_path / "executed"
    (tmp_path / "b" / WEIGHTS_FILE).write_bytes(f"cpathlib\nPath\n(V{marker}\ntR.".encode())
    with pytest.raises(InputError, match=r"weights\.safetensors"):
        PolicyBundle.load(tmp_path / "b")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observation_version": "2"}, "it was changed"),
        ({"kind": "oracle"}, r"kind: got 'oracle'"),
        ({"provenance": None}, "provenance: got None"),
        ({"knob_space": {}}, r"knob_space\.cache_size"),
        ({"weights_sha256": "0" * 64}, "it was changed"),
    ],
)
def test_edited_manifest_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    ppo_bundle().save(tmp_path / "b")
    rewrite(tmp_path / "b", **changes)
    with pytest.raises(InputError, match=f"bundle.json.*{message}"):
        PolicyBundle.load(tmp_path / "b")


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"format": 2}', b"nul", b"{" * 10_000])
def test_other_json_is_refused(tmp_path: Path, content: bytes) -> None:
    ppo_bundle().save(tmp_path / "b")
    (tmp_path / "b" / MANIFEST_FILE).write_bytes(content)
    with pytest.raises(InputError, match=r"bundle\.json"):
        PolicyBundle.load(tmp_path / "b")


def test_save_replaces_a_bundle_and_leaves_nothing_else(tmp_path: Path) -> None:
    ppo_bundle(seed=0).save(tmp_path / "b")
    ppo_bundle(seed=1).save(tmp_path / "b")
    assert PolicyBundle.load(tmp_path / "b").sha256 == ppo_bundle(seed=1).sha256
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_save_refuses_a_folder_that_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="not a policy bundle"):
        ppo_bundle().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_require_passes_what_fits_and_names_both_sides_of_what_does_not() -> None:
    bundle = ppo_bundle()
    bundle.require(observation_version="1", observation_size=5, knob_space=SPACE)
    wider = dataclasses.replace(SPACE, ttl_seconds=dataclasses.replace(SPACE.ttl_seconds, high=90_000.0))
    with pytest.raises(Mismatch) as raised:
        bundle.require(observation_version="2", observation_size=6, knob_space=wider)
    text = str(raised.value)
    assert "observation version: the bundle has '1', this program has '2'" in text
    assert "observation size: the bundle has 5, this program has 6" in text
    assert "ttl_seconds.high: the bundle has 86400.0, this program has 90000.0" in text


def test_static_policy_fits_any_observation_but_not_any_knob_space() -> None:
    static_bundle().require(observation_version="9", observation_size=1, knob_space=SPACE)
    narrow = dataclasses.replace(SPACE, cache_size=dataclasses.replace(SPACE.cache_size, max_step=0.05))
    with pytest.raises(Mismatch, match=r"cache_size\.max_step: the bundle has 0\.1, this program has 0\.05"):
        static_bundle().require(observation_version="9", observation_size=1, knob_space=narrow)
    with pytest.raises(InputError, match="got kind 'static'"):
        static_bundle().actor()


HOME = SPACE.positions(REFERENCE)
positions = st.floats(0.0, 1.0)
options = st.builds(
    WhatIf,
    memory=st.floats(0.0, 0.999),
    margin=st.floats(0.0, 1.0) | st.just(math.inf),
    charge=st.floats(0.0, 10.0),
    reach=st.floats(0.01, 1.0),
    horizon=st.integers(1, 500),
    unsafe_memory=st.floats(0.0, 0.999),
)


@settings(max_examples=50, deadline=None)
@given(options=options, allowed=st.floats(0.0, 1.0))
def test_a_what_if_controller_comes_back_as_it_was(options: WhatIf, allowed: float) -> None:
    """An infinite margin, too: that one never moves."""
    bundle = rule_bundle(WhatIfController(HOME, SPACE.max_steps, allowed, options))
    with tempfile.TemporaryDirectory() as scratch:
        bundle.save(Path(scratch) / "b")
        loaded = PolicyBundle.load(Path(scratch) / "b")
    assert loaded.sha256 == bundle.sha256
    found = loaded.rule()
    assert isinstance(found, WhatIfController)
    assert (found.options, found.allowed) == (options, allowed)
    np.testing.assert_array_equal(found.home, HOME)
    np.testing.assert_array_equal(found.max_steps, SPACE.max_steps)


@settings(max_examples=30, deadline=None)
@given(slots=st.lists(st.tuples(positions, positions, positions), min_size=1, max_size=168))
def test_a_schedule_comes_back_as_it_was(slots: list[tuple[float, float, float]]) -> None:
    bundle = rule_bundle(HourSchedule(HOME, np.array(slots)))
    with tempfile.TemporaryDirectory() as scratch:
        bundle.save(Path(scratch) / "b")
        found = PolicyBundle.load(Path(scratch) / "b").rule()
    assert isinstance(found, HourSchedule)
    np.testing.assert_array_equal(found.slots, slots)
    np.testing.assert_array_equal(found.home, HOME)


def test_rules_do_not_observe_and_have_no_network() -> None:
    bundle = rule_bundle(WhatIfController(HOME, SPACE.max_steps, 0.001))
    bundle.require(observation_version="9", observation_size=1, knob_space=SPACE)
    with pytest.raises(InputError, match="got kind 'whatif', expected 'ppo'"):
        bundle.actor()
    with pytest.raises(InputError, match="got kind 'static', expected one of whatif, schedule"):
        static_bundle().rule()
    with pytest.raises(InputError, match="has no scaler and no observation"):
        dataclasses.replace(bundle, observation_version="1")
    with pytest.raises(InputError, match="scale is missing"):
        dataclasses.replace(bundle, scale=None)


def test_arrays_that_make_no_rule_are_refused() -> None:
    bundle = rule_bundle(WhatIfController(HOME, SPACE.max_steps, 0.001))
    arrays = dict(bundle.weights)
    with pytest.raises(InputError, match=r"weights: got schedule\.slots, expected whatif\.allowed, whatif\.charge"):
        dataclasses.replace(bundle, weights={"schedule.slots": np.zeros((24, 3))})
    with pytest.raises(InputError, match=r"whatif\.margin: got shape \(2,\), expected \(1,\)"):
        dataclasses.replace(bundle, weights=arrays | {"whatif.margin": np.zeros(2)})
    with pytest.raises(InputError, match=r"memory: got 1\.5, expected in \[0, 1\)"):
        dataclasses.replace(bundle, weights=arrays | {"whatif.memory": np.array([1.5])})
    with pytest.raises(InputError, match=r"slots: got shape \(3,\), expected \(hours, 3\)"):
        dataclasses.replace(bundle, kind="schedule", weights={"schedule.slots": np.zeros(3)})


def test_parts_that_do_not_fit_cannot_become_a_bundle() -> None:
    with pytest.raises(InputError, match="observation_size is 4, but the actor takes 5"):
        dataclasses.replace(ppo_bundle(), observation_size=4)
    with pytest.raises(InputError, match="observation_version is missing"):
        dataclasses.replace(ppo_bundle(), observation_version=None)
    with pytest.raises(InputError, match="a static policy has no weights"):
        dataclasses.replace(ppo_bundle(), kind="static")
    with pytest.raises(InputError, match=r"ttl_seconds: got 0\.5 s, expected 1\.0 to 86400\.0"):
        dataclasses.replace(static_bundle(), reference=KnobSettings(2e8, 0.5, 0.0))
    with pytest.raises(InputError, match="got float16"):
        dataclasses.replace(ppo_bundle(), weights={"actor.0.weight": np.zeros((3, 5), np.float16)})
    with pytest.raises(InputError, match=r"'scaler\.mean', a name kept"):
        dataclasses.replace(ppo_bundle(), weights=ppo_bundle().weights | {"scaler.mean": np.zeros(5)})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**70, (1, 2), object()])
def test_config_without_a_json_form_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="policy bundle"):
        dataclasses.replace(static_bundle(), provenance=dataclasses.replace(PROVENANCE, config={"x": value}))


def test_settings_given_as_whole_numbers_hash_like_the_same_floats() -> None:
    whole = dataclasses.replace(static_bundle(), reference=KnobSettings(200_000_000, 600, 0.25))
    assert whole.sha256 == dataclasses.replace(static_bundle(), reference=REFERENCE).sha256


def test_test_traffic_must_not_overlap_training_traffic() -> None:
    train = TracePart("a", "1" * 64, "train", 0, 10)
    with pytest.raises(InputError, match="train intervals 0 to 10 overlap test intervals 9 to 20"):
        Provenance(traffic=(train, TracePart("a", "1" * 64, "test", 9, 20)))
    # Touching ranges and the same ranges of another trace are disjoint.
    Provenance(traffic=(train, TracePart("a", "1" * 64, "test", 10, 20)))
    Provenance(traffic=(train, TracePart("b", "2" * 64, "test", 0, 10)))


def test_empty_traffic_part_is_refused() -> None:
    with pytest.raises(InputError, match="got intervals 5 to 5"):
        TracePart("a", "1" * 64, "test", 5, 5)


def test_versions_leave_out_what_is_not_installed() -> None:
    versions = package_versions(("numpy", "no-such-package"))
    assert versions.keys() == {"python", "numpy"}
    assert versions["numpy"] == np.__version__


def test_commit_is_the_one_checked_out_and_marked_when_files_differ(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert git_commit(tmp_path) is None  # no repository
    git("init")
    assert git_commit(tmp_path) is None  # no commit
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "first")
    git("tag", "-m", "tagged", "v1")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "file").write_text("22")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"
