"""Rules of keys, candidates by meaning and levels of keys: from a gateway's settings to what it serves and logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from typer.testing import CliRunner

from api.cli.main import app as command
from api.gateway.building import built
from api.gateway.config import load_serve_config
from caches.errors import InputError
from caches.keys.levels import LEVELS
from caches.semantic.bucket_map import save_bucket_map
from caches.semantic.buckets import Buckets
from caches.semantic.signed_matrix import SignedMatrix
from tests.api.gateway.conftest import Backend, ask, configured, outcome
from tests.caches.semantic.test_rows import FITTED
from traces.catalog import load_trace
from traces.reader import ReadOptions

ONE, SAME, TWIN = "How do I reset my password?", "How can I reset my password?", "How are passwords reset?"
MANY = [f"How do I {verb} my {noun}?" for verb in ("open", "close", "change") for noun in ("card", "account", "limit")]


def asked(question: str, system: str = "Be brief.", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return {"model": "m", "temperature": 0, "messages": messages} | fields


RULES = """
[tiers.semantic]
enabled = false
[namespaces.loose]
line_ends = true
spaces = true
clock = "day"
ignored_lines = ["Request-ID"]
addresses = true
ignored_parameters = ["utm_*"]
tracking_fields = true
folded_fields = ["model"]
"""


def test_each_rule_of_a_namespace_is_in_its_keys(backend: Backend, tmp_path: Path) -> None:
    system = "Be brief.\r\nTime: 2026-11-30 10:00\nrequest id: 1"
    other = "Be brief.\nTime: 2026-11-30 11:00\nrequest id: 2"
    tomorrow = other.replace("11-30", "12-01")
    with configured(backend.address, tmp_path / "gateway.toml", RULES) as address:
        ask(address, asked("a  b", system, model="M", trace_id="1"), x_setpoint_namespace="loose")
        again = ask(address, asked("a b", other), x_setpoint_namespace="loose")
        assert outcome(again) == "hit-l1"
        assert outcome(ask(address, asked("a b", tomorrow), x_setpoint_namespace="loose")) == "miss"
        ask(address, asked("a  b", system))
        assert outcome(ask(address, asked("a b", other))) == "miss"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[namespaces.a]\nfolded_fields = ["messages"]', "folded_fields: got 'messages'"),
        ('[namespaces.a]\nclock = "minute"', "clock: got 'minute'"),
        ('[namespaces.a]\nlemmas = "tlh"', "lemmas: language of lemmas: got 'tlh'"),
        ('[tiers.semantic]\nneighbours = "buckets"', "bucket_map"),
        ('[tiers.semantic]\nneighbours = "signatures"\nentries = "redis://h"', "neighbours and lemmas, or entries"),
        ('[tiers.semantic]\nentries = "redis://h"\n[namespaces.a]\nlemmas = "en"', "a semantic tier that is shared"),
        ('[access_log]\nplace = "redis://h"\nkey_levels = true', "key_levels: got a Redis stream"),
        ('[access_log]\nplace = "{folder}"\nkey_levels = true\nkey_language = "tlh"', "access_log.key_language"),
    ],
)
def test_settings_that_cannot_be_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[gateway]\nupstream = "http://h"\n' + text.replace("{folder}", str(tmp_path / "log")))
    with pytest.raises(InputError, match=message):
        built(load_serve_config(file, {}), str(file), {})


def rows_of(file: Path) -> Any:
    """The structure that a gateway of these settings keeps vectors in."""
    tier = built(load_serve_config(file, {}), str(file), {}).semantic
    assert tier is not None
    return tier.options.make_rows and tier.options.make_rows(tier.vectors.dimensions)  # type: ignore[union-attr]


def settings_of(folder: Path, text: str) -> Path:
    file = folder / "gateway.toml"
    file.write_text(f'[gateway]\nupstream = "http://h"\n[tiers.semantic]\n{text}')
    return file


def test_signatures_answer_as_vectors_do(backend: Backend, tmp_path: Path) -> None:
    text = '[tiers.semantic]\nverified_share = 0.0\nneighbours = "signatures"\nsignature_bits = 20\n'
    with configured(backend.address, tmp_path / "gateway.toml", text) as address:
        ask(address, asked(ONE))
        found = ask(address, asked(SAME))
        assert outcome(found) == "hit-l3"
        assert 0.9 < float(found.headers["x-setpoint-similarity"]) < 1.0
        assert outcome(ask(address, asked(SAME, system="Be long."))) == "miss"
    assert isinstance(rows_of(tmp_path / "gateway.toml"), SignedMatrix)


def test_buckets_are_fitted_by_a_command_and_answer_as_vectors_do(backend: Backend, tmp_path: Path) -> None:
    questions, out = tmp_path / "questions.txt", tmp_path / "buckets.npz"
    questions.write_text("\n".join([*MANY, ONE]))
    done = CliRunner().invoke(
        command, ["keys", "fit", str(questions), "--out", str(out), "--buckets", "4", "--axes", "3", "--json"]
    )
    assert done.exit_code == 0, done.output
    told = orjson.loads(done.stdout)
    assert (told["questions"], told["buckets"], told["axes"]) == (10, 4, 3)
    text = f'verified_share = 0.0\nneighbours = "buckets"\nbucket_map = "{out}"\nprobed_buckets = 1\n'
    with configured(backend.address, tmp_path / "gateway.toml", f"[tiers.semantic]\n{text}") as address:
        ask(address, asked(ONE))
        assert outcome(ask(address, asked(SAME))) == "hit-l3"
    assert isinstance(rows_of(settings_of(tmp_path, text)), Buckets)
    save_bucket_map(FITTED, out)
    with pytest.raises(InputError, match=r"tiers\.semantic\.bucket_map: .*'toy', 6\), expected .*'wordllama"):
        rows_of(settings_of(tmp_path, text))


def test_lemmas_answer_for_a_namespace(backend: Backend, tmp_path: Path) -> None:
    text = '[tiers.semantic]\nverified_share = 0.0\nsimilarity_threshold = 0.99\n[namespaces.a]\nlemmas = "en"\n'
    with configured(backend.address, tmp_path / "gateway.toml", text) as address:
        for namespace, expected in (("a", "hit-l3"), ("b", "miss")):
            ask(address, asked(ONE), x_setpoint_namespace=namespace)
            found = ask(address, asked(TWIN), x_setpoint_namespace=namespace)
            assert outcome(found) == expected
        assert outcome(ask(address, asked("How are passwords not reset?"), x_setpoint_namespace="a")) == "miss"


def test_the_access_log_has_keys_of_every_level(backend: Backend, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    text = f'[access_log]\nplace = "{folder}"\nkey_levels = true\n[tiers.semantic]\nenabled = false\n'
    with configured(backend.address, tmp_path / "gateway.toml", text) as address:
        for body in (asked(ONE), dict(reversed(asked(ONE).items())), asked(ONE, user="u"), asked(TWIN)):
            ask(address, body)
        for _ in range(2):  # streams are recorded at their end, hits as misses are
            ask(address, asked(ONE, stream=True))
        httpx.post(f"{address}/v1/chat/completions", json={"model": "m"}, timeout=30)  # past the cache
    keys = {level: load_trace(folder, options=ReadOptions(key_level=level)).key.tolist() for level in LEVELS}
    assert keys["raw"] == [0, 1, 2, 3, 4, 4]
    assert keys["order"] == [0, 0, 1, 2, 3, 3]
    assert keys["tracking"] == [0, 0, 1, 2, 3, 3]
    assert keys["other"] == [0, 0, 0, 1, 0, 0]
    assert keys["wording"] == [0] * 6
    assert load_trace(folder).key.tolist() == keys["other"]


def test_without_being_asked_for_no_level_is_logged(backend: Backend, tmp_path: Path) -> None:
    text = f'[access_log]\nplace = "{tmp_path / "log"}"\n[tiers.semantic]\nenabled = false\n'
    with configured(backend.address, tmp_path / "gateway.toml", text) as address:
        ask(address, asked(ONE))
    with pytest.raises(InputError, match="got no records"):
        load_trace(tmp_path / "log", options=ReadOptions(key_level=LEVELS[0]))
