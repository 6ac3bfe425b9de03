"""The page builder: one safe, complete, self-contained file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api.report.page import (
    PNG,
    TEMPLATES,
    KeyFigure,
    Page,
    PageTable,
    Paragraph,
    Picture,
    Points,
    Section,
    render,
    typeset,
    write_page,
)
from caches.errors import InputError, SetpointError
from tests.api.html_pages import HtmlPage

HOSTILE = '<script>alert("x")</script>\'&<img src=https://example.com/x.png onerror=alert(1)>'
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><path d="M0 0L4 4" stroke="currentColor"/></svg>'
ONE_PIXEL = PNG + b"and so on"


def page(word: str = "word") -> Page:
    """Everything that a page can hold, with one word everywhere."""
    return Page(
        title=word,
        lead=(word, "Second sentence."),
        figures=(KeyFigure(word, word, word), KeyFigure("bare", "1")),
        sections=(
            Section(word, (Paragraph(word), Paragraph("Mind this.", strong=True), Points((word, "two")))),
            Section(
                "Numbers",
                (
                    PageTable(
                        word,
                        ("name", word, "kind"),
                        ((word, "1", word), ("b", "2", "y")),
                        frozenset({"kind"}),
                        frozenset({1}),
                    ),
                    Picture(SVG, word, word),
                    Picture(ONE_PIXEL, word),
                ),
            ),
        ),
        notes=(word,),
        footer=((word, word),),
        kicker=word,
    )


def test_page_nests_and_asks_nothing_of_the_network() -> None:
    read = HtmlPage(render(page()))
    assert read.faults == []
    assert read.outside() == []
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _, _ in read.elements}
    policy = next(one["content"] for one in read.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_hostile_words_are_text() -> None:
    """The word stands in 17 places of the body: kicker, title, lead, three of a key figure, heading, paragraph, point,
    caption, column, two cells, caption of the drawing, note, two of the footer. Alternative texts are attributes."""
    read = HtmlPage(render(page(HOSTILE)))
    assert read.faults == []
    assert read.outside() == []
    assert read.text.count(HOSTILE) == 17
    assert [tag for tag, _, _ in read.elements if tag in ("script", "img")] == ["img"]  # the bitmap's own
    assert not [name for _, attributes, _ in read.elements for name in attributes if name.startswith("on")]
    assert read.all("img")[0]["alt"] == HOSTILE


def test_headings_are_in_order() -> None:
    headings = [tag for tag, _, _ in HtmlPage(render(page())).elements if re.fullmatch(r"h\d", tag)]
    assert headings == ["h1", "h2", "h2", "h2", "h2"]  # title, two sections, notes, footer


def test_tables_can_be_read_aloud() -> None:
    read = HtmlPage(render(page()))
    assert [one["scope"] for one in read.all("th")] == ["col"] * 3 + ["row"] * 2
    assert len(read.all("caption")) == 1
    region = next(one for one in read.all("div") if one.get("class") == "scroll")
    assert (region["role"], region["tabindex"], region["aria-label"]) == ("region", "0", "word")
    assert [attributes.get("class") for attributes in read.all("td")] == ["number", None] * 2
    assert [attributes.get("class") for attributes in read.all("tr")] == [None, None, "highlighted"]


def test_every_picture_has_an_alternative_text() -> None:
    read = HtmlPage(render(page()))
    assert [one["alt"] for one in read.all("img")] == ["word"]
    drawing = next(one for one in read.all("div") if one.get("class") == "drawing")
    assert (drawing["role"], drawing["aria-label"]) == ("img", "word")


def test_nothing_is_wider_than_the_page() -> None:
    """Tables stand in a box that scrolls, pictures shrink, words break."""
    read = HtmlPage(render(page()))
    assert all("div" in around for tag, _, around in read.elements if tag == "table")
    style = " ".join(read.style.split())
    assert re.search(r"\.scroll \{[^}]*overflow-x: auto", style)
    assert re.search(r"\.bitmap \{[^}]*max-width: 100%", style)
    assert re.search(r"body \{[^}]*overflow-wrap: break-word", style)
    assert next(one["content"] for one in read.all("meta") if one.get("name") == "viewport").startswith("width=device")


@pytest.mark.parametrize(
    ("wanted", "around"), [("prefers-color-scheme: dark", "--paper"), ("print", "@page"), ("max-width", "footer dl")]
)
def test_style_knows_dark_print_and_phone(wanted: str, around: str) -> None:
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    assert re.search(rf"@media \(?{wanted}", style)
    assert around in style


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_the_ground(scheme: str) -> None:
    """At least 4.5 to 1, as WCAG 2.2 asks of text (success criterion 1.4.3)."""
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    light, dark = (style.partition("prefers-color-scheme: dark")[i] for i in (0, 2))
    colours = dict(
        re.findall(r"--([a-z]+): (#[0-9a-f]{6});", light if scheme == "light" else dark.partition("@media")[0])
    )
    for ground in ("paper", "tint"):
        for text in ("ink", "quiet", "accent", "second", "third"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


def contrast(one: str, other: str) -> float:
    """Ratio of relative luminances as WCAG 2.2 defines it."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_numbers_keep_their_units_and_minus_signs_are_such() -> None:
    assert typeset("-0.5 to 12.4 % of 3 USD") == "\u22120.5 to 12.4\u00a0% of 3\u00a0USD"
    assert typeset("2026-11-29, seed 3 days, x-1, 1e-5") == "2026-11-29, seed 3 days, x-1, 1e-5"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no xml", "text that is no XML"),
        ("<p/>", "element 'p', expected svg"),
        (SVG.replace("<path", "<script/><path"), "element 'script'"),
        (SVG.replace("<path", '<image href="x.png"/><path'), "element 'image'"),
        (SVG.replace("<path", '<use href="https://example.com#a"/><path'), "refers to 'https://example.com#a'"),
        (SVG.replace("<path", '<path onclick="x()"'), "attribute 'onclick'"),
        (SVG.replace("<path", '<path style="fill:url(https://example.com)"'), "loads"),
        (SVG.replace("<path", "<style>@import 'x.css';</style><path"), "style loads something"),
        (b"GIF89a", "start with b'GIF89a', expected a PNG"),
    ],
)
def test_unfit_pictures_are_refused(content: bytes | str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Picture(content, "a picture")


def test_picture_without_alternative_text_is_refused() -> None:
    with pytest.raises(InputError, match="alt: got an empty text"):
        Picture(SVG, " ")


def test_row_of_another_length_is_refused() -> None:
    with pytest.raises(InputError, match=r"rows: got a row of 1 cells, expected 2: \('a',\)"):
        PageTable("caption", ("one", "two"), (("a",),))


def test_prologue_of_a_drawing_is_left_out() -> None:
    text = render(Page("t", (), sections=(Section("s", (Picture('<?xml version="1.0"?>\n' + SVG, "a"),)),)))
    assert "<?xml" not in text
    assert SVG in text


def test_write_makes_the_folder_and_leaves_one_file(tmp_path: Path) -> None:
    path = write_page(page(), tmp_path / "new" / "page.html")
    assert path.read_text(encoding="utf-8") == render(page())
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]


def test_failed_write_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_page(page("old"), tmp_path / "page.html")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(SetpointError, match=r"page\.html: cannot be written: No space left on device"):
        write_page(page("new"), path)
    assert path.read_text(encoding="utf-8") == render(page("old"))
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_write_below_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetpointError, match=r"page\.html: cannot be written"):
        write_page(page(), tmp_path / "file" / "page.html")


def test_page_with_nothing_but_a_title() -> None:
    read = HtmlPage(render(Page("Only this", ())))
    assert read.faults == []
    assert read.text == "Setpoint Only this"
