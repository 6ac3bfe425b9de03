"""One frozen settings object from a TOML file, the environment and the command line.

Later beats earlier: defaults, file, environment, command line. Keys are dotted (`trace.interval_seconds`);
the variable of a key is its name in capitals behind SETPOINT_, with two underscores for each dot
(SETPOINT_TRACE__INTERVAL_SECONDS). Whatever is wrong becomes one InputError that names where, key, value and
what was expected. pydantic validates; the layers are merged here because an error has to know its layer.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from caches.errors import InputError

Model = TypeVar("Model", bound=BaseModel)

ENV_PREFIX = "SETPOINT_"
FILE_NAME = "setpoint.toml"
HIDDEN = "hidden"  # type of a pydantic complaint about a value that is not to be repeated, such as a key


@dataclass(frozen=True)
class Given:
    """A value that somebody set, and where."""

    value: object
    source: str


def load_config(
    model_class: type[Model], file: Path | None, environ: Mapping[str, str], overrides: Mapping[str, object]
) -> Model:
    """Merge the layers and validate them.

    model_class: a model whose fields are values or models, without aliases. overrides: dotted key to value,
    from the command line; None stands for an option that was not given. Texts from `environ` and `overrides`
    that start with a bracket are read as TOML arrays. An empty variable counts as not set.
    """
    fields = leaf_fields(model_class)
    given: dict[str, Given] = {}
    if file is not None:
        given.update(_known(_from_file(file, fields), fields))
    given.update(_known(_from_environment(environ, fields), fields))
    given.update(_known(_from_overrides(overrides), fields))
    try:
        config = model_class.model_validate(_nested(given))
    except ValidationError as error:
        raise _input_error(error, given, model_class) from None
    _refuse_odd_numbers(config, given)
    return config


def find_config_file(wanted: Path | None, directory: Path) -> Path | None:
    """The file that was asked for, else setpoint.toml of the working directory if there is one."""
    if wanted is not None:
        return wanted
    default = directory / FILE_NAME
    return default if default.is_file() else None


def leaf_fields(model_class: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """Every key that can be set, dotted, in order of declaration."""
    leaves: dict[str, FieldInfo] = {}
    for name, info in model_class.model_fields.items():
        section = section_class(info)
        if section is None:
            leaves[prefix + name] = info
        else:
            leaves.update(leaf_fields(section, f"{prefix}{name}."))
    return leaves


def section_class(info: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a section, None for a field that is a value."""
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def entry_class(info: FieldInfo) -> type[BaseModel] | None:
    """The model of the entries of a field that is a table of named sections, or a list of them; else None."""
    if get_origin(info.annotation) not in {dict, list, tuple}:
        return None
    models = [part for part in get_args(info.annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
    return models[0] if models else None


def variable_names(key: str, info: FieldInfo) -> tuple[str, ...]:
    """The environment variables of a key, the stronger last: a customary name of other tools, then ours."""
    ours = ENV_PREFIX + key.upper().replace(".", "__")
    extra = info.json_schema_extra
    customary = extra.get("variable") if isinstance(extra, dict) else None
    return (ours,) if customary is None else (str(customary), ours)


def _from_file(file: Path, fields: Mapping[str, FieldInfo]) -> Iterator[tuple[str, Given]]:
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: expected TOML: {error}") from error
    for key, value in _flat(tables, fields):
        if any(known.startswith(f"{key}.") for known in fields):
            raise InputError(f"{file}, {key}: got {value!r}, expected a table")
        yield key, Given(value, str(file))


def _flat(table: Mapping[str, Any], fields: Mapping[str, FieldInfo], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and key not in fields:
            yield from _flat(value, fields, f"{key}.")
        else:
            yield key, value


def _from_environment(environ: Mapping[str, str], fields: Mapping[str, FieldInfo]) -> Iterator[tuple[str, Given]]:
    known = {variable: key for key, info in fields.items() for variable in variable_names(key, info)}
    for variable in sorted(environ):
        if variable.startswith(ENV_PREFIX) and variable not in known:
            nearest = _nearest(variable, known)
            raise InputError(f"environment variable {variable}: unknown, the nearest known is {nearest}")
    for variable, key in known.items():
        if environ.get(variable):
            yield key, Given(_read_text(environ[variable]), f"environment variable {variable}")


def _from_overrides(overrides: Mapping[str, object]) -> Iterator[tuple[str, Given]]:
    for key, value in overrides.items():
        if value is not None:
            yield key, Given(_read_text(value) if isinstance(value, str) else value, "command line")


def _read_text(text: str) -> object:
    if not text.startswith("["):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # left to validation, which knows what the key expects


def _known(layer: Iterable[tuple[str, Given]], fields: Mapping[str, FieldInfo]) -> Iterator[tuple[str, Given]]:
    for key, item in layer:
        if key not in fields:
            nearest = _nearest(key, fields)
            raise InputError(f"{item.source}: unknown key {key}, the nearest known is {nearest}")
        yield key, item


def _nearest(name: str, known: Iterable[str]) -> str:
    """The first known name that only adds to this one (often a forgotten unit), else the most similar."""
    longer = [candidate for candidate in known if candidate.startswith(name)]
    return longer[0] if longer else difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)[0]


def _nested(given: Mapping[str, Given]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, item in given.items():
        *sections, name = key.split(".")
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
        table[name] = item.value
    return tree


def _input_error(error: ValidationError, given: Mapping[str, Given], model_class: type[BaseModel]) -> InputError:
    """The first of pydantic's complaints. A check over a whole section names the keys that were set in it."""
    complaint = error.errors(include_url=False)[0]
    names = [str(part) for part in complaint["loc"]]
    prefixes = [".".join(names[:length]) for length in range(len(names), 0, -1)]
    fields = leaf_fields(model_class)
    for key in prefixes:
        if key in given and entry_class(fields[key]):
            return _error_inside(key, given[key], complaint, model_class)
    if complaint["type"] == "missing":
        return InputError(f"{prefixes[0]}: not set, expected a value in {FILE_NAME}, a variable or an option")
    expected = _expectation(complaint)
    for key in prefixes:
        if key in given:
            return InputError(f"{given[key].source}, {key}: got {given[key].value!r}, expected {expected}")
    section = "".join(f"{prefix}." for prefix in prefixes[:1])
    inside = {key: item for key, item in given.items() if key.startswith(section)}
    sources = " and ".join(dict.fromkeys(item.source for item in inside.values()))
    shown = {key: repr(item.value) if fields[key].repr else "…" for key, item in inside.items()}  # a URL has passwords
    values = ", ".join(f"{key} = {value}" for key, value in shown.items())
    return InputError(f"{sources}: got {values}, expected {expected}")


def _error_inside(key: str, item: Given, complaint: Mapping[str, Any], model_class: type[BaseModel]) -> InputError:
    """Of a table of sections, or a list of them."""
    place, value = key, item.value
    for name in complaint["loc"][key.count(".") + 1 :]:
        if isinstance(value, dict) and name in value:
            place, value = f"{place}.{name}", value[name]
        elif isinstance(value, list) and isinstance(name, int):
            place, value = f"{place}[{name}]", value[name]
    if complaint["type"] == "extra_forbidden":
        nearest = _nearest(str(complaint["loc"][-1]), _fields_at(model_class, complaint["loc"][:-1]))
        return InputError(f"{item.source}: unknown key {place}, the nearest known is {nearest}")
    if complaint["type"] == "missing":
        return InputError(f"{item.source}, {place}.{complaint['loc'][-1]}: not set, expected a value")
    if complaint["type"] == HIDDEN:
        return InputError(f"{item.source}, {place}: expected {complaint['msg']}")
    return InputError(f"{item.source}, {place}: got {_shown(value)}, expected {_expectation(complaint)}")


def _shown(value: object) -> str:
    """Of tables only the keys: there may be a password among the values."""
    if isinstance(value, dict):
        return f"a table of {', '.join(map(str, value)) or 'nothing'}"
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return f"{len(value)} tables"
    return repr(value)


def _fields_at(model_class: type[BaseModel], place: Iterable[str | int]) -> list[str]:
    """Names of the fields of the section at this place; names and numbers of entries are passed over."""
    for name in place:
        info = model_class.model_fields.get(str(name))
        if info is not None:
            model_class = section_class(info) or entry_class(info) or model_class
    return list(model_class.model_fields)


def _expectation(complaint: Mapping[str, Any]) -> str:
    if complaint["type"] == "value_error":
        return str(complaint["ctx"]["error"])
    text: str = complaint["msg"].removeprefix("Input should be ").removeprefix("String should ")
    return text.split(", unable")[0].split(", got")[0]


def _refuse_odd_numbers(config: BaseModel, given: Mapping[str, Given]) -> None:
    """No setting may be infinite, and `true` is not 1, though Python and pydantic take both for numbers."""
    for key, item in given.items():
        value: object = config
        for name in key.split("."):
            value = getattr(value, name)
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{item.source}, {key}: got {item.value!r}, expected a finite number")
        if isinstance(item.value, bool) and not isinstance(value, bool):
            raise InputError(f"{item.source}, {key}: got {item.value!r}, expected a number")


def secret(variable: str | None, place: str, environ: Mapping[str, str]) -> str | None:
    """What an environment variable holds; None where none is named. place: of its name in the settings, for the error.
    Raises InputError where it is not set."""
    if variable is None:
        return None
    found = environ.get(variable, "").strip()
    if not found:
        raise InputError(f"{place}: got {variable!r}, expected the name of a variable that is set")
    return found
