"""The example in docs/shadow-cache.md, run."""

from __future__ import annotations

from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "shadow-cache.md").read_text(encoding="utf-8")


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    code = PAGE.partition("```python\n")[2].partition("```")[0]
    exec(code, {})
    assert capsys.readouterr().out.strip() == code.rstrip().rpartition("# ")[2]
