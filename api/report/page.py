"""One readable HTML page: what it is made of, how it becomes text, and how it is written.

A page is a single file. It asks nothing of the network and runs no script: styles are inline, bitmaps are data URIs,
drawings are SVG in the text, and a content security policy forbids everything else. All text is escaped; the caller
hands over plain text only. In the order of the page: title, lead (the answer in one to three sentences), key figures,
sections, notes, and a footer that says where the numbers come from.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from caches.errors import InputError
from caches.files import written_whole

TEMPLATES = Path(__file__).parent / "templates"
PNG = b"\x89PNG\r\n\x1a\n"
UNIT = re.compile(r"(?<=\d) (?=(?:%|USD|B|[KMGT]iB|d|h|min|s)(?!\w))")
MINUS = re.compile(r"(?<![\w.,-])-(?=\d)")
MOVING_PARTS = frozenset({"script", "foreignObject", "image", "iframe", "a", "animate", "set"})


@dataclass(frozen=True)
class KeyFigure:
    """One number to remember. label: what it is; value: the number with its unit; note: a few words on it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Running text. strong: a statement that stands out."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Points:
    """A list of short statements."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class PageTable:
    """A table. The first column heads its rows; `texts` names the other columns that hold words and are set left, while
    all others hold numbers and are set right. highlighted: indices of rows that stand out.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[str] = frozenset()
    highlighted: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InputError(f"rows: got a row of {len(row)} cells, expected {len(self.columns)}: {row}")

    def is_text(self, column: int) -> bool:
        return column == 0 or self.columns[column] in self.texts


@dataclass(frozen=True)
class Picture:
    """A bitmap (PNG bytes) or a drawing (SVG text). alt: what it shows, for those who cannot see it.

    A drawing stands in the page itself, so it may use the colours of the page: `currentColor` and the variables of
    templates/style.css, such as `var(--accent)`; then it suits light and dark. A bitmap gets a light ground.
    """

    content: bytes | str
    alt: str
    caption: str = ""

    def __post_init__(self) -> None:
        if not self.alt.strip():
            raise InputError("alt: got an empty text, expected what the picture shows")
        if isinstance(self.content, str):
            _require_still(self.content)
        elif not self.content.startswith(PNG):
            raise InputError(f"content: got bytes that start with {self.content[:8]!r}, expected a PNG")

    @property
    def is_drawing(self) -> bool:
        return isinstance(self.content, str)

    @property
    def svg(self) -> str:
        """Without the XML prologue, which HTML does not know. Stands in the page unescaped: it was looked through."""
        assert isinstance(self.content, str)
        return self.content[self.content.index("<svg") :]

    @property
    def uri(self) -> str:
        assert isinstance(self.content, bytes)
        return f"data:image/png;base64,{base64.b64encode(self.content).decode('ascii')}"


Block = Paragraph | Points | PageTable | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it, in order."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """Everything that a page says. kicker: a few words above the title. footer: (label, value) pairs of provenance."""

    title: str
    lead: tuple[str, ...]
    figures: tuple[KeyFigure, ...] = ()
    sections: tuple[Section, ...] = ()
    notes: tuple[str, ...] = ()
    footer: tuple[tuple[str, str], ...] = ()
    kicker: str = "Setpoint"


def render(page: Page) -> str:
    """The page as HTML text."""
    return template_environment(TEMPLATES, keep_trailing_newline=True).get_template("page.html.j2").render(page=page)


def template_environment(*folders: Path, keep_trailing_newline: bool = False) -> Environment:
    """For templates that show the blocks of a page. Everything is escaped; what is missing is an error."""
    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=keep_trailing_newline,
    )
    environment.filters["typeset"] = typeset
    environment.tests |= {
        "paragraph": lambda block: isinstance(block, Paragraph),
        "points": lambda block: isinstance(block, Points),
        "table": lambda block: isinstance(block, PageTable),
        "picture": lambda block: isinstance(block, Picture),
    }
    return environment


def typeset(text: str) -> str:
    """Keeps a number on one line with its unit, and writes a minus as one."""
    return MINUS.sub("\u2212", UNIT.sub("\u00a0", text))


def write_page(page: Page, path: Path) -> Path:
    """Writes the page in one step, so that nobody ever reads half of it, and makes its folder if there is none.

    Returns path. Raises SetpointError naming the path where it cannot be written.
    """
    text = render(page)
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def _require_still(text: str) -> None:
    """Raises InputError for what is not one SVG element, runs something or loads something from elsewhere."""
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise InputError(f"content: got text that is no XML ({error}), expected SVG") from error
    if _local(root.tag) != "svg":
        raise InputError(f"content: got an element {_local(root.tag)!r}, expected svg")
    for element in root.iter():
        tag = _local(element.tag)
        if "@import" in (element.text or "") or "url(" in (element.text or ""):
            raise InputError(f"content: got an SVG whose {tag} loads something, expected nothing outside of itself")
        if tag in MOVING_PARTS:
            raise InputError(f"content: got an SVG with an element {tag!r}, expected a drawing that stands still")
        for name, value in element.attrib.items():
            if _local(name) == "href" and not value.startswith("#"):
                raise InputError(f"content: got an SVG that refers to {value!r}, expected nothing outside of itself")
            if _local(name).lower().startswith("on"):
                raise InputError(f"content: got an SVG with an attribute {name!r}, expected no script")
            if "url(" in value and "url(#" not in value:
                raise InputError(f"content: got an SVG that loads {value!r}, expected nothing outside of itself")


def _local(name: str) -> str:
    return name.rpartition("}")[2]
