"""The file in which what was measured of changes outlives a restart."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from caches.errors import InputError
from caches.freshness.change_rate import Look, change_rate
from caches.freshness.evidence import Evidence
from caches.freshness.looks_file import LooksFile
from caches.keys.request_key import Partition

NEWS, DOCS = Partition("acme", "news"), Partition("acme", "docs")
LOOKS = {NEWS: [Look(10.0, True), Look(20.0, False)], DOCS: [Look(5.5, False)]}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "cache.looks"
    assert LooksFile(path).read() == {}
    LooksFile(path).write(LOOKS)
    assert LooksFile(path).read() == LOOKS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_evidence_goes_on_where_it_was(tmp_path: Path) -> None:
    path, before = tmp_path / "cache.looks", Evidence(every=2)
    for partition, looks in LOOKS.items():
        for look in looks:
            before.record(partition, look)
    LooksFile(path).write(before.all_looks())
    after = Evidence(every=2)
    after.restore(LooksFile(path).read())
    assert after.all_looks() == before.all_looks()
    assert after.rate(NEWS) == change_rate(LOOKS[NEWS])
    assert not after.record(NEWS, Look(1.0, False))  # the first of two since the estimate


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        '{"tenant": "acme", "namespace": "docs", "ages_seconds": [1.0], "changed": []}',
        '{"tenant": "acme", "namespace": "docs", "ages_seconds": [0.0], "changed": [true]}',
        '{"tenant": "acme", "namespace": "docs", "ages_seconds": [1.0], "changed": [1]}',
        '{"tenant": "acme", "namespace": "no name!", "ages_seconds": [1.0], "changed": [true]}',
    ],
)
def test_a_damaged_file_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "cache.looks"
    LooksFile(path).write(LOOKS)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(InputError, match=r"cache\.looks, line 3: got .* expected tenant, namespace"):
        LooksFile(path).read()
