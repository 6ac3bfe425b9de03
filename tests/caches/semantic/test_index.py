"""The index beside a plain list of vectors, through matrices, cells and the changes between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.errors import InputError, Mismatch
from caches.keys.request_key import Partition
from caches.semantic.cells import Cells
from caches.semantic.embedder import Vectors, unit_rows
from caches.semantic.index import Group, VectorIndex
from caches.semantic.index_file import load_index, save_index
from caches.semantic.matrix import Matrix

DIMENSIONS = 6
GROUPS = (
    Group(Partition("a", "x"), b"1" * 32),
    Group(Partition("a", "x"), b"2" * 32),
    Group(Partition("a", "y"), b"1" * 32),
    Group(Partition("b", "x"), b"1" * 32),
)
POOL = unit_rows(np.random.default_rng(5).normal(size=(40, DIMENSIONS)).astype(np.float32))
EXACT_UP_TO = 8  # so that small examples reach the cells; with so few cells all are searched, and the answer is exact


def name(number: int) -> bytes:
    return b"%032d" % number


@dataclass
class Model:
    held: dict[Group, dict[bytes, Vectors]] = field(default_factory=lambda: {group: {} for group in GROUPS})

    def search(self, group: Group, vector: Vectors, count: int) -> list[float]:
        return sorted((float(row @ vector) for row in self.held[group].values()), reverse=True)[:count]


NUMBERS, WHERE, ROW = st.integers(0, 30), st.sampled_from(GROUPS), st.integers(0, len(POOL) - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), WHERE, NUMBERS, ROW),
        st.tuples(st.just("add"), st.just(GROUPS[0]), NUMBERS, ROW),  # one group that grows into cells
        st.tuples(st.just("remove"), WHERE, NUMBERS),
        st.tuples(st.just("search"), WHERE, ROW, st.integers(1, 12)),
        st.tuples(st.just("plan")),
        st.tuples(st.just("adopt")),
        st.tuples(st.just("save")),
    ),
    max_size=120,
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_it_finds_what_a_list_would_and_nothing_of_another_group(
    steps: list[tuple[object, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    index, model, pending = VectorIndex(DIMENSIONS, EXACT_UP_TO), Model(), None
    for what, *with_ in steps:
        match what, with_:
            case "add", [Group() as group, int(number), int(row)]:
                index.add(group, name(number), POOL[row])
                model.held[group][name(number)] = POOL[row]
            case "remove", [Group() as group, int(number)]:
                assert index.remove(group, name(number)) == (model.held[group].pop(name(number), None) is not None)
            case "search", [Group() as group, int(row), int(count)]:
                found = index.search(group, POOL[row], count)
                assert [n.similarity for n in found] == pytest.approx(model.search(group, POOL[row], count), abs=1e-5)
                for neighbour in found:  # each is this group's, with its own vector
                    own = model.held[group][neighbour.fingerprint]
                    assert float(own @ POOL[row]) == pytest.approx(neighbour.similarity, abs=1e-5)
            case "plan", _:
                pending = index.plan()
            case "adopt", _:
                if pending is not None:
                    pending.run()
                    index.adopt(pending)
                    pending = None
            case "save", _:
                path = tmp_path_factory.mktemp("index") / "vectors"
                save_index(index, "toy", path)
                index, pending = load_index(path, "toy", DIMENSIONS, EXACT_UP_TO), None
    assert len(index) == sum(len(rows) for rows in model.held.values())
    assert index.groups() == sorted(group for group, rows in model.held.items() if rows)


def full(count: int, up_to: int = EXACT_UP_TO) -> VectorIndex:
    index = VectorIndex(DIMENSIONS, up_to)
    for number in range(count):
        index.add(GROUPS[0], name(number), POOL[number])
    return index


def run_all(index: VectorIndex) -> int:
    """How many structures were built."""
    built = 0
    while (rebuild := index.plan()) is not None:
        rebuild.run()
        index.adopt(rebuild)
        built += 1
    return built


def kind_of(index: VectorIndex) -> type:
    return type(index._groups[GROUPS[0]].rows)


def test_a_group_becomes_cells_and_a_matrix_again_with_some_play_between() -> None:
    assert run_all(full(EXACT_UP_TO)) == 0
    index = full(EXACT_UP_TO + 1)
    assert (run_all(index), kind_of(index)) == (1, Cells)
    for number in range(5):
        index.remove(GROUPS[0], name(number))
    assert (run_all(index), kind_of(index)) == (0, Cells)  # half of 8 are left
    index.remove(GROUPS[0], name(5))
    assert (run_all(index), kind_of(index)) == (1, Matrix)


def test_cells_are_placed_anew_after_much_has_come_in() -> None:
    index = full(EXACT_UP_TO + 1)
    run_all(index)
    for number in range(9, 9 + 18):
        index.add(GROUPS[0], name(number), POOL[number])
    assert run_all(index) == 0
    index.add(GROUPS[0], name(30), POOL[30])
    assert run_all(index) == 1


def test_what_changes_while_cells_are_built_is_not_lost() -> None:
    index = full(EXACT_UP_TO + 1)
    rebuild = index.plan()
    assert rebuild is not None
    rebuild.run()
    index.remove(GROUPS[0], name(0))
    index.add(GROUPS[0], name(1), POOL[35])  # moved
    index.add(GROUPS[0], name(20), POOL[20])
    index.adopt(rebuild)
    assert index.search(GROUPS[0], POOL[20], 1)[0].fingerprint == name(20)
    assert index.search(GROUPS[0], POOL[35], 1)[0].fingerprint == name(1)
    assert name(0) not in [n.fingerprint for n in index.search(GROUPS[0], POOL[0], 99)]
    assert len(index) == 9


def test_a_group_that_is_gone_by_then_adopts_nothing() -> None:
    index = full(EXACT_UP_TO + 1)
    rebuild = index.plan()
    assert rebuild is not None
    rebuild.run()
    for number in range(EXACT_UP_TO + 1):
        index.remove(GROUPS[0], name(number))
    index.adopt(rebuild)
    assert (len(index), index.groups()) == (0, [])


def test_of_many_clustered_vectors_the_nearest_is_hardly_ever_missed() -> None:
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(60, 32))
    rows = unit_rows((centres[rng.integers(0, 60, 5_000)] + 0.8 * rng.normal(size=(5_000, 32))).astype(np.float32))
    cells = Cells(list(range(5_000)), rows)
    asked = unit_rows(rows[:200] + 0.05 * rng.normal(size=(200, 32)).astype(np.float32))
    found = [cells.search(vector, 1)[0][0] for vector in asked]
    assert np.mean(np.array(found) == (asked @ rows.T).argmax(axis=1)) >= 0.97


def test_a_file_of_another_embedder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    save_index(full(3), "toy", path)
    with pytest.raises(Mismatch, match="toy"):
        load_index(path, "other", DIMENSIONS)
    with pytest.raises(Mismatch):
        load_index(path, "toy", DIMENSIONS + 1)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04broken"])
def test_a_file_that_is_no_index_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        load_index(path, "toy", DIMENSIONS)
    with pytest.raises(InputError, match="cannot be read"):
        load_index(tmp_path / "absent", "toy", DIMENSIONS)
