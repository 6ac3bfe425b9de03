"""The experiment that a rollout runs: its record, what its design says of an interval, and what it has come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from caches.errors import InputError
from caches.target import Arm
from tuner.analysis import AnalysisPlan, Comparison, compare
from tuner.experiment import ExperimentDesign
from tuner.records import ExperimentRecord, IntervalRecord, Outcome

DESIGN, BEGAN = "plan", "began_index"
LEAST_PREDICTED = 8  # intervals whose prediction says anything
CERTAIN = 3.0  # standard errors below zero from which a predicted loss counts


@dataclass(frozen=True)
class Running:
    """began_index: the first interval with two arms; None while the challenger decides in shadow."""

    record: ExperimentRecord
    design: ExperimentDesign
    began_index: int | None

    @staticmethod
    def of(record: ExperimentRecord) -> Running:
        """InputError where the ledger holds a design of another kind."""
        began, plan = record.design.get(BEGAN), record.design.get(DESIGN, {})
        if not isinstance(plan, Mapping) or not (began is None or isinstance(began, int)):
            raise InputError(f"experiment {record.id}: got a design that is not one, expected {DESIGN} and {BEGAN}")
        return Running(record, ExperimentDesign.model_validate(plan), began)

    def split_from(self, index: int) -> Running:
        """With two arms from this interval on."""
        return Running(replace(self.record, design={**self.record.design, BEGAN: index}), self.design, index)

    def challenged(self, index: int) -> Arm | None:
        """The arm that has the challenger's settings in an interval."""
        return None if self.began_index is None else self.design.challenged(self.began_index, index)

    def compared(self, records: Sequence[IntervalRecord]) -> Comparison:
        """records: of both arms, since it began."""
        if self.began_index is None:
            return Comparison(Outcome.PENDING, ("The challenger decides in shadow; no keys are its yet.",), {})
        arms = [[one for one in records if one.arm is arm] for arm in (Arm.CONTROL, Arm.TREATMENT)]
        return compare(arms[0], arms[1], AnalysisPlan(self.design, self.began_index))

    def ended(self, now_seconds: float, outcome: Outcome, answer: str) -> ExperimentRecord:
        return replace(self.record, ended_seconds=now_seconds, outcome=outcome, answer=answer)


def design_json(design: ExperimentDesign, began_index: int | None) -> dict[str, object]:
    return {DESIGN: design.model_dump(mode="json"), BEGAN: began_index}


def foreseen(predicted: Sequence[float]) -> Comparison:
    """What the shadow intervals predict, USD saved per 1,000 requests in each: WORSE where they foresee a loss for
    certain, PENDING else. A prediction never counts as a proof."""
    if len(predicted) < LEAST_PREDICTED:
        return Comparison(Outcome.PENDING, (f"{len(predicted)} shadow intervals have a prediction.",), {})
    mean = float(np.mean(predicted))
    error = float(np.std(predicted, ddof=1) / np.sqrt(len(predicted)))
    told = f"{len(predicted)} shadow intervals predict a saving of {mean:.4g} USD per 1,000 requests, +- {error:.2g}."
    numbers: dict[str, object] = {"predicted_usd_per_1000": mean, "predicted_error_usd_per_1000": error}
    return Comparison(Outcome.WORSE if mean + CERTAIN * error < 0.0 else Outcome.PENDING, (told,), numbers)
