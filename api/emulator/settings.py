"""What an emulator is told before it starts."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from envs.serving import Backend, Serving, ServingProfile, backend_of
from envs.units import described


class EmulatorSettings(BaseModel):
    """One emulated deployment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: ServingProfile
    replicas: int = described(1, "GPUs that serve the model", "GPUs", gt=0, le=1024)
    speed: float = described(1.0, "seconds of the profile that pass in a second", "ratio", gt=0, allow_inf_nan=False)
    stream_interval: int = described(1, "tokens of a streamed chunk, after the first", "tokens", gt=0)
    seed: int = described(0, "of all answers", "number", ge=0)
    fail_ratio: float = described(0.0, "share of requests that get an error in place of an answer", "ratio", ge=0, le=1)

    @property
    def backend(self) -> Backend:
        return backend_of(self.profile, Serving(replicas=self.replicas))

    @property
    def fingerprint(self) -> str:
        """The `system_fingerprint` of every answer."""
        return f"setpoint-emulator-{self.profile.name}"
