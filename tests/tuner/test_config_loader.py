"""The loader on a small model: layers, texts and errors. The wording is part of the contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from caches.errors import InputError
from tuner.config_loader import find_config_file, leaf_fields, load_config

SECTION = ConfigDict(frozen=True, extra="forbid")


class Oven(BaseModel):
    model_config = SECTION

    heat_celsius: float = Field(180.0, gt=0, le=300)
    depth_metres: float = 0.5
    low: int = 1
    high: int = 3
    racks: tuple[int, ...] = (1, 2)
    fan: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Oven:
        if self.low > self.high:
            raise ValueError("low <= high")
        return self


class Kitchen(BaseModel):
    model_config = SECTION

    name: str = Field("kitchen", json_schema_extra={"variable": "KITCHEN_NAME"})
    oven: Oven = Oven()


class Shop(BaseModel):
    model_config = SECTION

    owner: str
    kitchen: Kitchen = Kitchen()


def write(folder: Path, text: str) -> Path:
    path = folder / "setpoint.toml"
    path.write_text(text, encoding="utf-8")
    return path


def message(*args: object) -> str:
    with pytest.raises(InputError) as caught:
        load_config(Kitchen, *args)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_nothing_given_means_defaults() -> None:
    assert load_config(Kitchen, None, {}, {}) == Kitchen()


def test_each_layer_beats_the_one_before(tmp_path: Path) -> None:
    file = write(tmp_path, "[oven]\nheat_celsius = 100\nlow = 2\n")
    environ = {"SETPOINT_OVEN__HEAT_CELSIUS": "150"}
    assert load_config(Kitchen, file, {}, {}).oven.heat_celsius == 100.0
    assert load_config(Kitchen, file, environ, {}).oven.heat_celsius == 150.0
    flagged = load_config(Kitchen, file, environ, {"oven.heat_celsius": 200})
    assert flagged.oven.heat_celsius == 200.0
    assert flagged.oven.low == 2


def test_option_that_was_not_given_changes_nothing() -> None:
    environ = {"SETPOINT_OVEN__LOW": "2"}
    assert load_config(Kitchen, None, environ, {"oven.low": None}).oven.low == 2


def test_empty_variable_counts_as_not_set() -> None:
    assert load_config(Kitchen, None, {"SETPOINT_OVEN__LOW": ""}, {}).oven.low == 1


def test_our_variable_beats_the_customary_one() -> None:
    environ = {"KITCHEN_NAME": "theirs"}
    assert load_config(Kitchen, None, environ, {}).name == "theirs"
    assert load_config(Kitchen, None, environ | {"SETPOINT_NAME": "ours"}, {}).name == "ours"


def test_lists_in_texts_are_toml() -> None:
    environ = {"SETPOINT_OVEN__RACKS": "[4, 5]"}
    assert load_config(Kitchen, None, environ, {}).oven.racks == (4, 5)
    assert load_config(Kitchen, None, environ, {"oven.racks": "[6]"}).oven.racks == (6,)


def test_result_is_frozen() -> None:
    with pytest.raises(ValidationError):
        load_config(Kitchen, None, {}, {}).oven.low = 7  # type: ignore[misc]


@given(heat=st.floats(min_value=1e-300, max_value=300), low=st.integers(-5, 3), fan=st.booleans())
def test_texts_round_trip(heat: float, low: int, fan: bool) -> None:
    """Any value written as text in the environment comes back as itself."""
    environ = {
        "SETPOINT_OVEN__HEAT_CELSIUS": repr(heat),
        "SETPOINT_OVEN__LOW": str(low),
        "SETPOINT_OVEN__FAN": str(fan).lower(),
    }
    oven = load_config(Kitchen, None, environ, {}).oven
    assert (oven.heat_celsius, oven.low, oven.fan) == (heat, low, fan)


def test_keys_are_listed_in_order() -> None:
    assert list(leaf_fields(Kitchen)) == [
        "name", "oven.heat_celsius", "oven.depth_metres", "oven.low", "oven.high", "oven.racks", "oven.fan",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[oven]\nheat = 3", "unknown key oven.heat, the nearest known is oven.heat_celsius"),
        ("[oven]\nhihg = 3", "unknown key oven.hihg, the nearest known is oven.high"),
        ("[ovn]\nlow = 3", "unknown key ovn.low, the nearest known is oven.low"),
        ("nam = 'x'", "unknown key nam, the nearest known is name"),
    ],
)
def test_unknown_key_in_file_names_itself_and_the_nearest(tmp_path: Path, text: str, expected: str) -> None:
    file = write(tmp_path, text)
    assert message(file, {}, {}) == f"{file}: {expected}"


def test_unknown_variable_names_itself_and_the_nearest() -> None:
    assert message(None, {"SETPOINT_OVEN__HEAT": "3", "PATH": "/bin"}, {}) == (
        "environment variable SETPOINT_OVEN__HEAT: unknown, the nearest known is SETPOINT_OVEN__HEAT_CELSIUS"
    )


def test_unknown_option_key_names_itself_and_the_nearest() -> None:
    expected = "command line: unknown key oven.hgih, the nearest known is oven.high"
    assert message(None, {}, {"oven.hgih": 3}) == expected


def test_bad_value_in_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[oven]\nheat_celsius = 400")
    assert message(file, {}, {}) == (f"{file}, oven.heat_celsius: got 400, expected less than or equal to 300")


def test_bad_value_in_variable() -> None:
    assert message(None, {"SETPOINT_OVEN__LOW": "two"}, {}) == (
        "environment variable SETPOINT_OVEN__LOW, oven.low: got 'two', expected a valid integer"
    )


def test_bad_value_on_the_command_line() -> None:
    assert message(None, {}, {"oven.racks": "[1, 'x']"}) == (
        "command line, oven.racks: got [1, 'x'], expected a valid integer"
    )


def test_broken_list_is_a_bad_value() -> None:
    assert message(None, {}, {"oven.racks": "[1,"}) == "command line, oven.racks: got '[1,', expected a valid tuple"


def test_only_the_layer_that_counts_is_blamed(tmp_path: Path) -> None:
    file = write(tmp_path, "[oven]\nlow = 'bad'")
    assert load_config(Kitchen, file, {}, {"oven.low": 2}).oven.low == 2


def test_check_over_a_section_names_what_was_set_in_it(tmp_path: Path) -> None:
    file = write(tmp_path, "[oven]\nhigh = 2")
    assert message(file, {"SETPOINT_OVEN__LOW": "5"}, {}) == (
        f"{file} and environment variable SETPOINT_OVEN__LOW: got oven.high = 2, oven.low = '5', expected low <= high"
    )


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_numbers_are_finite(tmp_path: Path, number: str) -> None:
    """Where the field has no bounds, too."""
    file = write(tmp_path, f"[oven]\ndepth_metres = {number}")
    assert message(file, {}, {}) == f"{file}, oven.depth_metres: got {number}, expected a finite number"


def test_true_is_not_a_number(tmp_path: Path) -> None:
    file = write(tmp_path, "[oven]\nlow = true")
    assert message(file, {}, {}) == f"{file}, oven.low: got True, expected a number"


def test_value_in_place_of_a_section(tmp_path: Path) -> None:
    file = write(tmp_path, "oven = 3")
    assert message(file, {}, {}) == f"{file}, oven: got 3, expected a table"


def test_section_in_place_of_a_value(tmp_path: Path) -> None:
    file = write(tmp_path, "[oven.low]\nx = 1")
    assert message(file, {}, {}) == f"{file}, oven.low: got {{'x': 1}}, expected a valid integer"


def test_required_key_that_nobody_set() -> None:
    with pytest.raises(InputError, match=r"^owner: not set, expected a value in setpoint\.toml"):
        load_config(Shop, None, {}, {})


@pytest.mark.parametrize("content", [b"[oven\n", b"\xff\xfe", b"low = 1\nlow = 2\n"])
def test_file_that_is_not_toml(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "setpoint.toml"
    file.write_bytes(content)
    assert message(file, {}, {}).startswith(f"{file}: expected TOML: ")


def test_missing_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    assert message(file, {}, {}) == f"{file}: cannot be read: No such file or directory"


def test_default_file_is_used_only_if_it_exists(tmp_path: Path) -> None:
    assert find_config_file(None, tmp_path) is None
    file = write(tmp_path, "")
    assert find_config_file(None, tmp_path) == file
    other = tmp_path / "other.toml"
    assert find_config_file(other, tmp_path) == other
