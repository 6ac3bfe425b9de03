"""The hot set from one real gateway to another, over HTTP and by the commands."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from api.cli.exit_codes import ExitCode
from api.cli.main import COMMANDS, Entry, Group, load
from api.gateway.settings import key_hash
from api.gateway.warming_settings import WarmingSettings
from caches.errors import InputError, SetpointError
from caches.place import Place
from caches.tiers.memory import MemoryTier
from tests.api.gateway.conftest import (
    EMBEDDINGS,
    SPACE,
    Backend,
    ask,
    chat,
    gateway,
    outcome,
    send,
)
from tests.servers import free_port

CACHE = cast(Group, COMMANDS["cache"]).commands
HOT = "/v1/cache/hot"


def run(command: str, *options: str) -> None:
    load(command, cast(Entry, CACHE[command])).main(list(options), standalone_mode=False)


def lines_of(address: str, share: str = "1", **headers: str) -> list[dict[str, Any]]:
    answer = send("GET", f"{address}{HOT}?share={share}", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_cold_gateway_answers_the_hot_questions_from_memory(
    backend: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole, streamed, embeddings, and of another namespace; with the age that they have."""
    file = tmp_path / "hot.jsonl"
    asked: list[tuple[Any, dict[str, str]]] = [
        (chat("whole"), {}),
        (chat("streamed", stream=True), {}),
        (chat("theirs"), {"x_setpoint_namespace": "support"}),
        ({"model": "m", "input": "words"}, {"path": EMBEDDINGS}),
    ]
    with gateway(backend.address) as old:
        texts = [ask(old, body, **headers).text for body, headers in asked]
        run("export", str(file), "--gateway", f"{old}/v1", "--share", "1")
    assert file.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out == f"{file}: 4 entries, {file.stat().st_size:,} bytes\n"
    written = [json.loads(line)["written_seconds"] for line in file.read_text().splitlines()]
    while time.time() - max(written) < 1.0:
        time.sleep(0.1)
    backend.calls.clear()
    with gateway(backend.address) as new:
        run("import", str(file), "--gateway", new)
        assert capsys.readouterr().out == f"{file}: 4 taken, 0 there, 0 old, 0 refused\n"
        answers = [ask(new, body, **headers) for body, headers in asked]
        assert [outcome(answer) for answer in answers] == ["hit-l1"] * 4
        assert [answers[place].text for place in (0, 2, 3)] == [texts[place] for place in (0, 2, 3)]
        assert answers[1].text.endswith("data: [DONE]\n\n")
        assert all(int(answer.headers["age"]) >= 1 for answer in answers)
        assert backend.calls == []
        assert outcome(ask(new, chat("cold"))) == "miss"
        assert len(lines_of(new)) == 5  # it knows what is hot, too
        run("import", str(file), "--gateway", new)
        assert capsys.readouterr().out == f"{file}: 0 taken, 4 there, 0 old, 0 refused\n"


def test_what_is_too_old_is_counted_and_left(front: str) -> None:
    ask(front, chat("old"))
    (line,) = lines_of(front)
    line |= {"tenant": "other", "written_seconds": time.time() - 7_200.0}
    body = f"{json.dumps(line)}\n\n{json.dumps(line | {'written_seconds': time.time()})}"  # no end of line at its end
    assert send("POST", front + HOT, content=body).json() == {"taken": 1, "there": 0, "old": 1, "refused": 0}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("{", "line 3, line: got no valid JSON"),
        ({"fingerprint": "00"}, "line 3, fingerprint: got '00', expected 64 hexadecimal digits"),
        ({"version": 9}, "line 3, version: got 9, expected 1"),
        ({"tenant": "a b"}, "line 3, tenant: got 'a b', expected 1 to 64"),
    ],
)
def test_a_wrong_line_is_named_and_ends_it(front: str, tmp_path: Path, wrong: Any, told: str) -> None:
    ask(front, chat("good"))
    (line,) = lines_of(front)
    good = json.dumps(line | {"tenant": "other"})
    bad = wrong if isinstance(wrong, str) else json.dumps(line | wrong)
    later = json.dumps(line | {"tenant": "later"})
    file = tmp_path / "hot.jsonl"
    file.write_text("\n".join([good, "", bad, *[later] * 2_000]))
    with pytest.raises(InputError, match=re.escape(f"status 400: {told}")) as raised:
        run("import", str(file), "--gateway", front)
    assert str(raised.value).endswith("Of the entries before it, 1 were taken in.")
    assert {one["tenant"] for one in lines_of(front)} == {"default", "other"}


def test_a_line_has_a_largest_size(backend: Backend) -> None:
    with gateway(backend.address, largest_body_bytes=1_000) as front:
        assert send("POST", front + HOT, content=b" " * 3_000).status_code == 413


@pytest.mark.parametrize("share", ["0", "1.1", "-1", "much", "nan", ""])
def test_a_bad_share_is_refused(front: str, share: str) -> None:
    assert send("GET", f"{front}{HOT}?share={share}").json()["error"]["param"] == "share"


def test_only_operators_may(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "hot.jsonl"
    monkeypatch.setenv("OPERATORS_KEY", "root")
    monkeypatch.setenv("SOMEBODYS_KEY", "user")
    with gateway(backend.address, tenants={key_hash("user"): "acme"}, admin_key_hash=key_hash("root")) as front:
        ask(front, chat("a"), authorization="Bearer user")
        for key in ([], ["--key-env", "SOMEBODYS_KEY"]):
            with pytest.raises(InputError, match="status 403"):
                run("export", str(file), "--gateway", front, *key)
            assert not file.exists()
        run("export", str(file), "--gateway", front, "--share", "1", "--key-env", "OPERATORS_KEY")
        assert json.loads(file.read_text())["tenant"] == "acme"
        with pytest.raises(InputError, match="status 403"):
            run("import", str(file), "--gateway", front, "--key-env", "SOMEBODYS_KEY")


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        (["--gateway", "ftp://a"], InputError, "--gateway: got 'ftp://a'"),
        (["--gateway", "http://a", "--key-env", "NO_SUCH_VARIABLE"], InputError, "--key-env: got 'NO_SUCH_VARIABLE'"),
        (["--gateway", "http://127.0.0.1:{free}"], SetpointError, "the connection failed"),
    ],
)
def test_what_goes_wrong_before_leaves_the_file_as_it_was(
    tmp_path: Path, options: list[str], error: type[Exception], told: str
) -> None:
    file = tmp_path / "hot.jsonl"
    file.write_text("before")
    with pytest.raises(error, match=told):
        run("export", str(file), *(option.format(free=free_port()) for option in options))
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a file that `setpoint cache export` wrote") as raised:
        run("import", str(tmp_path / "none"), "--gateway", "http://a")
    assert raised.value.exit_code == ExitCode.BAD_INPUT


def test_it_goes_in_at_its_rate(backend: Backend) -> None:
    """41 lines, with a pause of 0.2 s after each twentieth."""
    places = [Place(MemoryTier(SPACE))]
    with gateway(backend.address, places=places, warming=WarmingSettings(imported_per_second=100.0)) as front:
        ask(front)
        (line,) = lines_of(front)
        body = "\n".join(json.dumps(line | {"tenant": f"t{number}"}) for number in range(41))
        began = time.monotonic()
        answer = httpx.post(front + HOT, content=body, timeout=30, verify=False)
        assert answer.json()["taken"] == 41
        assert time.monotonic() - began >= 0.4
