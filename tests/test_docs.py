"""The documents against the code."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from api.cli.main import app
from api.cli.reference import cli_reference
from api.gateway.config import serve_reference
from tuner.config import config_reference
from tuner.prometheus.reference import signal_reference

ROOT = Path(__file__).parents[1]
PACKAGES = ("caches", "traces", "envs", "agents", "tuner", "api")
DOCUMENTS = sorted(
    file
    for pattern in ("*.md", "docs/**/*.md", "mlruns/README.md", "benchmarks/*.md", "examples/**/*.md")
    for file in ROOT.glob(pattern)
)
# `caches/shadow/kernel.py` or `traces/formats/`, in backticks
PATH_IN_TEXT = re.compile(r"`((?:" + "|".join(PACKAGES) + r")/[\w./-]*)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def test_map_names_only_what_exists() -> None:
    assert [name for name in named_in("Map of the house") if not (ROOT / name).exists()] == []


def test_map_names_every_module() -> None:
    """By itself, or by a folder below a package, such as `traces/formats/`."""
    named = named_in("Map of the house")
    folders = tuple(name for name in named if name.endswith("/") and name.count("/") > 1)
    modules = [file.relative_to(ROOT).as_posix() for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    missing = [
        name
        for name in sorted(modules)
        if not name.endswith("__init__.py") and name not in named and not name.startswith(folders)
    ]
    assert missing == []


def test_map_names_every_package() -> None:
    assert {f"{package}/" for package in PACKAGES} <= named_in("Map of the house")


def test_every_step_of_the_control_interval_names_its_module() -> None:
    steps = re.findall(r"^\d+\. .*(?:\n   .*)*", section("One control interval in steps"), flags=re.MULTILINE)
    assert len(steps) >= 6
    for step in steps:
        names = PATH_IN_TEXT.findall(step)
        assert names, step
        assert [name for name in names if not (ROOT / name).is_file()] == []


def test_command_line_reference_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == cli_reference(get_command(app))


def test_configuration_reference_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == config_reference()


def test_reference_of_the_gateways_settings_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert (ROOT / "docs" / "gateway-settings.md").read_text(encoding="utf-8") == serve_reference()


def test_reference_of_signals_is_up_to_date() -> None:
    """`make docs` writes it."""
    assert (ROOT / "docs" / "signal-presets.md").read_text(encoding="utf-8") == signal_reference()


def test_readme_lists_every_document() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    documents = [file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").rglob("*.md")]
    assert [name for name in sorted(documents) if name not in linked] == []


def test_relative_links_resolve() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in DOCUMENTS
        for target in LINK.findall(document.read_text(encoding="utf-8"))
        if "://" not in target and not target.startswith(("#", "mailto:"))
        if not (document.parent / target.partition("#")[0]).exists()
    ]
    assert broken == []


def section(title: str) -> str:
    """The text of README below a heading of the second level."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, found, below = text.partition(f"\n## {title}\n")
    assert found, f"README has no section {title!r}"
    return below.partition("\n## ")[0]


def named_in(title: str) -> set[str]:
    return set(PATH_IN_TEXT.findall(section(title)))
