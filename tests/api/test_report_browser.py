"""A report in a real browser: nothing is wider than a phone, nothing is cut off, in light and dark."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from api.report.evaluation import evaluation_page
from api.report.page import PageTable, Section, write_page
from tests.api.report_by_hand import material

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PHONE, DESK = 360, 1280
# A window of a browser without a screen cannot be as narrow as a phone, a frame can.
FRAME = """<!DOCTYPE html><body style="margin:0">
<iframe id="frame" src="page.html" style="border:0;width:{width}px;height:900px"></iframe>
<script>
addEventListener("load", () => {{
  const page = document.getElementById("frame").contentDocument;
  const boxes = [...page.querySelectorAll("main *, footer *")].filter(one => !one.closest(".scroll table, svg"));
  const right = Math.max(...boxes.map(one => one.getBoundingClientRect().right));
  const scrolling = [...page.querySelectorAll(".scroll")].filter(one => one.scrollWidth > one.clientWidth);
  document.body.textContent = [
    "measured", page.documentElement.scrollWidth, Math.ceil(right), scrolling.length,
    page.querySelectorAll("svg").length, page.fonts.size].join(" ");
}});
</script></body>
"""


@pytest.fixture
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"needs a browser: none of {', '.join(BROWSERS)} is installed (Debian: apt-get install chromium)")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_nothing_is_wider_than_the_window(browser: str, tmp_path: Path, width: int, scheme: str) -> None:
    """With a trace's name that has no place to break at, and a table far wider than a phone."""
    page = evaluation_page(material(setting={"trace": "x" * 150, "source": "y" * 300}))
    wide = PageTable("Wide", tuple(f"column {i}" for i in range(12)), (("1,000,000.00",) * 12,) * 2)
    page = replace(page, sections=(*page.sections, Section("A wide table", (wide,))))
    write_page(page, tmp_path / "page.html")
    across, right, scrolling, drawings, fonts = measured(browser, tmp_path, width, scheme)
    assert across == width
    assert right <= width
    assert scrolling >= 1  # the wide table scrolls in its own box
    assert drawings > 3
    assert fonts == 0


def measured(browser: str, folder: Path, width: int, scheme: str) -> list[int]:
    """Width of the page, right end of its boxes, boxes that scroll, SVG elements, fonts loaded."""
    (folder / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    command = [
        browser,
        "--headless",
        "--no-sandbox",  # a container's root cannot have one
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--hide-scrollbars",
        "--allow-file-access-from-files",
        f"--user-data-dir={folder / 'profile'}",
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
        f"--window-size={max(width, 500)},900",
        "--virtual-time-budget=5000",
        "--dump-dom",
        (folder / "frame.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    _, found, numbers = done.stdout.partition("measured ")
    assert found, done.stdout[:500]
    return [int(number) for number in numbers.split("<")[0].split()]
