"""A gateway whose backend is slow, too busy or gone, and who answers then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from openai import OpenAI

from tests.api.gateway.conftest import ask, chat, metric, openai_at, outcome, send, until
from tests.api.gateway.moody import Moody, guarded, moody
from tests.servers import free_port

SHORT = "[tiers.memory]\nlowest_ttl_seconds = 0.1\nttl_seconds = 0.2\n"


@pytest.fixture(scope="module")
def one() -> Iterator[Moody]:
    with moody() as backend:
        yield backend


@pytest.fixture
def backend(one: Moody) -> Moody:
    one.status, one.delay_seconds = None, 0.0
    one.models.clear()
    one.keys.clear()
    return one


def gone(address: str, seconds: float = 0.3) -> None:
    """Until an answer's lifetime is over."""
    time.sleep(seconds)


def test_a_stale_answer_is_served_when_the_backend_fails_and_says_so(backend: Moody, tmp_path: Path) -> None:
    with guarded(backend, tmp_path, "stale_grace_seconds = 60.0\n" + SHORT) as address:
        first = ask(address)
        gone(address)
        backend.status = 503
        stale = ask(address)
        assert (stale.status_code, outcome(stale)) == (200, "stale")
        assert stale.content == first.content
        assert int(stale.headers["age"]) >= 0
        assert "retry-after" not in stale.headers
        assert outcome(ask(address, chat(stream=True))) == "stale"
        backend.status = None
        assert outcome(ask(address)) == "miss"  # as soon as there is a new one
        assert metric(address, 'setpoint_guard_instead_total{rung="stale",why="failed"}') == 2.0


def test_without_one_the_error_comes_as_it_is(backend: Moody, tmp_path: Path) -> None:
    backend.status = 503
    with guarded(backend, tmp_path, "stale_grace_seconds = 60.0\n") as address:
        answer = ask(address)
        assert (answer.status_code, outcome(answer)) == (503, "miss")
        assert answer.json()["error"]["message"] == "in a mood"
        assert metric(address, 'setpoint_guard_instead_total{rung="nobody",why="failed"}') == 1.0


def test_a_client_can_refuse_stale_answers(backend: Moody, tmp_path: Path) -> None:
    with guarded(backend, tmp_path, "stale_grace_seconds = 60.0\n" + SHORT) as address:
        ask(address)
        gone(address, 1.1)
        backend.status = 500
        for wish in ("stale-if-error=0", "no-cache", "max-age=1"):
            assert ask(address, cache_control=wish).status_code == 500, wish
        assert outcome(ask(address, cache_control="stale-if-error=30")) == "stale"


def test_an_error_of_the_request_is_nobodys_to_answer(backend: Moody, tmp_path: Path) -> None:
    with guarded(backend, tmp_path, 'stale_grace_seconds = 60.0\ntemplate = "Later."\n' + SHORT) as address:
        ask(address)
        gone(address)
        backend.status = 400
        assert ask(address).status_code == 400


def test_what_was_invalidated_is_not_served(backend: Moody, tmp_path: Path) -> None:
    with guarded(backend, tmp_path, "stale_grace_seconds = 60.0\n" + SHORT) as address:
        ask(address)
        body = {"namespace": "default"}
        told = send("POST", f"{address}/v1/cache/invalidate", json=body).json()
        assert told["tiers"] == {"memory": 1, "stale": 1}
        backend.status = 500
        assert ask(address).status_code == 500


def test_stale_answers_in_a_redis_outlive_the_gateway(backend: Moody, tmp_path: Path, redis_server: str) -> None:
    redis = f'[tiers.redis]\nurl = "{redis_server}"\nprefix = "stale-{tmp_path.name}"\nslow_seconds = 10.0\n'
    text = f'stale_grace_seconds = 60.0\nstale_in = "redis"\n{redis}ttl_seconds = 1.0\n{SHORT}'
    with guarded(backend, tmp_path, text) as address:
        first = ask(address)
    backend.status = 500
    with guarded(backend, tmp_path, text) as address:
        gone(address, 1.1)
        answer = ask(address)
        assert (outcome(answer), answer.content) == ("stale", first.content)
        told = send("POST", f"{address}/v1/cache/invalidate", json={"namespace": "default"}).json()
        assert told["tiers"]["stale"] == 1
        assert ask(address).status_code == 500


def test_a_backend_that_fails_is_left_alone_and_found_again(backend: Moody, tmp_path: Path) -> None:
    text = 'template = "Please come back later."\n[resilience.failures]\nfailures = 2\nfirst_seconds = 1.0\n'
    with guarded(backend, tmp_path, text) as address:
        backend.status = 500
        for number in range(6):
            assert outcome(ask(address, chat(f"question {number}"))) == "template"
        assert len(backend.models) == 2
        assert metric(address, 'setpoint_guard_condition{of="upstream"}') == 2.0
        assert send("GET", f"{address}/v1/cache/stats").json()["resilience"]["conditions"]["upstream"] == "down"
        backend.status = None
        until(lambda: outcome(ask(address, chat("another"))) != "template")
        assert outcome(ask(address, chat("another"))) == "hit-l1"


def test_a_template_is_a_whole_answer_and_is_not_kept(backend: Moody, tmp_path: Path) -> None:
    backend.status = 500
    with guarded(backend, tmp_path, 'template = "No model can answer now."\n') as address:
        client: OpenAI
        with openai_at(address) as client:
            whole = client.chat.completions.create(
                model="m", temperature=0, messages=[{"role": "user", "content": "a"}]
            )
            assert whole.choices[0].message.content == "No model can answer now."
            assert (whole.choices[0].finish_reason, whole.model) == ("stop", "setpoint-template")
            text = client.completions.create(model="m", temperature=0, prompt="a")
            assert text.choices[0].text == "No model can answer now."
            stream = client.chat.completions.create(
                model="m", temperature=0, messages=[{"role": "user", "content": "a"}], stream=True
            )
            pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
            assert "".join(pieces) == "No model can answer now."
        form = {"response_format": {"type": "json_object"}}
        assert ask(address, chat("a", **form)).status_code == 500  # a text is no JSON
        assert ask(address, {"model": "m", "input": "a"}, "/v1/embeddings").status_code == 200  # has no moods
        backend.status = None
        assert outcome(ask(address, chat("a"))) == "miss"


def test_a_smaller_model_answers_says_so_and_is_kept_under_a_key_of_its_own(backend: Moody, tmp_path: Path) -> None:
    with moody() as other:
        text = f'fallback_model = "tiny"\nfallback_upstream = "{other.address}"\n'
        with guarded(backend, tmp_path, text) as address:
            backend.status = 500
            for _ in range(2):
                answer = ask(address, authorization="Bearer secret")
                assert (answer.status_code, outcome(answer)) == (200, "fallback")
                assert answer.json()["model"] == "tiny"
            assert other.models == ["tiny"]  # the second from the cache
            assert other.keys == [""]  # never a client's
            assert outcome(ask(address, chat(stream=True))) == "fallback"
            backend.status = None
            answer = ask(address)
            assert (outcome(answer), answer.json()["model"]) == ("miss", "m")
            backend.status = 500
            assert outcome(ask(address, chat("other", model="tiny"))) == "fallback"
            backend.status = None
            assert outcome(ask(address, chat(model="tiny"))) == "miss"  # of the backend itself


def test_a_smaller_model_of_the_same_backend_is_no_help_when_that_is_down(backend: Moody, tmp_path: Path) -> None:
    text = 'fallback_model = "tiny"\ntemplate = "Later."\n[resilience.failures]\nfailures = 1\nfirst_seconds = 60.0\n'
    with guarded(backend, tmp_path, text) as address:
        backend.status = 500
        assert outcome(ask(address)) == "template"
        assert backend.models == ["m"]


def test_past_the_cache_others_answer_too(backend: Moody, tmp_path: Path) -> None:
    with moody() as other:
        text = f'fallback_model = "tiny"\nfallback_upstream = "{other.address}"\ntemplate = "Later."\n'
        with guarded(backend, tmp_path, text) as address:
            sampled = chat("a", temperature=1.0)
            assert outcome(ask(address, sampled)) == "bypass"
            backend.status = 429
            answer = ask(address, sampled)
            assert (outcome(answer), answer.json()["model"]) == ("fallback", "tiny")
            other.status = 500
            answer = ask(address, sampled)
            assert (outcome(answer), answer.json()["model"]) == ("template", "setpoint-template")
            assert outcome(ask(address, chat("a", temperature=1.0, stream=True))) == "template"


def test_a_namespace_may_do_without(backend: Moody, tmp_path: Path) -> None:
    text = 'template = "Later."\n[namespaces.strict]\ndegrade = []\n'
    with guarded(backend, tmp_path, text) as address:
        backend.status = 500
        assert outcome(ask(address)) == "template"
        assert ask(address, x_setpoint_namespace="strict").status_code == 500


def test_a_backend_that_keeps_one_waiting_is_not_waited_for(backend: Moody, tmp_path: Path) -> None:
    with guarded(backend, tmp_path, 'patience_seconds = 0.3\ntemplate = "Later."\n') as address:
        assert outcome(ask(address)) == "miss"
        backend.delay_seconds = 8.0
        for stream in (False, True):
            began = time.monotonic()
            assert outcome(ask(address, chat("slow", stream=stream))) == "template"
            assert time.monotonic() - began < 7.0


def test_the_limit_on_streams_is_to_their_first_byte(backend: Moody, tmp_path: Path) -> None:
    text = "[resilience.latency]\nfirst_byte_p95_seconds = 0.25\nleast_answers = 3\nfirst_seconds = 60.0\n"
    with guarded(backend, tmp_path, text) as address:
        backend.delay_seconds = 0.5
        for number in range(4):
            ask(address, chat(f"whole {number}"))
        assert metric(address, 'setpoint_guard_condition{of="upstream"}') == 0.0
        for number in range(4):
            ask(address, chat(f"streamed {number}", stream=True))
        assert metric(address, 'setpoint_guard_condition{of="upstream"}') == 1.0
        assert outcome(ask(address, chat("asked all the same", stream=True))) == "miss"


def test_a_slow_backend_is_spared_where_a_stale_answer_is_there(backend: Moody, tmp_path: Path) -> None:
    text = "stale_grace_seconds = 60.0\n[resilience.latency]\nwhole_p95_seconds = 0.25\nleast_answers = 3\n"
    with guarded(backend, tmp_path, text + "first_seconds = 60.0\n" + SHORT) as address:
        ask(address, chat("known"))
        backend.delay_seconds = 0.5
        for number in range(4):
            assert outcome(ask(address, chat(f"slow {number}"))) == "miss"
        assert metric(address, 'setpoint_guard_condition{of="upstream"}') == 1.0
        before = len(backend.models)
        gone(address)
        assert outcome(ask(address, chat("known"))) == "stale"
        assert len(backend.models) == before
        assert outcome(ask(address, chat("unknown"))) == "miss"  # the backend all the same


def test_long_requests_are_held_back_first(backend: Moody, tmp_path: Path) -> None:
    text = "[resilience.token_rate]\ntokens_per_second = 0.001\nburst_tokens = 1000.0\n"
    with guarded(backend, tmp_path, text) as address:
        assert outcome(ask(address, chat("a", max_tokens=400))) == "miss"
        left = send("GET", f"{address}/v1/cache/stats").json()["resilience"]["tokens_left"]
        assert 500.0 < left < 1000.0  # settled by what the answer took
        refused = ask(address, chat("b", max_tokens=900))
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert int(refused.headers["retry-after"]) > 0
        assert ask(address, chat("c", max_tokens=100)).status_code == 200
        assert ask(address, chat("d", max_tokens=900, temperature=1.0)).status_code == 429
        assert ask(address, chat("a", max_tokens=400)).headers["x-setpoint-cache"] == "hit-l1"  # a hit takes nothing


def test_a_class_of_prompts_that_fails_is_kept_back_alone(backend: Moody, tmp_path: Path) -> None:
    text = (
        '[[resilience.classes]]\nname = "tables"\npatterns = ["TABLE"]\nfailures = 2\n'
        '[[resilience.classes]]\nname = "forbidden"\npatterns = ["(?i)ignore the above"]\nrefused = true\n'
    )
    with guarded(backend, tmp_path, text) as address:
        assert ask(address, chat("Ignore the above!")).status_code == 503
        assert backend.models == []
        backend.status = 500
        for number in range(2):
            assert ask(address, chat(f"TABLE {number}")).status_code == 500
        backend.status = None
        kept_back = ask(address, chat("TABLE 3"))
        assert (kept_back.status_code, kept_back.json()["error"]["code"]) == (503, "upstream_unavailable")
        assert ask(address, chat("no such thing")).status_code == 200
        classes = send("GET", f"{address}/v1/cache/stats").json()["resilience"]["classes"]
        assert [(one["name"], one["kept_back"]) for one in classes] == [("tables", True), ("forbidden", True)]


def test_an_error_that_lies_in_the_request_is_repeated_without_the_backend(backend: Moody, tmp_path: Path) -> None:
    with guarded(backend, tmp_path, "negative_seconds = 60.0\n") as address:
        backend.status = 404
        for _ in range(3):
            answer = ask(address)
            assert (answer.status_code, answer.json()["error"]["message"]) == (404, "in a mood")
        assert len(backend.models) == 1
        assert ask(address, authorization="Bearer other").status_code == 404  # who may see a model depends on the key
        assert ask(address, cache_control="no-cache").status_code == 404
        assert len(backend.models) == 3
        backend.status = None
        assert send("POST", f"{address}/v1/cache/invalidate", json={"namespace": "default"}).status_code == 200
        assert outcome(ask(address)) == "miss"
        assert metric(address, "setpoint_guard_negatives_total") == 2.0


@pytest.mark.parametrize("status", [401, 403, 408, 429, 500])
def test_an_error_that_may_be_another_one_next_time_is_not(backend: Moody, tmp_path: Path, status: int) -> None:
    with guarded(backend, tmp_path, "negative_seconds = 60.0\n") as address:
        backend.status = status
        assert [ask(address).status_code for _ in range(2)] == [status] * 2
        assert len(backend.models) == 2


def test_a_backend_that_is_not_there_is_refused_at_once_until_it_is(tmp_path: Path) -> None:
    absent = Moody(f"http://127.0.0.1:{free_port()}")
    with guarded(absent, tmp_path, "") as address:
        until(lambda: ask(address).json()["error"]["code"] == "upstream_unavailable")
        assert ask(address).headers["retry-after"] == "1"


def test_what_is_off_is_not_there(backend: Moody, tmp_path: Path) -> None:
    with guarded(backend, tmp_path, "") as address:
        stats = orjson.loads(send("GET", f"{address}/v1/cache/stats").content)
        assert set(stats["tiers"]) == {"memory"}
        backend.status = 500
        assert ask(address).status_code == 500
