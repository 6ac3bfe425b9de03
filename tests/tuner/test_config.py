from __future__ import annotations

from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from caches.errors import InputError
from caches.knobs import KnobSettings
from tuner.config import TunerConfig, config_reference, load_tuner_config
from tuner.config_loader import leaf_fields
from tuner.sections import CacheSizeConfig, KnobsConfig, TrackingConfig, TtlConfig


@pytest.mark.parametrize(("key", "info"), leaf_fields(TunerConfig).items())
def test_every_key_has_unit_help_and_a_line_in_the_reference(key: str, info: FieldInfo) -> None:
    assert isinstance(info.json_schema_extra, dict)
    assert info.json_schema_extra["unit"]
    assert info.description
    section, _, name = key.rpartition(".")
    _, _, below = config_reference().partition(f"\n## [{section}]\n")
    has_a_line = f"\n| `{name}` | " in below.partition("\n## ")[0]
    assert has_a_line or f"\n## [[{key}]]\n" in config_reference()  # a list of tables has a section


def test_file_of_the_working_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / "setpoint.toml").write_text("[trace]\ninterval_seconds = 60\n[trace.split]\ntrain = 0.5\ntest = 0.3\n")
    config = load_tuner_config(None, tmp_path, {"SETPOINT_RUN__SEEDS": "[7]"}, {"run.workers": 1})
    assert config.trace.interval_seconds == 60.0
    assert (config.trace.split.train, config.trace.split.validation, config.trace.split.test) == (
        0.5,
        0.2,
        0.3,
    )
    assert config.run.seeds == (7,)
    assert config.run.workers == 1


def test_split_that_does_not_fill_the_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_tuner_config(None, tmp_path, {}, {"trace.split.train": 0.5})
    assert str(caught.value) == ("command line: got trace.split.train = 0.5, expected train + validation + test = 1")


@pytest.mark.parametrize("seeds", ["[]", "[1, 1]", "[-1]"])
def test_bad_seeds(tmp_path: Path, seeds: str) -> None:
    with pytest.raises(InputError, match=r"run\.seeds"):
        load_tuner_config(None, tmp_path, {"SETPOINT_RUN__SEEDS": seeds}, {})


def test_default_knob_space_spans_the_footprint() -> None:
    space = KnobsConfig().space(footprint_bytes=1e9)
    assert (space.cache_size.low, space.cache_size.high, space.cache_size.default) == (1e6, 1e9, 1e8)
    assert space.default() == KnobSettings(cache_size=1e8, ttl_seconds=3600.0, warmup_ratio=0.0)
    assert [knob.scale for knob in space.knobs] == ["log", "log", "linear"]


def test_footprint_is_not_asked_where_sizes_are_set() -> None:
    knob = CacheSizeConfig(low=10, high=1000, default=100).knob(footprint_bytes=5.0)
    assert (knob.low, knob.high, knob.default) == (10, 1000, 100)


def test_default_size_stays_in_range() -> None:
    assert CacheSizeConfig(low=500, high=1000).knob(footprint_bytes=1e9).default == 500


def test_default_outside_the_range_is_named() -> None:
    knobs = KnobsConfig(ttl_seconds=TtlConfig(low=100, high=200, default=50))
    with pytest.raises(InputError, match=r"ttl_seconds\.default: got 50"):
        knobs.space(footprint_bytes=1e9)


@pytest.mark.parametrize(
    ("uri", "resolved"),
    [
        ("sqlite:///mlruns/mlflow.db", "sqlite:////somewhere/mlruns/mlflow.db"),
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
        ("http://tracking:5000", "http://tracking:5000"),
        ("sqlite://", "sqlite://"),
    ],
)
def test_relative_sqlite_path_starts_at_the_working_directory(uri: str, resolved: str) -> None:
    assert TrackingConfig(uri=uri).resolved_uri(Path("/somewhere")) == resolved


def test_mlflow_variable_sets_the_uri(tmp_path: Path) -> None:
    environ = {"MLFLOW_TRACKING_URI": "http://tracking:5000"}
    assert load_tuner_config(None, tmp_path, environ, {}).tracking.uri == "http://tracking:5000"
