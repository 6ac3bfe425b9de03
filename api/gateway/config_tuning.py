"""The section of the gateway's settings about being tuned."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from api.gateway.config_knobs import SECTION
from envs.units import described


class TuningConfig(BaseModel):
    """Two isolated arms of one tier, so that a daemon can try settings on a share of the keys. Ranges and the
    operator's own settings are those of the tier's section."""

    model_config = SECTION

    enabled: bool = described(False, "Whether `/v1/cache/arms` takes plans and counts by arm.", "")
    tier: Literal["memory"] = described("memory", "The tier that is tuned.", "name")
