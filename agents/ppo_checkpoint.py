"""The state of an interrupted training: arrays and JSON in a folder, no pickle."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from agents.actor import Actor, actor_from, layers_of
from agents.learning import Layers
from agents.looks import Look, Looks
from agents.ppo_config import PPOConfig
from caches.errors import Mismatch
from caches.files import written_whole

Array = NDArray[Any]

FORMAT, FILE = 3, "checkpoint.json"


@dataclass
class Learner:
    """What a checkpoint holds. average: layers of the averaged actor, None before there are any. steps, updates: done
    so far."""

    network: torch.nn.Module
    optimizer: torch.optim.Optimizer
    looks: Looks
    average: Layers | None
    steps: int
    updates: int


def holds_checkpoint(folder: Path) -> bool:
    """Whether a training can go on from there."""
    return (folder / FILE).exists()


def save_checkpoint(learner: Learner, config: PPOConfig, folder: Path) -> None:
    """The learner's whole state. Written beside and renamed, arrays first."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"policy.{name}": numpy_of(value) for name, value in learner.network.state_dict().items()}
    for index, moments in learner.optimizer.state_dict()["state"].items():
        arrays |= {f"adam.{index}.{name}": numpy_of(value) for name, value in moments.items()}
    kept = learner.looks.kept
    if kept is not None:
        arrays |= {f"best.{name}": value for name, value in kept[1].arrays().items()}
    if learner.average is not None:
        arrays |= {f"average.{name}": value for name, value in Actor(learner.average).arrays().items()}
    arrays["torch_random"] = numpy_of(torch.get_rng_state())
    arrays_file = f"arrays-{learner.steps}.safetensors"
    body = {
        "format": FORMAT,
        "config": config.model_dump(mode="json"),
        "steps": learner.steps,
        "updates": learner.updates,
        "looks": [asdict(look) for look in learner.looks.looks],
        "best": None if kept is None else learner.looks.looks.index(kept[0]),
        "arrays": arrays_file,
    }
    save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, folder / arrays_file)
    with written_whole(folder / FILE) as partial:
        partial.write_text(json.dumps(body))
    for stale in folder.glob("arrays-*.safetensors"):
        if stale.name != arrays_file:
            stale.unlink()


def load_checkpoint(learner: Learner, config: PPOConfig, folder: Path) -> None:
    """Puts a learner back where `save_checkpoint` found it. Mismatch when it was saved under another configuration."""
    body = json.loads((folder / FILE).read_text())
    _require_same(body, config, folder)
    arrays = load_file(folder / body["arrays"])
    network = {name: torch.from_numpy(value) for name, value in _below("policy.", arrays).items()}
    learner.network.load_state_dict(network)
    optimizer = learner.optimizer.state_dict()
    for name, value in arrays.items():
        if name.startswith("adam."):
            _, index, moment = name.split(".")
            optimizer["state"].setdefault(int(index), {})[moment] = torch.from_numpy(value)
    learner.optimizer.load_state_dict(optimizer)
    torch.set_rng_state(torch.from_numpy(arrays["torch_random"]))
    learner.steps, learner.updates = body["steps"], body["updates"]
    learner.looks.looks = [Look(**look) for look in body["looks"]]
    if body["best"] is not None:
        learner.looks.kept = (learner.looks.looks[body["best"]], actor_from(_below("best.", arrays)))
    average = _below("average.", arrays)
    learner.average = layers_of(average) if average else None


def _below(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def _require_same(body: dict[str, Any], config: PPOConfig, folder: Path) -> None:
    now = config.model_dump(mode="json")
    saved = body["config"] | {"total_steps": now["total_steps"]}  # training for longer is what going on is for
    if body["format"] != FORMAT or saved != now:
        changed = {key: (saved.get(key), now[key]) for key in now if saved.get(key) != now[key]}
        raise Mismatch(f"{folder}: the checkpoint was made with other settings (saved, now): {changed}")


def numpy_of(tensor: torch.Tensor) -> Array:
    """A copy."""
    return np.asarray(tensor.detach().numpy().copy())
