"""The page in a real browser: nothing from elsewhere, nothing wrong, by keyboard, on a phone, in the dark, and live."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.api.rest.conftest import ADMIN, KEYS, Place, Placing, served
from tests.api.rest.history import CACHE, EXPERIMENT, Told
from tuner.records import Wish, WishKind

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
ARGUMENTS = (
    "--no-sandbox",  # a container's root cannot have one
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
PATIENCE_MS = 30_000
CONFIRM, REPORT = f"/wish?cache={CACHE}&kind=kill", f"/v1/experiments/{EXPERIMENT}/report"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"needs a browser: none of {', '.join(BROWSERS)} is installed (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(place: Place) -> Iterator[str]:
    with served(place) as found:
        yield found


@contextmanager
def opened(browser: Browser, address: str, **settings: Any) -> Iterator[Page]:
    """A page of its own profile. That anything went wrong on it or came from elsewhere fails at the end."""
    context = browser.new_context(base_url=address, **settings)
    context.set_default_timeout(PATIENCE_MS)
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(address) else wrong.append(asked.url))
    yield page
    context.close()
    assert wrong == []


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(PHONE, "dark", id="phone, dark"),
        pytest.param(DESK, "light", id="desk, light", marks=pytest.mark.slow),
        pytest.param(PHONE, "light", id="phone, light", marks=pytest.mark.slow),
        pytest.param(DESK, "dark", id="desk, dark", marks=pytest.mark.slow),
    ],
)
def test_it_loads_clean_and_fits(browser: Browser, address: str, size: dict[str, int], scheme: Any) -> None:
    """No error, nothing from elsewhere, nothing wider than the window, and axe has nothing against it."""
    with opened(browser, address, viewport=size, color_scheme=scheme) as page:
        for path in ("/", CONFIRM, REPORT):
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], path
            found = Axe().run(page)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
        page.goto("/")
        expect(page.locator("#line")).to_have_text("live")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
        assert dark == (scheme == "dark")


def test_the_kill_switch_by_keyboard(browser: Browser, placing: Placing) -> None:
    """Tab to the switch, Enter, a reason, Tab, Enter. Focus can be seen on the way."""
    place = placing()
    with served(place) as address, opened(browser, address, viewport=DESK) as page:
        page.goto("/")
        tab_to(page, "kill")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        page.wait_for_url("**/wish?*")
        tab_to(page, "reason")
        page.keyboard.type("It burns money.")
        tab_to(page, "confirm")
        page.keyboard.press("Enter")
        expect(page.locator("#said")).to_contain_text("Kill switch")
        (wish,) = place.ledger.open_wishes(CACHE)
        assert (wish.kind, wish.reason) == (WishKind.KILL, "It burns money.")


@pytest.mark.slow
def test_the_kill_switch_without_scripts(browser: Browser, placing: Placing) -> None:
    place = placing()
    with served(place) as address, opened(browser, address, viewport=PHONE, java_script_enabled=False) as page:
        page.goto("/")
        page.click("#kill")
        page.click("#confirm")
        expect(page.locator("#said")).to_contain_text("The daemon acts on it at its next tick")
        assert [wish.kind for wish in place.ledger.open_wishes(CACHE)] == [WishKind.KILL]


def test_the_page_keeps_up_without_being_loaded_anew(browser: Browser, placing: Placing) -> None:
    """What is unfolded stays so, and the focus stays where it is."""
    place = placing(Told(intervals=12, lead_in=2), poll_seconds=0.1)
    with served(place) as address, opened(browser, address, viewport=DESK) as page:
        page.goto("/")
        expect(page.locator("#line")).to_have_text("live")
        page.evaluate("window.sameAsBefore = true")
        page.click("#intervals summary")
        page.focus("#ask-pause")
        place.ledger.wish(Wish(CACHE, WishKind.PAUSE, "ana", place.now[0], "The backend is being upgraded."))
        expect(page.locator("#wishes")).to_contain_text("The backend is being upgraded.", timeout=PATIENCE_MS)
        expect(page.locator("#actions")).to_contain_text("1 wish is open.")
        assert page.evaluate("window.sameAsBefore") is True
        assert page.evaluate("document.getElementById('intervals').open") is True
        assert page.evaluate("document.activeElement.id") == "ask-pause"


@pytest.mark.slow
def test_logging_in_by_keyboard(browser: Browser, placing: Placing) -> None:
    """The cookie is out of reach of scripts; nothing is left of the key."""
    place = placing(keys=KEYS)
    with served(place) as address, opened(browser, address, viewport=PHONE) as page:
        page.goto("/")
        page.wait_for_url("**/login")
        assert Axe().run(page).violations_count == 0
        tab_to(page, "key")
        page.keyboard.type(ADMIN)
        page.keyboard.press("Enter")
        expect(page.locator(".who")).to_contain_text("ada (admin)")
        assert page.evaluate("document.cookie") == ""
        page.click("text=Log out")
        page.wait_for_url("**/login")


def test_before_there_is_anything(browser: Browser, placing: Placing) -> None:
    with served(placing(None)) as address, opened(browser, address, viewport=PHONE) as page:
        page.goto("/")
        expect(page.locator("h1")).to_have_text("No daemon has acted on any cache yet")
        assert Axe().run(page).violations_count == 0


def tab_to(page: Page, wanted: str) -> None:
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == wanted:
            return
    raise AssertionError(f"no way to {wanted} by Tab")
