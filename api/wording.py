"""Where a control loop stands, in words."""

from __future__ import annotations

from datetime import UTC, datetime

from agents.units import readable, usd
from caches.knobs import KnobSettings
from tuner.records import ControlState, Outcome, Phase, Verdict, WishKind
from tuner.savings import Band

PHASES = {
    Phase.IDLE: "No experiment runs",
    Phase.SHADOW: "A challenger decides in shadow: nothing of it is applied",
    Phase.CANARY: "A challenger has {share} of the keys",
    Phase.RAMP: "A challenger has {share} of the keys, and gets more",
    Phase.PROMOTED: "The challenger was promoted",
    Phase.ROLLED_BACK: "The challenger was rolled back",
}
OUTCOMES = {
    Outcome.PENDING: "pending: not enough is known yet",
    Outcome.BETTER: "better: it saves money, and nothing else got worse",
    Outcome.WORSE: "worse",
    Outcome.INCONCLUSIVE: "inconclusive: the time is over without a result",
    Outcome.ERROR: "error: the arms cannot be compared",
}
VERDICTS = {Verdict.ALLOW: "allowed", Verdict.HOLD: "held", Verdict.ROLLBACK: "rolled back"}
WISHES = {
    WishKind.START: "Start an experiment",
    WishKind.PAUSE: "Pause",
    WishKind.RESUME: "Resume",
    WishKind.PROMOTE: "Promote",
    WishKind.ROLL_BACK: "Roll back",
    WishKind.RELEASE: "Release",
    WishKind.STOP: "Stop the experiment",
    WishKind.KILL: "Kill switch",
}
MEANINGS = {
    WishKind.START: "A registered policy decides in shadow first, then on a small share of the keys, and on more only "
    "while it is not worse.",
    WishKind.PAUSE: "All settings stay as they are until you resume. Traffic goes on being served.",
    WishKind.RESUME: "The daemon goes on deciding, from the settings that are in force.",
    WishKind.PROMOTE: "The challenger becomes the champion for all keys, whatever the analysis says so far.",
    WishKind.ROLL_BACK: "The running challenger is taken out, or the champion where no experiment runs. It stays "
    "out until it is released or a new version comes.",
    WishKind.RELEASE: "The rollback is forgotten: the same challenger may be tried again.",
    WishKind.STOP: "The experiment ends without a result. All keys go back to the control settings.",
    WishKind.KILL: "Your own static settings are restored for all keys, and held until you resume. Traffic goes on "
    "being served.",
}


def in_words(state: ControlState) -> str:
    """A sentence."""
    said = PHASES[state.phase].format(share=percent(state.plan.split.treatment))
    if state.latched is not None:
        said += f", which holds until it is released ({state.latched.rstrip('.')})"
    if state.paused is not None:
        said += f"; all settings are held ({state.paused.rstrip('.')})"
    return f"{said}."


def percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"


def money(value: float) -> str:
    """Three digits."""
    return f"{usd(float(f'{value:.3g}'))} USD"


def settings_text(settings: KnobSettings) -> str:
    """`256 MiB, 1 h, warm-up 5 %, s3-fifo`."""
    parts = [readable(settings.cache_size, "bytes"), readable(settings.ttl_seconds, "s")]
    if settings.warmup_ratio:
        parts.append(f"warm-up {percent(settings.warmup_ratio)}")
    if settings.eviction_policy is not None:
        parts.append(settings.eviction_policy)
    return ", ".join(parts)


def band_text(band: Band, unit: str) -> str:
    """The ends of an interval."""
    low, high = ("unknown" if end is None else usd(float(f"{end:.2g}")) for end in (band.low, band.high))
    return f"{low} to {high} {unit}"


def moment(seconds: float) -> str:
    """To the second, UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def clock(seconds: float) -> str:
    """`moment` without the year."""
    return f"{datetime.fromtimestamp(seconds, UTC):%d %b %H:%M:%S}"


def ago(seconds: float) -> str:
    """In whole units, of which there are at least two."""
    for size, unit in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(seconds, 0.0):.0f} seconds ago"
