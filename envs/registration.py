"""Makes `setpoint/ReplayCache-v0` known to Gymnasium, as importing this module does.

Gymnasium finds environments by importing the module that registers them: `import envs.registration`, then
`gymnasium.make("setpoint/ReplayCache-v0")`; or in one step, as "envs.registration:setpoint/ReplayCache-v0".
Registering enters a name; what it stands for is loaded when the environment is made.
"""

from __future__ import annotations

import gymnasium

ENV_ID = "setpoint/ReplayCache-v0"


def register() -> None:
    """Enters the environment, once per process however often it is called."""
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(
            ENV_ID,
            entry_point="envs.registration_target:make_replay_cache",
            vector_entry_point="envs.registration_target:make_replay_lanes",
        )


register()
