"""The OpenAPI against the server: schemathesis makes requests by it, good and bad, and looks at every answer."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tests.api.rest.conftest import ADMIN, Place

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the libraries behind it, which are no concern of ours
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis import GenerationMode

EVENTS = "/v1/events"  # a stream that goes on, which tests/api/rest/test_events.py reads


WITHOUT_PARAMETERS = {f"GET /v1/{path}" for path in ("caches", "me", "policies", "aliases")}  # none can be wrong
UNSAID = ["304", "404", "406", "409", "422"]
HEADERS = {"authorization": f"Bearer {ADMIN}"}
FEW: Any = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


def described(keyed: Place) -> Any:
    config = schemathesis.Config.from_dict(
        {
            "generation": {"mode": "all", "allow-x00": False, "database": "none"},
            # that a design contradicts itself, or that a cursor is made up, no schema can say
            "checks": {
                "positive_data_acceptance": {"expected-statuses": ["2xx", "304", "403", "404", "406", "409", "422"]}
            },
        }
    )
    return schemathesis.openapi.from_asgi("/openapi.json", keyed.app, config=config, headers=HEADERS).exclude(
        path=EVENTS
    )


HEADERS = {"authorization": f"Bearer {ADMIN}"}


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_answers_are_as_described(keyed: Place, mode: GenerationMode) -> None:
    ask(keyed, mode, settings(max_examples=5, phases=[Phase.explicit, Phase.generate], **FEW))


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_answers_are_as_described_at_length(keyed: Place, mode: GenerationMode) -> None:
    ask(keyed, mode, settings(max_examples=100, phases=[Phase.explicit, Phase.generate], **FEW))


def ask(keyed: Place, mode: GenerationMode, many: settings) -> None:
    """Each operation with requests that keep to the description, or with such that do not."""
    operations = [found.ok() for found in described(keyed).get_all_operations()]
    assert len(operations) > 12
    for operation in operations:

        @many
        @given(operation.as_strategy(generation_mode=mode))
        def answers(case: Any) -> None:
            case.call_and_validate(headers=HEADERS)

        if mode is GenerationMode.POSITIVE or operation.label not in WITHOUT_PARAMETERS:
            answers()


async def test_it_is_valid_and_has_examples_and_words(keyed: Place) -> None:
    described(keyed).validate()
    async with keyed.client(ADMIN) as client:
        told = (await client.get("/openapi.json")).json()
        pages = [(await client.get(path)).status_code for path in ("/docs", "/redoc")]
    assert pages == [404, 404]  # they would load from elsewhere
    assert told["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    silent = [
        f"{method} {path}"
        for path, methods in told["paths"].items()
        for method, one in methods.items()
        if not (one.get("description") and one.get("tags") and {"401", "403", "429", "503"} <= set(one["responses"]))
    ]
    assert silent == []
    bodies = [name for name in told["components"]["schemas"] if name in ("WishIn", "ExperimentIn", "ReasonIn")]
    assert len(bodies) == 3
    assert all(told["components"]["schemas"][name]["examples"] for name in bodies)
    shown = [
        name for name, one in told["components"]["schemas"].items() if name.endswith("Out") and "example" in str(one)
    ]
    assert len(shown) > 15
