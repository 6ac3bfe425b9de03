"""The section of the gateway's settings on how long answers may be served."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, field_validator

from api.gateway.config_knobs import SECTION, seconds
from caches.freshness.lifetime import Bounds
from caches.freshness.shift import ShiftRule
from caches.keys.partitions import EXPECTED, NAME
from envs.units import described

Schedule = Literal["fixed", "load", "quality", "sampling", "hazard"]


class FreshnessConfig(BaseModel):
    """How long answers may be served, where a namespace has a schedule, and what is done about answers that are
    outdated or doubtful. See the page on freshness."""

    model_config = SECTION

    shortest_share: float = described(
        0.1, "Of the tier's `ttl_seconds`: no schedule goes below.", "share", gt=0, le=1, strict=True
    )
    longest_share: float = described(
        2.0,
        "Of the tier's `ttl_seconds`: no schedule goes above. Where a namespace has a schedule, tiers keep answers so "
        "long, the semantic one excepted.",
        "share",
        ge=1,
        le=10,
        strict=True,
    )
    longest_seconds: float | None = seconds(None, "No schedule goes above; not set: no such limit.")
    load_period_seconds: float = seconds(10.0, "load: requests and failures are counted over so long.")
    full_rounds: float = described(
        8.0, "sampling: an answer good for so many repetitions lives the whole lifetime.", "number", gt=0, strict=True
    )
    stale_budget: float = described(
        0.05, "hazard: expected share of outdated answers among hits.", "share", gt=0, lt=1, strict=True
    )
    asked_again_share: float = described(
        0.01, "hazard: of hits, the backend is asked anyway, beside the request.", "share", ge=0, le=1, strict=True
    )
    asked_again_per_second: float = described(
        1.0, "hazard: such calls at most.", "calls/s", gt=0, strict=True, allow_inf_nan=False
    )
    same_answer: Literal["facts", "similar", "normalised", "exact"] | None = described(
        None,
        "hazard: when two answers are the same, as in [tiers.semantic]; not set: as there, and normalised where there "
        "is no semantic tier.",
        "name",
    )
    on_shift: Literal["off", "report", "shorten", "flush"] = described(
        "off",
        "When answers to equal requests drift. shorten: lifetimes of the family are shorter while they do; flush: a "
        "new epoch of it begins. Needs the semantic tier's embedder.",
        "name",
    )
    shift_cosine: float = described(
        0.18, "Two answers whose cosine distance is larger have shifted.", "distance", gt=0, le=2, strict=True
    )
    shift_nats: float | None = described(
        None,
        "So have those whose token distributions diverge by more, where both have them; not set: not looked at.",
        "nats",
        gt=0,
        strict=True,
    )
    shifted_share: float = described(
        0.1, "Of a family's answers that may shift before anything is done.", "share", gt=0, le=1, strict=True
    )
    shift_lifetime_share: float = described(
        0.5, "shorten: what is left of lifetimes.", "share", gt=0, le=1, strict=True
    )
    least_mean_logprob: float | None = described(
        None,
        "An answer whose tokens have a lower mean log-probability is not kept, such as -2.3; not set: all are. One "
        "without logprobs is kept always.",
        "nats",
        le=0,
        strict=True,
    )
    tag_metadata: tuple[str, ...] = described(
        (),
        "Fields of a request's `metadata` that tag its answer FIELD.VALUE, such as model_version, knowledge_cutoff, "
        "document_versions, prompt_template.",
        "list",
    )
    feedback: bool = described(False, "Whether clients may say what answers were worth.", "")
    feedback_per_minute: int = described(60, "Of a tenant, at most.", "number", gt=0, strict=True)
    feedback_is_trusted: bool = described(
        False, "Whether a hit by meaning that is called wrong counts as a verified one.", ""
    )
    epochs_file: Path | None = described(
        None, "Where flushes are kept; not set: beside the tier on disk, and in each Redis.", "path"
    )
    looks_file: Path | None = described(
        None,
        "hazard: where what was measured is kept from a stop to the next start; not set: beside the tier on disk. One "
        "for each gateway.",
        "path",
    )

    @field_validator("tag_metadata")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not NAME.fullmatch(name):
                raise ValueError(f"names of fields, of {EXPECTED}")
        return names

    @property
    def bounds(self) -> Bounds:
        limit = {} if self.longest_seconds is None else {"longest_seconds": self.longest_seconds}
        return Bounds(self.shortest_share, self.longest_share, **limit)

    @property
    def shift_rule(self) -> ShiftRule:
        return ShiftRule(self.shift_cosine, self.shift_nats, self.shifted_share, self.shift_lifetime_share)
