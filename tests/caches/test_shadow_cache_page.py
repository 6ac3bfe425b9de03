"""The examples in docs/shadow-cache.md, run."""

from __future__ import annotations

from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "shadow-cache.md").read_text(encoding="utf-8")


EXAMPLES = [part.partition("```")[0] for part in PAGE.split("```python\n")[1:]]


@pytest.mark.parametrize("code", EXAMPLES, ids=["responses", "prefixes"])
def test_an_example_prints_what_it_says(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(code, {})
    said = [line.rpartition("# ")[2] for line in code.splitlines() if line.startswith("print(")]
    assert capsys.readouterr().out.splitlines() == said
