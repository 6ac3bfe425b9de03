"""`setpoint keys`: what keys of requests are made by, fitted on an operator's own traffic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from api.cli.options import AsJson
from api.cli.output import print_json, print_table, progress_bar
from caches.errors import InputError
from caches.semantic.bucket_fitting import AXES, BUCKETS, fit_buckets
from caches.semantic.bucket_map import save_bucket_map
from caches.semantic.embedder import Embedder, Vectors
from caches.semantic.embedder_catalog import DEFAULT, make_embedder
from traces.questions import questions_of

AT_ONCE = 256  # questions for one call of the embedder


def fit(
    questions: Annotated[
        Path,
        typer.Argument(
            help="Questions: the folder of a semantic tier, JSON lines with messages, question, text, prompt or "
            "input, or a file with one a line; also .gz or .zst."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("buckets.npz"),
    buckets: Annotated[int, typer.Option(min=1, help="How many.")] = BUCKETS,
    axes: Annotated[int, typer.Option(min=1, help="Principal axes that questions are clustered along.")] = AXES,
    embedder: Annotated[str, typer.Option(help="As [tiers.semantic] embedder.")] = DEFAULT,
    embedder_model: Annotated[str | None, typer.Option(help="As there, behind a URL.")] = None,
    embedder_dimensions: Annotated[int | None, typer.Option(help="As there, behind a URL.")] = None,
    embedder_key_env: Annotated[str | None, typer.Option(help="As there, behind a URL.")] = None,
    seed: Annotated[int, typer.Option(help="Of the clusters' starts.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Fit buckets of questions to traffic, for neighbours = "buckets" in [tiers.semantic].

    The file holds centres of clusters and no question.
    """
    texts = questions_of(questions)
    if not texts:
        raise InputError(f"{questions}: got no question that can be matched by meaning, expected some")
    key = None if embedder_key_env is None else os.environ.get(embedder_key_env)
    made = make_embedder(embedder, embedder_model, embedder_dimensions, key)
    try:
        found = fit_buckets(_vectors(made, texts), made.name, buckets, axes, seed)
    finally:
        made.close()
    save_bucket_map(found, out)
    told = {
        "file": str(out),
        "embedder": found.embedder,
        "questions": found.fitted_on,
        "buckets": len(found),
        "axes": len(found.axes),
        "variance_kept": found.explained,
    }
    if as_json:
        print_json(told)
        return
    rows = [
        (name.replace("_", " "), f"{value:.3f}" if isinstance(value, float) else str(value))
        for name, value in told.items()
    ]
    print_table(None, ("buckets", "fitted"), rows)


def _vectors(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    with progress_bar("questions") as bar:
        task = bar.add_task("vectors", total=len(texts))
        parts = []
        for first in range(0, len(texts), AT_ONCE):
            parts.append(embedder.embed(texts[first : first + AT_ONCE]))
            bar.update(task, advance=AT_ONCE)
    return np.concatenate(parts)
