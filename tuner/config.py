"""The settings of a Setpoint installation: one frozen object made of sections, and its reference page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from agents.ppo_config import PPOConfig
from envs.prefix import PrefixConfig
from envs.reward import Constraints, Prices
from envs.serving import Serving
from tuner.api_sections import ApiConfig
from tuner.config_loader import find_config_file, load_config
from tuner.control_section import ControlConfig
from tuner.experiment import ExperimentDesign
from tuner.guards.objectives import Objectives
from tuner.key_section import KeysConfig
from tuner.regime_section import RegimeConfig
from tuner.rollout_section import RolloutConfig
from tuner.section_reference import section_reference
from tuner.sections import SECTION, CacheConfig, KnobsConfig, RunConfig, TraceConfig, TrackingConfig
from tuner.signal_sections import SignalsConfig


class TunerConfig(BaseModel):
    """Everything that can be set."""

    model_config = SECTION

    trace: TraceConfig = TraceConfig()
    knobs: KnobsConfig = KnobsConfig()
    cache: CacheConfig = CacheConfig()
    prefix: PrefixConfig = PrefixConfig()
    tracking: TrackingConfig = TrackingConfig()
    run: RunConfig = RunConfig()
    prices: Prices = Prices()
    constraints: Constraints = Constraints()
    serving: Serving = Serving()
    ppo: PPOConfig = PPOConfig()
    control: ControlConfig = ControlConfig()
    signals: SignalsConfig = SignalsConfig()
    keys: KeysConfig = KeysConfig()
    guardrails: Objectives = Objectives()
    rollout: RolloutConfig = RolloutConfig()
    experiment: ExperimentDesign = ExperimentDesign()
    regime: RegimeConfig = RegimeConfig()
    api: ApiConfig = ApiConfig()

    @property
    def control_seconds(self) -> float:
        """Length of an interval of live control."""
        return self.control.interval_seconds or self.trace.interval_seconds


def load_tuner_config(
    file: Path | None, directory: Path, environ: Mapping[str, str], overrides: Mapping[str, object]
) -> TunerConfig:
    """The settings in force.

    file: what --config names, or None for `setpoint.toml` in `directory`, the working directory, if there is
    one. overrides: dotted key to value from options; None stands for an option that was not given.
    Raises InputError, naming file or variable, key, value and what was expected.
    """
    return load_config(TunerConfig, find_config_file(file, directory), environ, overrides)


def config_reference() -> str:
    """The text of docs/configuration.md: every key with default, unit and help, by section."""
    return _INTRODUCTION + "".join(section_reference(TunerConfig, ""))


_INTRODUCTION = """# Configuration

Settings come from four places; a later one beats an earlier one:

1. the defaults below,
2. a TOML file: `setpoint.toml` in the working directory, or the one that `--config FILE` names,
3. the environment: `SETPOINT_<SECTION>__<KEY>`, with two underscores for each dot,
4. options on the command line.

This file

```toml
[trace]
path = "requests.parquet"
interval_seconds = 60
```

says the same as the variables `SETPOINT_TRACE__PATH=requests.parquet` and
`SETPOINT_TRACE__INTERVAL_SECONDS=60`. Lists are written as in TOML, in variables too:
`SETPOINT_RUN__SEEDS='[0, 1]'`. An empty variable counts as not set. An unknown key is an error that names the
nearest known one, and so is an unknown variable that starts with `SETPOINT_`. Relative paths start at the
working directory.

This page is generated from the code by `make docs`.
"""
