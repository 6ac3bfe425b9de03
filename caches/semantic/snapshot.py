"""A semantic tier on disk: entries as JSON lines, and their vectors, so that a restart needs no embedder for them.

The two files may be of different saves: an entry without its vector gets a new one, a vector without its entry is left.
Both can be read by their owner only, since they hold questions and answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from caches.entry_lines import entry_of, fields_of, line_of
from caches.errors import BadRecord, InputError, Mismatch
from caches.files import written_whole
from caches.keys.request_key import RequestKey
from caches.semantic.index import VectorIndex
from caches.semantic.index_file import load_index, save_index
from caches.semantic.tier import SemanticTier
from caches.tiers.tier import Answer

ENTRIES, VECTORS = "entries.jsonl", "vectors"
OWNER_ONLY = 0o600


def save_tier(tier: SemanticTier, folder: Path) -> int:
    """Returns how many entries. Each file whole or not at all; raises SetpointError where one cannot be written."""
    entries = tier.entries()
    with written_whole(folder / ENTRIES) as partial, partial.open("wb") as file:
        partial.chmod(OWNER_ONLY)
        file.writelines(line_of(key, answer) for key, answer in entries)
    save_index(tier.vectors, tier.embedder_name, folder / VECTORS)
    return len(entries)


async def load_tier(tier: SemanticTier, folder: Path, now_seconds: float) -> int:
    """Stores what was saved and still fits, in the same order of touch; returns how many: none where nothing was saved.

    Vectors of another embedder are not used. Raises InputError where a file is not what `save_tier` writes.
    """
    if not (folder / ENTRIES).exists():
        return 0
    vectors = _vectors(tier, folder / VECTORS)
    taken = 0
    for key, answer in entries_in(folder):
        taken += await tier.restore(key, answer, vectors, now_seconds)
    return taken


def _vectors(tier: SemanticTier, path: Path) -> VectorIndex | None:
    if not path.exists():
        return None
    try:
        return load_index(path, tier.embedder_name, tier.vectors.dimensions)
    except Mismatch:
        return None


def entries_in(folder: Path) -> Iterator[tuple[RequestKey, Answer]]:
    """What was saved, least recently touched first. Raises InputError where it is not what `save_tier` writes."""
    path = folder / ENTRIES
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield entry_of(fields_of(line))
            except InputError as error:
                raise BadRecord(path, number, None, line, f"an entry of a semantic tier ({error})") from error
