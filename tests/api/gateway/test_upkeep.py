"""What goes on beside the requests."""

from __future__ import annotations

import pytest

from caches.place import Place
from caches.tiers.memory import MemoryTier
from tests.api.gateway.conftest import SPACE, emulated, gateway, until


def test_an_error_in_housekeeping_is_logged_and_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryTier):
        tended = 0

        async def tend(self, now_seconds: float) -> bool:
            self.tended += 1
            if self.tended == 1:
                raise ZeroDivisionError("a bug")
            return await super().tend(now_seconds)

    tier = Broken(SPACE)
    with emulated() as backend, gateway(backend.address, places=[Place(tier)]):
        until(lambda: tier.tended > 1)
    (record,) = [one for one in caplog.records if one.name == "setpoint.gateway"]
    assert record.exc_info is not None
    assert "a bug" in caplog.text
