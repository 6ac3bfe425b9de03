"""Reads an HTML page strictly: what it holds, whether its elements nest, whether anything in it leaves the file."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "hr", "link", "input"}
PLACES = {"href", "src", "srcset", "xlink:href", "action", "data", "poster"}
CLOSED_BY_ITSELF = {"path", "line", "rect", "circle", "use"}


class HtmlPage(HTMLParser):
    """text: of the body, one space between words. elements: (tag, attributes, tags around it) in their order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str], tuple[str, ...]]] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self._words: list[str] = []
        self._style: list[str] = []
        self.feed(html)
        self.close()
        self.faults += [f"{tag} is never closed" for tag in self._open]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._words).split())

    @property
    def style(self) -> str:
        return "".join(self._style)

    def all(self, *tags: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes, _ in self.elements if tag in tags]

    def outside(self) -> list[str]:
        """What the page would fetch: everything that is no fragment and no data URI."""
        found = re.findall(r"@import|url\(\s*['\"]?(?!#|data:)[^)]*", self.style)
        for _, attributes, _ in self.elements:
            found += [
                value for name, value in attributes.items() if name in PLACES and not value.startswith(("#", "data:"))
            ]
            found += re.findall(r"url\(\s*['\"]?(?!#|data:)[^)]*", attributes.get("style", ""))
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.faults.append(f"{tag} has an attribute twice: {names}")
        self.elements.append((tag, {name: value or "" for name, value in attrs}, tuple(self._open)))
        if "p" in self._open and tag in {"p", "ul", "table", "div", "figure", "section", "h1", "h2"}:
            self.faults.append(f"{tag} inside p")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in CLOSED_BY_ITSELF and tag not in VOID:
            self.faults.append(f"<{tag}/> closes nothing in HTML")
        self.elements.append((tag, {name: value or "" for name, value in attrs}, tuple(self._open)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.faults.append(f"</{tag}> inside {self._open}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            self._style.append(data)
        elif "body" in self._open:
            self._words.append(data)
