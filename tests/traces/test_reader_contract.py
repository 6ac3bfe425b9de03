"""Every trace format keeps the reader contract."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.reader_contract import ReaderContract
from tests.traces.trace_samples import SAMPLES, Sample
from traces.catalog import FORMATS


class TestReaders(ReaderContract):
    @pytest.fixture(params=SAMPLES, ids=str)
    def sample(self, request: Any) -> Sample:
        sample: Sample = request.param
        return sample


def test_every_format_has_a_sample() -> None:
    assert {sample.format_name for sample in SAMPLES} == set(FORMATS)
