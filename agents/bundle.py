"""A policy bundle: everything a policy needs to decide, and where it comes from, in one folder of two files.

`weights.safetensors` holds arrays, `bundle.json` all the rest. Reading either executes no code. `bundle.json`
carries the hash of the weights and of itself: that finds damage, careless edits and mixed-up files. It is no
signature; whoever can write the folder can recompute it. The registry keeps the hash apart from the folder.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import orjson
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError

from agents.actor import Actor, Scaler, actor_from, frozen_array
from agents.provenance import Provenance
from agents.rules import RULES, Rule, rule_from
from caches.errors import InputError, Mismatch, SetpointError
from caches.knobs import KNOB_NAMES, KnobSettings, KnobSpace
from caches.policies.pair import PLAIN, CachePolicy
from envs.observation import ObservationScale

FORMAT = 1
WEIGHTS_FILE = "weights.safetensors"
MANIFEST_FILE = "bundle.json"

PolicyKind = Literal["ppo", "static", "whatif", "schedule"]

_STORABLE = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64))
_SCALER_MEAN, _SCALER_STD = "scaler.mean", "scaler.std"


@dataclass(frozen=True)
class _Manifest:
    """What `bundle.json` says under "bundle"."""

    kind: PolicyKind
    knob_space: KnobSpace
    reference: KnobSettings
    provenance: Provenance
    observation_version: str | None
    observation_size: int | None
    scale: ObservationScale | None
    scaler_clip: float | None
    weights_sha256: str
    policy: CachePolicy = PLAIN
    choices: tuple[CachePolicy, ...] = ()


_MANIFEST = TypeAdapter(_Manifest)


@dataclass(frozen=True, eq=False)
class PolicyBundle:
    """One policy, complete. Two bundles are the same policy where their `sha256` is the same.

    kind "ppo": `weights` holds the actor as `actor.0.weight` (outputs, inputs), `actor.0.bias` (outputs,) and
    on, float32, and its `dead_band` (1,) if it has one; other names (a critic) are kept but not used for deciding. kind
    "static": no weights, no scaler and no observation: it always asks for `reference`. kinds "whatif" and "schedule":
    `weights` holds what agents.rules wants, there is no scaler and no observation. reference: the settings that action
    zero means. scale: what training traffic was like, which gives the observation its units and says how long an
    interval was. policy: of the cache that the policy was made for, eviction and admission. choices: eviction policies
    that a what-if controller chooses between, `policy` the first; none: it cannot change it.
    Raises InputError where the parts do not fit each other.
    """

    kind: PolicyKind
    knob_space: KnobSpace
    reference: KnobSettings
    provenance: Provenance
    observation_version: str | None = None
    observation_size: int | None = None
    scale: ObservationScale | None = None
    weights: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    scaler: Scaler | None = None
    policy: CachePolicy = PLAIN
    choices: tuple[CachePolicy, ...] = ()

    def __post_init__(self) -> None:
        arrays = {name: _storable(name, array) for name, array in self.weights.items()}
        object.__setattr__(self, "weights", MappingProxyType(arrays))
        _check_reference(self.reference, self.knob_space)
        if self.kind == "static":
            self._check_static()
        elif self.kind == "ppo":
            self._check_network()
        else:
            self._check_rule()
        self._check_choices()
        self._body(b"")

    @property
    def sha256(self) -> str:
        """Hash of everything in the bundle, as 64 hex digits."""
        return _sha256(_canonical(self._body(self._weights_file())))

    def actor(self) -> Actor:
        """The network, ready to decide. Raises InputError for a policy of another kind, which has none."""
        if self.kind != "ppo":
            raise InputError(f"policy bundle: got kind '{self.kind}', expected 'ppo' to build an actor")
        return actor_from(self.weights, self.scaler)

    def rule(self) -> Rule:
        """The what-if controller or the schedule, with nothing remembered. Raises InputError for another kind."""
        if self.kind == "ppo" or self.kind == "static":
            raise InputError(f"policy bundle: got kind '{self.kind}', expected one of {', '.join(RULES)}")
        return rule_from(self.kind, self.weights, self.knob_space, self.reference, self.choices)

    def require(
        self, *, observation_version: str, observation_size: int, knob_space: KnobSpace, policy: CachePolicy = PLAIN
    ) -> None:
        """Raise Mismatch, naming both sides of every difference, unless the policy fits what is running here.

        policy: of the cache. Only a network observes; of the others knob space and cache alone have to agree.
        """
        differences = _knob_differences(self.knob_space, knob_space)
        if self.policy != policy:
            differences.append(("policy of the cache", str(self.policy), str(policy)))
        if self.kind == "ppo":
            if self.observation_version != observation_version:
                differences.append(("observation version", self.observation_version, observation_version))
            if self.observation_size != observation_size:
                differences.append(("observation size", self.observation_size, observation_size))
        if differences:
            listed = "; ".join(
                f"{what}: the bundle has {ours!r}, this program has {theirs!r}" for what, ours, theirs in differences
            )
            raise Mismatch(f"policy bundle {self.sha256[:12]} does not fit: {listed}")

    def save(self, folder: Path) -> None:
        """Write both files into `folder`; it appears complete or not at all.

        A bundle already there is replaced (between two renames nothing is there); any other folder is refused
        with InputError. Raises SetpointError where the disk refuses.
        """
        if folder.exists() and not _holds_only_a_bundle(folder):
            raise InputError(f"{folder}: got something that is not a policy bundle, expected a new folder")
        weights = self._weights_file()
        body = self._body(weights)
        document = {"format": FORMAT, "sha256": _sha256(_canonical(body)), "bundle": body}
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
                fresh = Path(scratch) / "new"
                fresh.mkdir()
                (fresh / WEIGHTS_FILE).write_bytes(weights)
                (fresh / MANIFEST_FILE).write_bytes(
                    orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
                )
                if folder.exists():
                    folder.rename(Path(scratch) / "old")
                fresh.rename(folder)
        except OSError as error:
            raise SetpointError(f"{folder}: cannot write the policy bundle: {error.strerror}") from error

    @staticmethod
    def load(folder: Path) -> PolicyBundle:
        """Read a saved bundle. Raises InputError naming the file that is missing, damaged or another's."""
        manifest_path, weights_path = folder / MANIFEST_FILE, folder / WEIGHTS_FILE
        manifest = _read_manifest(manifest_path)
        weights = _read_weights(weights_path, manifest.weights_sha256)
        try:
            return _assemble(manifest, weights)
        except InputError as error:
            raise InputError(f"{folder}: {error}") from error

    def _weights_file(self) -> bytes:
        arrays = dict(self.weights)
        if self.scaler is not None:
            arrays |= {_SCALER_MEAN: self.scaler.mean, _SCALER_STD: self.scaler.std}
        return bytes(safetensors.numpy.save(arrays))

    def _body(self, weights_file: bytes) -> dict[str, Any]:
        fields = {
            "kind": self.kind,
            "knob_space": asdict(self.knob_space),
            "reference": self.reference.numbers(),
            "provenance": asdict(self.provenance),
            "observation_version": self.observation_version,
            "observation_size": self.observation_size,
            "scale": None if self.scale is None else asdict(self.scale),
            "scaler_clip": None if self.scaler is None else self.scaler.clip,
            "weights_sha256": _sha256(weights_file),
            "policy": asdict(self.policy),
            "choices": [asdict(one) for one in self.choices],
        }
        body = _told(_validated(fields, "policy bundle"))
        # Infinity and NaN have no JSON form; they would come back as null.
        if orjson.loads(_canonical(body)) != body:
            raise InputError("policy bundle: got a number that is not finite, expected JSON numbers")
        return dict(body)

    def _check_static(self) -> None:
        if self.weights or self.scaler or self.scale or self.observation_version or self.observation_size:
            raise InputError("policy bundle: a static policy has no weights, scaler, scale or observation")

    def _check_rule(self) -> None:
        if self.scaler or self.observation_version or self.observation_size:
            raise InputError(f"policy bundle: a policy of kind '{self.kind}' has no scaler and no observation")
        if self.scale is None:
            raise InputError("policy bundle: scale is missing")
        self.rule()

    def _check_choices(self) -> None:
        if self.choices and (self.kind != "whatif" or self.choices[0] != self.policy or len(self.choices) < 2):
            told = ", ".join(map(str, self.choices))
            raise InputError(
                f"policy bundle, choices: got {told} in a policy of kind '{self.kind}', expected none, or in a what-if "
                f"controller several, of which {self.policy} is the first"
            )

    def _check_network(self) -> None:
        clash = [name for name in (_SCALER_MEAN, _SCALER_STD) if name in self.weights]
        if clash:
            raise InputError(f"weights: got {clash[0]!r}, a name kept for the scaler")
        if not self.observation_version:
            raise InputError("policy bundle: observation_version is missing")
        if self.scale is None:
            raise InputError("policy bundle: scale is missing")
        size = self.actor().observation_size
        if size != self.observation_size:
            raise InputError(f"policy bundle: observation_size is {self.observation_size}, but the actor takes {size}")


def _read_manifest(path: Path) -> _Manifest:
    try:
        document = orjson.loads(_read(path))
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: got no JSON ({error}), expected a bundle manifest") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise InputError(f"{path}, format: got {found!r}, expected {FORMAT}")
    manifest = _validated(document.get("bundle"), str(path))
    # Hashing what was understood, not what was read, also catches keys that this version does not know.
    found, stated = _sha256(_canonical(_told(manifest))), document.get("sha256")
    if found != stated:
        raise InputError(f"{path}: got contents with sha256 {found}, expected {stated}: it was changed")
    return manifest


def _told(manifest: _Manifest) -> dict[str, Any]:
    """As JSON values. A cache that is least recently used goes without saying, as it did before there were others: a
    bundle of then has the hash that it had."""
    body: dict[str, Any] = _MANIFEST.dump_python(manifest, mode="json")
    del body["reference"]["eviction_policy"]
    if manifest.policy.plain:
        del body["policy"]
    if not manifest.choices:
        del body["choices"]
    return body


def _read_weights(path: Path, sha256: str) -> dict[str, NDArray[Any]]:
    data = _read(path)
    if _sha256(data) != sha256:
        raise InputError(
            f"{path}: got sha256 {_sha256(data)}, expected {sha256} as in {MANIFEST_FILE}: "
            "it was changed or belongs to another bundle"
        )
    try:
        return dict(safetensors.numpy.load(data))
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: got no safetensors file ({error})") from error


def _assemble(manifest: _Manifest, weights: dict[str, NDArray[Any]]) -> PolicyBundle:
    scaler = None
    if manifest.scaler_clip is not None:
        missing = [name for name in (_SCALER_MEAN, _SCALER_STD) if name not in weights]
        if missing:
            raise InputError(f"{WEIGHTS_FILE}: {missing[0]} is missing")
        scaler = Scaler(weights.pop(_SCALER_MEAN), weights.pop(_SCALER_STD), manifest.scaler_clip)
    return PolicyBundle(
        kind=manifest.kind,
        knob_space=manifest.knob_space,
        reference=manifest.reference,
        provenance=manifest.provenance,
        observation_version=manifest.observation_version,
        observation_size=manifest.observation_size,
        scale=manifest.scale,
        weights=weights,
        scaler=scaler,
        policy=manifest.policy,
        choices=manifest.choices,
    )


def _validated(fields: object, place: str) -> _Manifest:
    try:
        return _MANIFEST.validate_python(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "bundle"
        raise InputError(f"{place}, {where}: got {first['input']!r:.80}, {first['msg'].lower()}") from error
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


def _storable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype not in _STORABLE:
        expected = ", ".join(str(dtype) for dtype in _STORABLE)
        raise InputError(f"weights, {name}: got {array.dtype}, expected one of {expected}")
    return frozen_array(array, array.dtype.type)


def _check_reference(reference: KnobSettings, space: KnobSpace) -> None:
    if reference.eviction_policy is not None:
        raise InputError(f"reference, eviction_policy: got {reference.eviction_policy!r}, expected none beside policy")
    for knob in space.knobs:
        value = getattr(reference, knob.name)
        if not knob.low <= value <= knob.high:
            raise InputError(f"reference, {knob.name}: got {value} {knob.unit}, expected {knob.low} to {knob.high}")


def _knob_differences(ours: KnobSpace, theirs: KnobSpace) -> list[tuple[str, Any, Any]]:
    differences = []
    for name in KNOB_NAMES:
        mine, other = asdict(getattr(ours, name)), asdict(getattr(theirs, name))
        differences += [(f"{name}.{key}", mine[key], other[key]) for key in mine if mine[key] != other[key]]
    return differences


def _holds_only_a_bundle(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    return names <= {WEIGHTS_FILE, MANIFEST_FILE}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _canonical(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise InputError(f"policy bundle: got a value without a JSON form ({error})") from error


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
