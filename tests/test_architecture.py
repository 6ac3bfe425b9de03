"""The rules of the house that a machine can check. Each test lists the places that break its rule."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("caches", "traces", "envs", "agents", "tuner", "api")
MODULES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
SOURCES = MODULES + sorted(
    file for folder in ("tests", "benchmarks", "examples") for file in (ROOT / folder).rglob("*.py")
)

LONGEST_FILE = 400
LONGEST_FUNCTION = 50
LONGEST_KERNEL = 130  # one loop in Numba: cut up, it pays for every call (caches/shadow/kernel.py says how much)

# Third-party libraries that only some files may import; an empty set means none of ours.
SEAMS: dict[str, set[str]] = {
    "cassandra": {"caches/tiers/cassandra_connection.py"},
    "faiss": {"caches/semantic/cells.py"},
    "httpx": {
        "api/gateway/balancing.py",
        "api/gateway/upstream.py",
        "api/rehearsal/traffic.py",
        "caches/semantic/chroma_vectors.py",
        "caches/semantic/endpoint_embedder.py",
        "tuner/live/gateway_cache.py",
    },
    "grafana_foundation_sdk": set(),  # of deploy/, which no package of ours imports
    "libcachesim": set(),  # GPL-3.0: in tests and benchmarks only
    "mlflow": {"agents/mlflow_store.py"},
    "opentelemetry": {"api/gateway/tracing.py"},
    "prometheus_api_client": {"tuner/prometheus/client.py"},
    "prometheus_client": {
        "api/emulator/metrics.py",
        "api/gateway/access_log.py",
        *(f"api/gateway/{part}metrics.py" for part in ("", "arm_", "backend_", "freshness_", "guard_", "stage_")),
        *(f"api/gateway/{part}_metrics.py" for part in ("stream", "warming")),
        "api/gateway/semantic_report.py",
        "tuner/exporting/page.py",
    },
    "promql_parser": {"tuner/prometheus/promql.py"},
    "psycopg": set(),  # by name, through SQLAlchemy
    "rapidfuzz": {"caches/semantic/edits.py"},
    "redis": {
        *(f"caches/tiers/redis_{part}.py" for part in ("connection", "index", "memory", "server")),
        "caches/semantic/redis_vectors.py",
    },
    "requests": {"tuner/prometheus/client.py"},
    "river": {"agents/drift.py"},
    "simplemma": {"caches/semantic/lemmas.py"},
    "sklearn": {"caches/semantic/bucket_fitting.py"},
    "sentence_transformers": {"caches/semantic/sentence_embedder.py"},
    "sqlalchemy": {
        "agents/mlflow_store.py",
        *(f"tuner/ledgers/{part}.py" for part in ("database", "file", "pruning", "server", "sql", "tables")),
        *(f"tuner/ledgers/{part}.py" for part in ("wish_keys", "writes")),
    },
    "stable_baselines3": {"agents/ppo.py"},
    "tokenizers": {"caches/semantic/wordllama_embedder.py"},
    "vowpalwabbit": {"agents/baselines/bandit.py"},
    "torch": {"agents/ppo.py", "agents/ppo_checkpoint.py", "agents/imitation.py"},
}

# Files that may import a module by name.
LOADERS = {"api/cli/main.py"}


def test_files_are_short() -> None:
    lengths = {name_of(file): len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_functions_are_short() -> None:
    """Lines of the body; the docstring is free."""
    lengths, limit = {}, {}
    for file in SOURCES:
        for function in functions(file):
            name = f"{name_of(file)}:{function.lineno} {function.name}"
            lengths[name] = body_lines(function)
            limit[name] = LONGEST_KERNEL if is_kernel(function) else LONGEST_FUNCTION
    assert {name: length for name, length in lengths.items() if length > limit[name]} == {}


def test_third_party_libraries_stay_in_their_files() -> None:
    outside = [
        f"{place(file, node)} {name}"
        for file in MODULES
        for node in ast.walk(tree(file))
        for name in imported(node)
        if name in SEAMS and name_of(file) not in SEAMS[name]
    ]
    assert outside == []


def test_no_own_import_inside_a_function() -> None:
    inside = [
        place(file, node)
        for file in MODULES
        for function in functions(file)
        for node in ast.walk(function)
        if set(imported(node)) & set(PACKAGES)
    ]
    assert inside == []


def test_only_the_command_line_imports_by_name() -> None:
    by_name = [
        place(file, node)
        for file in MODULES
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__"))
    ]
    assert {name.partition(":")[0] for name in by_name} <= LOADERS


def test_no_global_statement() -> None:
    found = [place(file, node) for file in MODULES for node in ast.walk(tree(file)) if isinstance(node, ast.Global)]
    assert found == []


def test_no_bare_or_silent_except() -> None:
    """A handler names what it catches and does something about it."""
    bare = [
        place(file, node)
        for file in SOURCES
        for node in ast.walk(tree(file))
        if isinstance(node, ast.ExceptHandler) and (node.type is None or is_silent(node.body))
    ]
    suppressed = [
        place(file, node)
        for file in SOURCES
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("suppress")
        and {"Exception", "BaseException"} & {ast.unparse(argument) for argument in node.args}
    ]
    assert bare + suppressed == []


def test_package_file_is_a_docstring_only() -> None:
    machinery = [name_of(file) for file in MODULES if file.name == "__init__.py" and len(tree(file).body) != 1]
    assert machinery == []


def test_every_module_says_what_it_is() -> None:
    assert [name_of(file) for file in MODULES if not ast.get_docstring(tree(file))] == []


def test_packages_form_one_line() -> None:
    """The contracts of import-linter in pyproject.toml."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_has_no_side_effect(tmp_path: Path) -> None:
    """Importing every module prints nothing, writes no file and leaves the environment alone."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    names = [name_of(file).removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in MODULES]
    code = (
        "import importlib, os\n"
        "before = dict(os.environ)\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "changed = {name for name, _ in os.environ.items() ^ before.items()}\n"
        "theirs = {'PYGAME_HIDE_SUPPORT_PROMPT', 'KMP_DUPLICATE_LIB_OK', 'KMP_INIT_AT_FORK'}\n"
        "assert changed <= theirs, changed  # of gymnasium and scikit-learn\n"
    )
    environ = os.environ | {"HOME": str(home), "MPLCONFIGDIR": str(home), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=work, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(work.iterdir()) == []


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def place(file: Path, node: ast.AST) -> str:
    return f"{name_of(file)}:{getattr(node, 'lineno', 0)}"


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def imported(node: ast.AST) -> list[str]:
    """Top-level names of the packages that an import statement names; none for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").partition(".")[0]]
    return []


def is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator).startswith("njit") for decorator in function.decorator_list)


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    has_docstring = ast.get_docstring(function) is not None and len(function.body) > 1
    first, last = function.body[1 if has_docstring else 0], function.body[-1]
    return (last.end_lineno or last.lineno) - first.lineno + 1


def is_silent(body: Sequence[ast.stmt]) -> bool:
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )
