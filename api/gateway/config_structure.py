"""What a namespace takes for the same although it is written differently, as keys of its section."""

from __future__ import annotations

from pydantic import BaseModel

from api.gateway.config_knobs import SECTION
from caches.keys.lines import Clock
from caches.keys.structure import Structure
from envs.units import described


class StructureConfig(BaseModel):
    """Each merges requests that a backend is told apart; the page on keys says when that is right. Those that
    can hardly merge two questions are on."""

    model_config = SECTION

    line_ends: bool = described(True, "All ends of lines are one.", "")
    spaces: bool = described(False, "In prose, more than one space or blank line is one.", "")
    clock: Clock = described(
        Clock.EXACT,
        "How exactly lines of system and developer messages count that state the current time: exact, hour, day, or "
        "gone for not at all.",
        "name",
    )
    ignored_lines: tuple[str, ...] = described(
        (), 'Labels of lines there whose value does not count, such as "request id".', "list"
    )
    addresses: bool = described(True, "Addresses of images are compared in one spelling.", "")
    ignored_parameters: tuple[str, ...] = described(
        (), 'Parameters of these addresses that do not count, such as "utm_*".', "list"
    )
    tracking_fields: bool = described(
        False, "Fields of the body by which requests are traced, such as request_id, do not count.", ""
    )
    folded_fields: tuple[str, ...] = described((), "Fields of the body in which case does not count.", "list")
    lemmas: str | None = described(
        None, "Hits by meaning through lemmas: their language; not set: that of the semantic tier.", "name"
    )

    def structure(self) -> Structure:
        """Raises InputError."""
        return Structure(
            self.line_ends,
            self.spaces,
            self.clock,
            frozenset(self.ignored_lines),
            self.addresses,
            self.ignored_parameters,
            self.tracking_fields,
            frozenset(self.folded_fields),
        )
