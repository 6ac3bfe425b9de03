"""The actor of a trained policy in plain numpy, for serving: no torch, no stable-baselines3.

Arithmetic follows stable-baselines3's deterministic PPO: the observation is scaled in float64 and rounded to
float32, hidden layers are tanh, the last layer is linear and is the mean of the action, clipped to the action
space. Layers keep torch's orientation: W is (outputs, inputs), a layer computes x W^T + b. A dead band, where there is
one, then leaves a knob where it is unless the wish is far enough from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.knobs import KNOB_NAMES
from envs.observation import POSITION_GAIN, SIZE, names

Float32Array = NDArray[np.float32]
FloatArray = NDArray[np.float64]
Layer = tuple[Float32Array, Float32Array]

NUM_ACTIONS = len(KNOB_NAMES)
DEAD_BAND = "dead_band"  # its name among the arrays of a policy
POSITIONS = slice(first := names().index(f"position_{KNOB_NAMES[0]}"), first + NUM_ACTIONS)


@dataclass(frozen=True, eq=False)
class Scaler:
    """Running normalisation of observations: clip((x - mean) / std, -clip, clip).

    mean, std: float64 (obs,); std is above zero (stable-baselines3's sqrt(var + epsilon)).
    """

    mean: FloatArray
    std: FloatArray
    clip: float = 10.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", frozen_array(self.mean, np.float64))
        object.__setattr__(self, "std", frozen_array(self.std, np.float64))
        if self.mean.ndim != 1 or self.mean.shape != self.std.shape:
            raise InputError(f"scaler: got mean {self.mean.shape} and std {self.std.shape}, expected (obs,)")
        if not np.isfinite(self.mean).all() or not np.isfinite(self.std).all() or not (self.std > 0).all():
            raise InputError("scaler: expected finite means and finite deviations above zero")
        if not (np.isfinite(self.clip) and self.clip > 0):
            raise InputError(f"scaler.clip: got {self.clip}, expected a finite number above zero")

    def scale(self, observations: Float32Array) -> Float32Array:
        """Shape (obs,) or (n, obs) to the same shape."""
        scaled = (observations - self.mean) / self.std
        return np.clip(scaled, -self.clip, self.clip).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Actor:
    """A multi-layer perceptron from observation to action.

    weights: per layer W float32 (outputs, inputs) and b float32 (outputs,), first layer first; the last layer
    has one output per knob. dead_band: share of a knob's range; a wish nearer than that to where the knob is, leaves it
    there. Raises InputError where the layers do not fit each other or hold a number that is not finite.
    """

    weights: tuple[Layer, ...]
    scaler: Scaler | None = None
    dead_band: float = 0.0

    def __post_init__(self) -> None:
        layers = tuple((frozen_array(w, np.float32), frozen_array(b, np.float32)) for w, b in self.weights)
        object.__setattr__(self, "weights", layers)
        _check_layers(layers)
        if self.scaler is not None and len(self.scaler.mean) != self.observation_size:
            raise InputError(
                f"scaler: got {len(self.scaler.mean)} entries, expected the actor's {self.observation_size}"
            )
        if not 0.0 <= self.dead_band < 1.0:
            raise InputError(f"dead_band: got {self.dead_band}, expected in [0, 1)")
        if self.dead_band and self.observation_size != SIZE:
            raise InputError(f"dead_band: got {self.observation_size} entries to observe, expected {SIZE}")

    @property
    def observation_size(self) -> int:
        return int(self.weights[0][0].shape[1])

    def act(self, observation: Float32Array) -> FloatArray:
        """One observation, float32 (obs,), to an action, float64 (3,) in [-1, 1], in the order of KNOB_NAMES.

        Raises InputError where the shape is wrong or an entry is not finite.
        """
        if observation.shape != (self.observation_size,):
            raise InputError(f"observation: got shape {observation.shape}, expected ({self.observation_size},)")
        return self._forward(observation)

    def act_batch(self, observations: Float32Array) -> FloatArray:
        """Shape (n, obs) to (n, 3); row for row what `act` gives, up to the rounding of float32 sums."""
        if observations.ndim != 2 or observations.shape[1] != self.observation_size:
            raise InputError(f"observations: got {observations.shape}, expected (n, {self.observation_size})")
        return self._forward(observations)

    def _forward(self, observations: Float32Array) -> FloatArray:
        if not np.isfinite(observations).all():
            raise InputError("observation: got an entry that is not finite, expected finite entries")
        x = np.asarray(observations, dtype=np.float32)
        if self.scaler is not None:
            x = self.scaler.scale(x)
        for w, b in self.weights[:-1]:
            x = np.tanh(x @ w.T + b)
        w, b = self.weights[-1]
        wish = np.clip((x @ w.T + b).astype(np.float64), -1.0, 1.0)
        if not self.dead_band:
            return wish
        here = observations[..., POSITIONS].astype(np.float64) / POSITION_GAIN
        return np.where(np.abs(wish - here) < self.dead_band, here, wish)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The layers, and the dead band if there is one, by the names that `actor_from` reads; without the scaler."""
        named: dict[str, NDArray[Any]] = {}
        for index, (weight, bias) in enumerate(self.weights):
            named |= {f"actor.{index}.weight": weight, f"actor.{index}.bias": bias}
        return named | ({DEAD_BAND: np.array([self.dead_band])} if self.dead_band else {})


def actor_from(arrays: Mapping[str, NDArray[Any]], scaler: Scaler | None = None) -> Actor:
    """Inverse of `Actor.arrays`; see `layers_of`. Raises InputError where the dead band is not one number."""
    band = arrays.get(DEAD_BAND, np.zeros(1))
    if band.shape != (1,):
        raise InputError(f"{DEAD_BAND}: got shape {band.shape}, expected one number")
    return Actor(layers_of(arrays), scaler, float(band[0]))


def layers_of(weights: Mapping[str, NDArray[Any]]) -> tuple[Layer, ...]:
    """The actor's layers out of named arrays `actor.0.weight`, `actor.0.bias`, `actor.1.weight`, ...

    Other names (a critic, say) are left alone. Raises InputError where a weight lacks its bias or none is
    there.
    """
    layers: list[Layer] = []
    while (name := f"actor.{len(layers)}.weight") in weights:
        bias = f"actor.{len(layers)}.bias"
        if bias not in weights:
            raise InputError(f"weights: got {name} without {bias}")
        layers.append((weights[name], weights[bias]))
    unused = sum(name.startswith("actor.") for name in weights) - 2 * len(layers)
    if not layers or unused:
        named = ", ".join(sorted(weights)) or "none"
        raise InputError(f"weights: got {named}; expected actor.0.weight, actor.0.bias and so on without gaps")
    return tuple(layers)


def frozen_array(values: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """A read-only copy in C order."""
    array = np.array(values, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def _check_layers(layers: tuple[Layer, ...]) -> None:
    if not layers:
        raise InputError("actor: got no layers, expected at least one")
    inputs = layers[0][0].shape[-1] if layers[0][0].ndim else 0
    for index, (w, b) in enumerate(layers):
        if w.ndim != 2 or w.size == 0 or w.shape[1] != inputs or b.shape != (w.shape[0],):
            raise InputError(
                f"actor layer {index}: got W {w.shape} and b {b.shape}, expected W (outputs, {inputs}) and b (outputs,)"
            )
        if not (np.isfinite(w).all() and np.isfinite(b).all()):
            raise InputError(f"actor layer {index}: got a weight that is not finite")
        inputs = w.shape[0]
    if inputs != NUM_ACTIONS:
        raise InputError(f"actor: got {inputs} outputs, expected {NUM_ACTIONS}, one per knob")
