"""The fixture that all parts of the ledger's contract share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tuner.ledger import Ledger

Opener = Callable[[], Ledger]


class OpenedLedger:
    """For tests with a fixture `opener`, which opens the same ledger as often as it is called."""

    @pytest.fixture
    def ledger(self, opener: Opener) -> Iterator[Ledger]:
        ledger = opener()
        yield ledger
        ledger.close()
