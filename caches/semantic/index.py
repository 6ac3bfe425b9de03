"""Nearest neighbours over unit vectors, apart for each group. A group is all that may share answers: partition and
context. Each has a structure of its own, so no search can find what belongs to another.

Most contexts hold few questions, so a group begins as a matrix and becomes cells above `matrix_up_to` rows, where those
are several times as fast (`python benchmarks/stack.py` measures both); below half of that it goes back. The cells are
placed anew when twice as many rows have come in as they were placed by. None of this happens in a search or addition:
`plan` hands out the work, which a thread can do, and `adopt` takes it in. An index that is given a structure of another
kind uses that for all groups, whatever their size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from caches.keys.request_key import Partition
from caches.semantic.cells import Cells
from caches.semantic.embedder import Vectors
from caches.semantic.matrix import Matrix
from caches.semantic.rows import MakeRows, Rows

MATRIX_UP_TO = 4_096


@dataclass(frozen=True, order=True)
class Group:
    partition: Partition
    context: bytes


@dataclass(frozen=True)
class Neighbour:
    """similarity: inner product, in [-1, 1] but for rounding."""

    fingerprint: bytes
    similarity: float


@dataclass
class Rebuild:
    """A group's rows as they were when the work was handed out. `run` touches nothing else: any thread will do."""

    group: Group
    numbers: list[int]
    vectors: Vectors
    into_cells: bool
    built: Rows | None = None

    def run(self) -> None:
        if self.into_cells:
            self.built = Cells(self.numbers, self.vectors)
            return
        self.built = Matrix(self.vectors.shape[1])
        for number, vector in zip(self.numbers, self.vectors, strict=True):
            self.built.add(number, vector)


@dataclass
class _Members:
    """One group. Each addition gets a new number, so a fingerprint that comes back is a new row."""

    rows: Rows
    number_of: dict[bytes, int] = field(default_factory=dict)
    fingerprint_of: dict[int, bytes] = field(default_factory=dict)
    added: int = 0  # since the cells were placed


class VectorIndex:
    """One owner, no locks."""

    def __init__(self, dimensions: int, matrix_up_to: int = MATRIX_UP_TO, make_rows: MakeRows | None = None) -> None:
        """make_rows: the structure of a group; None for matrices and cells, by size."""
        self.dimensions, self._matrix_up_to, self._make_rows = dimensions, matrix_up_to, make_rows or Matrix
        self._groups: dict[Group, _Members] = {}
        self._next_number = 0

    def __len__(self) -> int:
        return sum(len(members.number_of) for members in self._groups.values())

    def groups(self) -> list[Group]:
        """Those that hold something."""
        return sorted(self._groups)

    def add(self, group: Group, fingerprint: bytes, vector: Vectors) -> None:
        """In place of the vector that is there."""
        self.remove(group, fingerprint)
        members = self._groups.setdefault(group, _Members(self._make_rows(self.dimensions)))
        members.rows.add(self._next_number, vector)
        members.number_of[fingerprint] = self._next_number
        members.fingerprint_of[self._next_number] = fingerprint
        members.added += 1
        self._next_number += 1

    def remove(self, group: Group, fingerprint: bytes) -> bool:
        """Returns whether there was one."""
        members = self._groups.get(group)
        number = None if members is None else members.number_of.pop(fingerprint, None)
        if members is None or number is None:
            return False
        del members.fingerprint_of[number]
        members.rows.remove(number)
        if not members.number_of:
            del self._groups[group]
        return True

    def search(self, group: Group, vector: Vectors, count: int) -> list[Neighbour]:
        """At most `count` of this group, most similar first; none where the group is empty."""
        members = self._groups.get(group)
        if members is None:
            return []
        return [Neighbour(members.fingerprint_of[number], s) for number, s in members.rows.search(vector, count)]

    def vector(self, group: Group, fingerprint: bytes) -> Vectors | None:
        """Shape (dimensions,); None where there is none."""
        members = self._groups.get(group)
        number = None if members is None else members.number_of.get(fingerprint)
        return None if members is None or number is None else members.rows.vectors([number])[0]

    def rows(self) -> Iterator[tuple[Group, list[bytes], Vectors]]:
        """Everything, group by group, in the order of addition."""
        for group in self.groups():
            members = self._groups[group]
            yield group, list(members.number_of), members.rows.vectors(list(members.number_of.values()))

    def plan(self) -> Rebuild | None:
        """The next group whose structure no longer fits it, copied; None where all fit."""
        for group, members in self._groups.items():
            into_cells = self._misfit(members)
            if into_cells is not None:
                numbers = list(members.number_of.values())
                return Rebuild(group, numbers, members.rows.vectors(numbers), into_cells)
        return None

    def adopt(self, rebuild: Rebuild) -> None:
        """Takes in what `rebuild.run` made, brought up to date with what has come and gone since `plan`."""
        members, built = self._groups.get(rebuild.group), rebuild.built
        if members is None or built is None:
            return
        copied = set(rebuild.numbers)
        for number in copied - members.fingerprint_of.keys():
            built.remove(number)
        new = [number for number in members.fingerprint_of if number not in copied]
        for number, vector in zip(new, members.rows.vectors(new), strict=True):
            built.add(number, vector)
        members.rows, members.added = built, len(new)

    def _misfit(self, members: _Members) -> bool | None:
        """Whether the group should be built as cells; None where it is fine as it is."""
        held, rows = len(members.number_of), members.rows
        if self._make_rows is not Matrix:
            return None
        if not isinstance(rows, Cells):
            return True if held > self._matrix_up_to else None
        if 2 * held < self._matrix_up_to:
            return False
        return True if members.added > 2 * rows.trained_on else None
