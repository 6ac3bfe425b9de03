"""Replays a trace by NVIDIA Dynamo's simulated engine. Run by the Python of its own environment
(benchmarks/dynamo_peer.py makes it): python dynamo_script.py WANTED.json ANSWER.json"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dynamo.replay import run_trace_replay


def answer(wanted: dict[str, Any]) -> dict[str, Any]:
    engine = {
        "backend": "vllm",
        "num_gpu_blocks": wanted["blocks"],
        "block_size": wanted["block_tokens"],
        "max_model_len": wanted["longest"],
        "enable_prefix_caching": True,
    }
    report = run_trace_replay(
        [wanted["trace"]],
        extra_engine_args={"engine": engine},
        trace_block_size=wanted["block_tokens"],
        replay_concurrency=wanted["at_once"],
        capture_per_request=wanted["at_once"] is None,  # it keeps no times when it admits by count
    )
    return {"summary": report.summary, "per_request": report.per_request}


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(json.dumps([answer(wanted) for wanted in json.loads(source.read_text())]))
