"""The entry point as a person meets it: a process, its two streams and its exit code."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from api.cli.exit_codes import ExitCode
from api.cli.main import COMMANDS, Entry, Group, load, main
from caches.errors import BadRecord, InputError, NotFound

ENTRIES = [
    pair
    for name, entry in COMMANDS.items()
    for pair in (entry.commands.items() if isinstance(entry, Group) else [(name, entry)])
]
SETPOINT = str(Path(sys.executable).parent / "setpoint")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SETPOINT, *arguments], capture_output=True, text=True, check=False)


def test_help_lists_every_command_with_its_line() -> None:
    done = run("--help")
    assert done.returncode == ExitCode.DONE
    assert done.stderr == ""
    width = max(map(len, COMMANDS))
    for name, entry in COMMANDS.items():
        assert f"  {name:<{width}}  {entry.help}\n" in done.stdout


def test_help_answers_in_under_half_a_second() -> None:
    """The best of five, of the processor's time: what the program needs, not what else the machine does."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert 0.0 < min(seconds) < 0.5


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, json; sys.argv = ['setpoint', '--help']\n"
        "from api.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: json.dump(sorted({name.split('.')[0] for name in sys.modules}), sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "numba", "torch", "mlflow", "pyarrow", "pydantic", "scipy", "matplotlib", "rich"}
    assert heavy.isdisjoint(json.loads(done.stderr))


def test_version_is_the_projects() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"setpoint {project['version']}\n")


def test_no_arguments_prints_help_and_is_a_usage_error() -> None:
    done = run()
    assert done.returncode == ExitCode.BAD_INPUT
    assert "Commands:" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("argument", "words"),
    [("trian", "No such command 'trian'. Did you mean 'train'"), ("--verison", "No such option: --verison")],
)
def test_usage_error_goes_to_stderr_with_its_code(argument: str, words: str) -> None:
    done = run(argument)
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stdout == ""
    assert words in done.stderr


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Mounts a command `probe`, from source text with a function `probe`, beside the real ones."""

    def mount(source: str) -> None:
        (tmp_path / "probe_command.py").write_text(f"import typer\n{source}", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "probe_command", raising=False)
        monkeypatch.setitem(COMMANDS, "probe", Entry("probe_command", "probe", "A probe."))
        monkeypatch.setattr(sys, "argv", ["setpoint", "probe"])

    return mount


def exit_code() -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def test_command_runs_and_returns_nothing(command: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    command("def probe(count: int = 3) -> None:\n    typer.echo(count)")
    assert exit_code() == ExitCode.DONE
    assert capsys.readouterr().out == "3\n"


def test_bad_input_is_one_line_on_stderr(command: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    command(
        "from caches.errors import BadRecord\n"
        "def probe() -> None:\n"
        "    raise BadRecord('a\\nb.csv', 3, 'size_bytes', -1, 'at least 0')"
    )
    assert exit_code() == ExitCode.BAD_INPUT
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err == "error: a b.csv, line 3, size_bytes: got -1, expected at least 0\n"


def test_interrupt_exits_130(command: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    command("def probe() -> None:\n    raise KeyboardInterrupt")
    assert exit_code() == ExitCode.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


def test_command_chooses_its_exit_code(command: Callable[[str], None]) -> None:
    command(
        "from api.cli.exit_codes import ExitCode\ndef probe() -> None:\n    raise typer.Exit(ExitCode.NOT_PROMOTED)"
    )
    assert exit_code() == 3


def test_bug_keeps_its_traceback(command: Callable[[str], None]) -> None:
    """Python prints it and exits with 1."""
    command("def probe() -> None:\n    raise ZeroDivisionError('a bug')")
    with pytest.raises(ZeroDivisionError, match="a bug"):
        main()


def test_group_of_commands_lists_and_runs_its_own(
    command: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command("def inner() -> None:\n    typer.echo('inside')")
    inner = Entry("probe_command", "inner", "The inner one.")
    monkeypatch.setitem(COMMANDS, "probe", Group("A group.", {"inner": inner}))
    monkeypatch.setattr(sys, "argv", ["setpoint", "probe", "inner"])
    assert exit_code() == ExitCode.DONE
    assert capsys.readouterr().out == "inside\n"
    monkeypatch.setattr(sys, "argv", ["setpoint", "probe", "--help"])
    assert exit_code() == ExitCode.DONE
    assert "  inner  The inner one.\n" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "entry"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_every_command_in_the_table_loads(name: str, entry: Entry) -> None:
    command = load(name, entry)
    assert command.name == name
    assert command.help


def test_errors_and_exit_codes_agree() -> None:
    assert InputError.exit_code == BadRecord.exit_code == ExitCode.BAD_INPUT
    assert NotFound.exit_code == ExitCode.NOTHING_FOUND


def test_every_exit_code_has_a_meaning() -> None:
    assert all(code.meaning for code in ExitCode)
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3, 4, 130]
