"""`setpoint promote`: make a policy the champion if its evaluation says that it wins."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agents.promotion import Promotion, PromotionEvidence, recorded_evidence
from agents.promotion import promote as decide_and_swap
from agents.registry import CHALLENGER, Registry
from api.cli.exit_codes import ExitCode
from api.cli.options import AsJson, ConfigFile, TrackingUri
from api.cli.output import print_json, result_console
from api.cli.registry import find_version, open_registry
from caches.errors import NotFound
from tuner.config import load_tuner_config


def promote(
    policy: Annotated[str, typer.Argument(help="Version or alias of an evaluated policy.")] = CHALLENGER,
    config_file: ConfigFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide, but move nothing.")] = False,
    tracking_uri: TrackingUri = None,
    as_json: AsJson = False,
) -> None:
    """Make a policy the champion if it wins, or say why not.

    It wins if the lower bounds of its saving against the champion, if there is one, and against the best static
    setting are above zero and the constraints held on held-out traffic. Otherwise each reason is printed on a line and
    the exit code is 3.
    """
    config = load_tuner_config(config_file, Path.cwd(), os.environ, {"tracking.uri": tracking_uri})
    registry = open_registry(config, Path.cwd())
    evidence = find_evidence(registry, policy)
    decision = decide_and_swap(registry, evidence, dry_run=dry_run)
    if as_json:
        print_json(
            {
                "version": evidence.candidate,
                "promoted": decision.promote and not dry_run,
                "would_promote": decision.promote,
                "dry_run": dry_run,
                "reasons": decision.reasons,
                "evidence": asdict(evidence),
            }
        )
    else:
        print_promotion(decision, evidence, dry_run=dry_run)
    if not decision.promote:
        raise typer.Exit(ExitCode.NOT_PROMOTED)


def find_evidence(registry: Registry, policy: str) -> PromotionEvidence:
    """Raises NotFound, saying which command helps, where nothing is registered or the version was not evaluated."""
    version = find_version(registry, policy).version
    try:
        return recorded_evidence(registry, version)
    except NotFound as error:
        raise NotFound(f"{error}; run `setpoint evaluate {version}` first") from error


def print_promotion(decision: Promotion, evidence: PromotionEvidence, *, dry_run: bool) -> None:
    """The decision, then each reason on a line of its own."""
    console = result_console()
    if decision.promote:
        done = "would become" if dry_run else "is now"
        console.print(f"Version {evidence.candidate} {done} the champion.")
        console.print(f"It saves {evidence.saving_over_best_static} against the best static setting.")
        if evidence.saving_over_champion is not None:
            console.print(f"It saves {evidence.saving_over_champion} against version {evidence.champion}.")
        return
    console.print(f"Version {evidence.candidate} {'would not be' if dry_run else 'is not'} promoted, because:")
    for reason in decision.reasons:
        console.print(f"- {reason}", markup=False, soft_wrap=True)
