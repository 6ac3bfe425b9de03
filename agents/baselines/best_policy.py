"""The best static setting under each of several policies of the cache, and the cheapest of them all.

A policy is no knob: nothing lies between two of them. It is fitted once, like the setting that everything else is
compared with, and only the what-if controller moves between several (agents.baselines.whatif_fit.fit_choosing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.baselines.best_static import StaticFit, fit_best_static
from caches.errors import InputError
from caches.policies.pair import CachePolicy
from envs.ghosts import Costs, GhostGrid, ghost_grid
from envs.world import Progress, World


@dataclass(frozen=True)
class PolicyFit:
    """world: under the policy chosen. fit, grid: in it, the grid over the whole trace. each: what fits every policy
    best, in the order asked for. costs: of the grid under each."""

    world: World
    fit: StaticFit
    grid: GhostGrid
    each: tuple[tuple[CachePolicy, StaticFit], ...]
    costs: Mapping[CachePolicy, Costs]

    @property
    def policy(self) -> CachePolicy:
        return self.world.problem.policy


def fit_best_policy(
    world: World, policies: Sequence[CachePolicy], training: range, progress: Progress | None = None
) -> PolicyFit:
    """The policy whose best static setting is cheapest on training traffic, among those that keep the constraints
    there, or else the one that breaks them least often; of equals the first. As agents.baselines.best_static, it looks
    at nothing later. Of the grids of the others only costs are kept. progress: of each policy anew."""
    if not policies:
        raise InputError("policies: got none, expected at least one")
    best, each, costs = None, [], {}
    limit = world.problem.constraints.max_unsafe_per_1000
    for policy in policies:
        there = world.under(policy)
        grid = ghost_grid(there, progress=progress)
        fit = fit_best_static(there, training, progress, grid)
        each.append((policy, fit))
        costs[policy] = grid.usd, grid.unsafe
        rank = (max(fit.unsafe_per_1000 - limit, 0.0), fit.usd)
        if best is None or rank < best[0]:
            best = rank, there, fit, grid
    assert best is not None
    _, there, fit, grid = best
    return PolicyFit(there, fit, grid, tuple(each), costs)
