"""deploy/compose.yaml and what it mounts: by the schema of the Compose Specification, and by our own readers."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from api.gateway.building import built
from api.gateway.config import load_serve_config
from tests.deploy.command_lines import understood
from tuner.config import load_tuner_config

DEPLOY = Path(__file__).parents[2] / "deploy"
SCHEMA = Path(__file__).with_name("compose-spec") / "compose-spec.json"
HASH = "0" * 64
SET = {"SETPOINT_API_KEY_SHA256": HASH, "GRAFANA_PASSWORD": "long enough"}
VARIABLE = re.compile(r"\$\{(\w+)(?::\?[^}]*)?\}")
SERVICES = {"gateway", "tuner", "api", "redis", "prometheus", "grafana", "mlflow"}


def schema() -> jsonschema.Draft7Validator:
    """Of the draft that it names."""
    told = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert told["$schema"] == "https://json-schema.org/draft-07/schema"
    return jsonschema.Draft7Validator(told)


@pytest.fixture(scope="module")
def compose() -> Any:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(VARIABLE.sub(lambda found: SET[found[1]], text))


def test_it_is_valid_by_the_specification(compose: Any) -> None:
    schema().validate(compose)


def test_the_schema_would_say_what_is_wrong(compose: Any) -> None:
    broken = {**compose, "services": {**compose["services"], "redis": {"imagee": "redis"}}}
    with pytest.raises(jsonschema.ValidationError):
        schema().validate(broken)


def test_all_parts_are_there(compose: Any) -> None:
    assert set(compose["services"]) == SERVICES


def test_everything_that_is_mounted_or_depended_on_exists(compose: Any) -> None:
    named = set(compose["volumes"])
    for name, service in compose["services"].items():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            there = (DEPLOY / source).exists() if source.startswith(".") else source in named
            assert there, f"{name}: {source}"
            named_or_file = source.startswith(".")
            assert not named_or_file or volume.endswith(":ro"), f"{name}: {volume}"
        assert set(service.get("depends_on", ())) <= SERVICES
        _, shared, other = service.get("network_mode", "").partition("service:")
        assert not shared or other in SERVICES
    used = {volume.partition(":")[0] for one in compose["services"].values() for volume in one.get("volumes", ())}
    assert named <= used


def test_whoever_is_waited_for_to_be_healthy_says_how_it_is(compose: Any) -> None:
    for service in compose["services"].values():
        depends = service.get("depends_on", {})
        for other, how in depends.items() if isinstance(depends, dict) else ():
            assert how["condition"] != "service_healthy" or "healthcheck" in compose["services"][other]


def test_ports_are_published_on_this_machine_only(compose: Any) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_command_lines_of_setpoint_are_understood(compose: Any) -> None:
    lines = {name: one["command"] for name, one in compose["services"].items() if one["image"] == "setpoint:local"}
    commands = {name: understood(line[1:]) for name, line in lines.items() if line[0] == "setpoint"}
    assert commands == {"gateway": "serve", "tuner": "tune", "api": "api"}


def test_a_command_line_that_is_wrong_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        understood(["serve", "--confg", "gateway.toml"])


def test_the_gateways_settings_make_a_gateway() -> None:
    file = DEPLOY / "config" / "gateway.toml"
    made = built(load_serve_config(file, {}), str(file), {})
    assert made.service.tuned is not None
    assert made.service.access_log is not None
    assert set(made.places) == {"memory"}  # tiers that arms share would blur what they are compared by


def test_the_gateways_other_settings_are_right_too(tmp_path: Path) -> None:
    """Those that are commented out."""
    text = (DEPLOY / "config" / "gateway.toml").read_text(encoding="utf-8")
    text = re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE).replace('"..."', f'"{HASH}"')
    file = tmp_path / "gateway.toml"
    file.write_text(text, encoding="utf-8")
    told = load_serve_config(file, {})
    assert told.tracing.endpoint is not None
    assert set(told.tiers.redis) == {"redis"}
    assert [key.tenant for key in told.gateway.keys] == ["acme"]


def test_the_tuners_settings_hold_together_with_the_others(compose: Any) -> None:
    environ = compose["services"]["api"]["environment"]
    told = load_tuner_config(
        DEPLOY / "config" / "setpoint.toml",
        DEPLOY,
        {name: value for name, value in environ.items() if name.startswith("SETPOINT_")},
        {},
    )
    assert [(key.sha256, key.role) for key in told.api.keys] == [(HASH, "admin")]
    assert told.control.mode == "shadow"  # who starts it has decided nothing yet
    gateway = load_serve_config(DEPLOY / "config" / "gateway.toml", {})
    assert told.keys.stream == gateway.access_log.place
    assert told.control.gateway == f"http://127.0.0.1:{gateway.gateway.port}"
    assert compose["services"]["tuner"]["network_mode"] == "service:gateway"
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in scraped["scrape_configs"]}
    assert targets == {
        "setpoint-gateway": [f"gateway:{gateway.gateway.port}"],
        "setpoint-tuner": [f"gateway:{told.control.metrics_port}"],
    }


def test_grafana_finds_board_and_data(compose: Any) -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    sources = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text(encoding="utf-8"))
    assert sources["datasources"][0]["url"] == "http://prometheus:9090"
    boards = yaml.safe_load((provisioning / "dashboards" / "setpoint.yaml").read_text(encoding="utf-8"))
    mounted = [volume.split(":")[1] for volume in compose["services"]["grafana"]["volumes"]]
    assert f"{boards['providers'][0]['options']['path']}/setpoint.json" in mounted


def test_the_image_copies_what_is_there_and_all_packages() -> None:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [part for line in lines if line.startswith("COPY") and "--from" not in line for part in line.split()[1:-1]]
    assert [name for name in copied if not (DEPLOY.parent / name).exists()] == []
    assert {"caches", "traces", "envs", "agents", "tuner", "api"} <= set(copied)
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in allowed if line.startswith("!")} == set(copied)
    run = shlex.split(next(line for line in lines if line.startswith("RUN") and "--constraint" in line))
    assert ".[live,otel,postgres]" in run
