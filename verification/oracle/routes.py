"""Which formula each algorithm uses at each stage: the oracle's own table, so that a wrong wiring shows.

A registered algorithm without a line here is judged by no exact value; tests/verification/test_oracle.py asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Route:
    """The formulas of one algorithm by stage."""

    scores: str  # of a prompt group: none, mean_std, mean, leave_one_out, components
    advantage: str  # broadcast, masked_broadcast, discounted_returns, gae, whitened_broadcast
    objective: str  # ppo_clip, soft_gate, clipped_is, reinforce
    sequence_level: bool = False  # one log-ratio a response
    token_normalization: str = "whiten"  # or token_global


ROUTES = {
    "grpo": Route("mean_std", "broadcast", "ppo_clip"),
    "gspo": Route("mean_std", "broadcast", "ppo_clip", sequence_level=True),
    "sapo": Route("mean_std", "broadcast", "soft_gate"),
    "cispo": Route("mean_std", "broadcast", "clipped_is"),
    "ppo": Route("none", "gae", "ppo_clip"),
    "reinforce_plus_plus": Route("none", "discounted_returns", "ppo_clip", token_normalization="token_global"),
    "reinforce_plus_plus_baseline": Route("mean", "masked_broadcast", "ppo_clip", token_normalization="token_global"),
    "rloo": Route("leave_one_out", "broadcast", "reinforce"),
    "gdpo": Route("components", "whitened_broadcast", "ppo_clip"),
}
