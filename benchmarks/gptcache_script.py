"""Run by the Python of GPTCache's environment: what it serves. Reads pairs from standard input, writes JSON. The only
argument is a folder for its files, which it writes until the end of the process.

Input: {"vectors": {text: numbers}, "pairs": [[stored, asked], ...]}. Output: for each pair whether the stored text's
answer was given to the other, from a cache that holds nothing else. All but the embeddings is as GPTCache has it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gptcache import Cache
from gptcache.adapter.api import get, put
from gptcache.manager import CacheBase, VectorBase, get_data_manager
from gptcache.processor.pre import get_prompt
from gptcache.similarity_evaluation import SearchDistanceEvaluation


def served(stored: str, asked: str, vectors: dict[str, list[float]], folder: Path) -> bool:
    folder.mkdir()

    def embedding(text: str, **_: Any) -> Any:
        return np.array(vectors[text], dtype="float32")

    cache = Cache()
    cache.init(
        pre_embedding_func=get_prompt,
        embedding_func=embedding,
        data_manager=get_data_manager(
            CacheBase("sqlite", sql_url=f"sqlite:///{folder / 'entries.db'}"),
            VectorBase("faiss", dimension=len(vectors[stored]), index_path=str(folder / "vectors.faiss")),
        ),
        similarity_evaluation=SearchDistanceEvaluation(),
    )
    put(stored, "answer", cache_obj=cache)
    return get(asked, cache_obj=cache) is not None


def main() -> None:
    asked = json.load(sys.stdin)
    folder = Path(sys.argv[1])
    found = [
        served(stored, other, asked["vectors"], folder / str(number))
        for number, (stored, other) in enumerate(asked["pairs"])
    ]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
