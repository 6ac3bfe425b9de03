"""`setpoint train --continue`: a registered policy learns on from the newest training traffic."""

from __future__ import annotations

from dataclasses import asdict

from agents.registry import Registry
from api.cli.output import print_json, print_table, progress_bar, result_console
from api.cli.registry import find_version, parse_policy
from caches.errors import InputError
from traces.trace import Trace
from tuner.config import TunerConfig
from tuner.continuing import Continuation, ContinuedSeed, continue_and_register


def go_on(
    config: TunerConfig, recording: Trace, registry: Registry, policy: str, window: int | None, as_json: bool
) -> None:
    """policy: a version or an alias. window: intervals learnt from; by default the last third of training traffic."""
    if config.run.ray is not None:
        raise InputError("--continue: got a Ray cluster as well, expected to train here")
    find_version(registry, policy)  # before anything is trained
    with progress_bar("steps") as bar:
        steps_of = dict.fromkeys(config.run.seeds, 0)
        shown = bar.add_task("training on", total=config.ppo.total_steps * len(steps_of))

        def step(seed: int, done: int, _: int) -> None:
            steps_of[seed] = done
            bar.update(shown, completed=sum(steps_of.values()))

        done = continue_and_register(config, recording, registry, parse_policy(policy), window, step)
    if as_json:
        print_json({**asdict(done), "best": None if done.best is None else asdict(done.best)})
    else:
        _report(done, recording)


def _report(done: Continuation, recording: Trace) -> None:
    title = (
        f"Version {done.last_good} trained on, intervals {done.first_interval} to {done.end_interval} of "
        f"{recording.info.name}, run {done.run_id}"
    )
    header = ("seed", "version", f"saving over version {done.last_good} on validation", "95 % interval", "alias")
    print_table(title, header, [_row(one, done.best) for one in done.seeds])
    console = result_console()
    if done.best is None:
        console.print(
            f"No seed is cheaper than version {done.last_good} with confidence: it stays, and nothing was registered.",
            markup=False,
        )
    else:
        console.print("Next: setpoint evaluate", markup=False)


def _row(one: ContinuedSeed, best: ContinuedSeed | None) -> tuple[str, ...]:
    return (
        str(one.seed),
        "-" if one.version is None else str(one.version),
        f"{one.saving.mean:+.2%}",
        f"{one.saving.low:+.2%} to {one.saving.high:+.2%}",
        "challenger" if one is best else "",
    )
