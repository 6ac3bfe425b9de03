"""Whether a text is prose, in which the kind and number of spaces say nothing."""

from __future__ import annotations


def is_prose(text: str) -> bool:
    """No code block, and no line after the first that begins with white space: in code the indentation counts."""
    if "```" in text:
        return False
    return not any(line[:1].isspace() and line.strip() for line in text.splitlines()[1:])
