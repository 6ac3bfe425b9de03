"""`setpoint train`: learn control policies from the training part of a trace and register them."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import Progress

from agents.baselines.best_policy import PolicyFit
from agents.candidates import KIND_NAMES
from agents.ppo_config import preset
from agents.registry import Registry
from agents.summary import NONE
from api.cli.continuing import go_on
from api.cli.loading import load_with_progress
from api.cli.options import AsJson, ConfigFile, TrackingUri
from api.cli.output import print_json, print_table, progress_bar, progress_console, result_console
from caches.errors import InputError
from caches.knobs import KnobSettings
from traces.catalog import opens_at_once
from traces.trace import Trace
from tuner.config import TunerConfig, load_tuner_config
from tuner.training import (
    Training,
    Watcher,
    find_training,
    forget_training,
    nominate,
    train_and_register,
    training_key,
)

Preset = Literal["default", "seed"]


def train(
    trace: Annotated[
        Path | None, typer.Argument(help="Trace to learn from: a file, a folder or the name of a shipped one.")
    ] = None,
    config_file: ConfigFile = None,
    seeds: Annotated[
        str | None, typer.Option(help="How many seeds to train, or which: 5 is the same as 0,1,2,3,4.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Seeds trained at the same time.")] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Ray cluster to train on: host:port, auto or local.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Interval-steps of training per seed.")] = None,
    preset_name: Annotated[
        Preset, typer.Option("--preset", help="PPO settings: ours, or those published with the first design.")
    ] = "default",
    checkpoints: Annotated[
        Path | None, typer.Option(help="Where an interrupted training goes on from; OUTPUT/checkpoints by default.")
    ] = None,
    continue_from: Annotated[
        str | None,
        typer.Option("--continue", metavar="VERSION", help="Version or alias to train on from, on the newest traffic."),
    ] = None,
    window: Annotated[
        int | None, typer.Option(help="With --continue: intervals to learn from; a third of training by default.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train anew what was trained or begun before.")] = False,
    tracking_uri: TrackingUri = None,
    as_json: AsJson = False,
) -> None:
    """Train control policies on the training part of a trace, one per seed, fit simpler ones, and register all.

    The best on validation traffic becomes the challenger, learned or not. A training that was interrupted goes on where
    it stopped; one that is registered already is not done again.
    """
    overrides: dict[str, object] = {
        **_preset_settings(preset_name),
        "trace.path": trace,
        "run.seeds": None if seeds is None else parse_seeds(seeds),
        "run.workers": workers,
        "run.ray": ray,
        "ppo.total_steps": steps,
        "tracking.uri": tracking_uri,
    }
    config = load_tuner_config(config_file, Path.cwd(), os.environ, overrides)
    recording = _open(config)
    registry = Registry(config.tracking.resolved_uri(Path.cwd()), config.tracking.experiment, config.tracking.model)
    if continue_from is not None:
        go_on(config, recording, registry, continue_from, window, as_json)
        return
    folder = checkpoints or config.tracking.output / "checkpoints"
    key = training_key(config, recording)
    done = None if fresh else find_training(registry, key, config.run.seeds)
    if fresh:
        forget_training(folder, key, config.run.seeds)
    if done is None:
        done = _train(config, recording, registry, folder)
    else:
        nominate(registry, done)
    if as_json:
        print_json({**asdict(done), "best": asdict(done.best), "composed": recording.info.composed})
    else:
        _report(done, recording, config_file)


def parse_seeds(text: str) -> tuple[int, ...]:
    """ "3" to (0, 1, 2); "3,7" to (3, 7); "3," to (3,). Raises InputError for anything else."""
    try:
        numbers = tuple(int(part) for part in text.removesuffix(",").split(","))
    except ValueError:
        numbers = ()
    if not numbers or ("," not in text and numbers[0] < 1):
        raise InputError(f"--seeds: got {text!r}, expected a number of seeds from 1 on, or seeds as in 3,7,9")
    return numbers if "," in text else tuple(range(numbers[0]))


def _preset_settings(name: Preset) -> dict[str, object]:
    """What a preset sets, by dotted key."""
    return {f"ppo.{key}": value for key, value in preset(name).model_dump(exclude_unset=True).items()}


def _open(config: TunerConfig) -> Trace:
    if config.trace.path is None:
        raise InputError("trace: got none, expected an argument, trace.path in a file or a variable")
    if not opens_at_once(config.trace.path) and config.run.workers > 1:
        progress_console().print(
            "Every worker reads this file anew; `setpoint trace convert` once, and it opens at once.", style="dim"
        )
    return load_with_progress(config.trace.path)


def _train(config: TunerConfig, recording: Trace, registry: Registry, checkpoints: Path) -> Training:
    with progress_bar("steps") as bar:
        return train_and_register(config, recording, registry, checkpoints, _watcher(bar, config))


def _watcher(bar: Progress, config: TunerConfig) -> Watcher:
    """Two lines of progress: settings priced, then steps of all seeds together."""
    fitting = bar.add_task("pricing static settings", total=None)
    steps_of = dict.fromkeys(config.run.seeds, 0)

    def fit(priced: int, total: int) -> None:
        bar.update(fitting, completed=priced, total=total)

    def fitted(found: PolicyFit) -> None:
        bar.update(fitting, completed=len(found.fit.tried), total=len(found.fit.tried))
        bar.console.print(_sentence(found))
        bar.console.print(f"Training {len(steps_of)} seeds, {config.run.workers} at a time.")

    training = bar.add_task("training", total=config.ppo.total_steps * len(steps_of), start=False, visible=False)

    def step(seed: int, done: int, _: int) -> None:
        if not bar.tasks[training].started:
            bar.start_task(training)
        steps_of[seed] = done
        bar.update(training, completed=sum(steps_of.values()), visible=True)

    return Watcher(fit, fitted, step)


def _sentence(found: PolicyFit) -> str:
    fit = found.fit
    warning = (
        f"No static setting keeps the constraints; this one breaks them least often, in {fit.unsafe_per_1000:.1f} "
        "of 1,000 intervals. "
    )
    under = "" if found.policy.plain and len(found.each) == 1 else f" under {found.policy}"
    if len(found.each) > 1:
        under += f", the best of {len(found.each)} policies"
    settings = _settings(fit.settings)
    return f"{'' if fit.feasible else warning}Best static setting on training traffic{under}: {settings}."


def _settings(settings: KnobSettings) -> str:
    return (
        f"cache_size {settings.cache_size:,.0f} bytes, ttl_seconds {settings.ttl_seconds:,.0f}, "
        f"warmup_ratio {settings.warmup_ratio:.2f}"
    )


def _report(done: Training, recording: Trace, config_file: Path | None) -> None:
    rows = [
        (
            f"PPO seed {one.seed}",
            str(one.version),
            f"{one.saving:+.2%}",
            f"{one.best_steps:,}",
            f"{one.steps:,}" + (" (early)" if one.stopped_early else ""),
            "challenger" if one is done.best else "",
        )
        for one in done.seeds
    ]
    rows += [
        (
            KIND_NAMES[one.kind],
            str(one.version),
            f"{one.saving:+.2%}",
            NONE,
            NONE,
            "challenger" if one is done.best else "",
        )
        for one in done.rules
    ]
    title = f"{'Trained before' if done.reused else 'Trained'} on {recording.info.name}, run {done.run_id}"
    print_table(title, ("policy", "version", "saving on validation", "best at step", "steps", "alias"), rows)
    console = result_console()
    if recording.info.composed:
        console.print("The traffic is composed of several sources; `setpoint trace info` says how.", markup=False)
    if done.best.saving <= 0:
        console.print(
            "No policy is cheaper than the best static setting on validation traffic: keep the static setting, "
            "train longer (--steps), or look at prices and constraints.",
            markup=False,
        )
    option = "" if config_file is None else f" --config {config_file}"
    console.print(f"Next: setpoint evaluate{option}", markup=False)
