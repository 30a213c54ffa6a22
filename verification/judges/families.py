"""What kind of formula an algorithm uses at each stage, by the identifiers in its registry entry.

The transformations ask for a kind, never for an algorithm, so that an algorithm that is registered tomorrow gets what
its formulas allow. An identifier without a kind here is an error: nothing would be known to hold for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from relax.algorithms.spec import ALGORITHM_SPECS, AlgorithmSpec

Kind = TypeVar("Kind")


class UnknownFormula(LookupError):
    """An identifier of the registry that has no kind here; the message says where to add it."""


@dataclass(frozen=True)
class Scores:
    """What is known of a reward normalizer.

    ``grouped``: it centres each prompt group. ``exact``: its result is correctly rounded whatever the switches;
    ``by_switch``: it is with ``exact_statistics``. ``divided``: "always", "by switch" (``grpo_std_normalization``) or
    "never" by a standard deviation. ``components``: rewards are mappings, combined by weights.
    """

    grouped: bool = True
    exact: bool = False
    by_switch: bool = False
    divided: str = "never"
    components: bool = False


@dataclass(frozen=True)
class Estimate:
    """What is known of an advantage function.

    ``alone``: each response is treated alone, to the bit. ``kl``: the KL enters the result, not its shape alone.
    ``values``: so do the critic's values. ``pooled``: scores are whitened by optimizer batch, correctly rounded.
    ``masked``: excluded tokens do not enter the result.
    """

    alone: bool = True
    kl: bool = False
    values: bool = False
    pooled: bool = False
    masked: bool = False


@dataclass(frozen=True)
class Objective:
    """What is known of a policy loss. ``by_token``: the bits of a token do not depend on its place in the batch."""

    by_token: bool = True


SCORES: Mapping[str, Scores] = {
    "none": Scores(grouped=False),
    "group_mean_std": Scores(by_switch=True, divided="by switch"),
    "group_mean": Scores(by_switch=True),
    "leave_one_out": Scores(exact=True),
    "component_groups": Scores(exact=True, divided="always", components=True),
}
ESTIMATES: Mapping[str, Estimate] = {
    "broadcast": Estimate(),
    "masked_broadcast": Estimate(),
    "discounted_returns": Estimate(kl=True, masked=True),
    "gae": Estimate(alone=False, kl=True, values=True),  # a matrix product over chunks of the longest response
    "whitened_broadcast": Estimate(alone=False, pooled=True),
}
OBJECTIVES: Mapping[str, Objective] = {
    "ppo_clip": Objective(),
    "soft_gate": Objective(by_token=False),  # a sigmoid may be computed by another routine at the end of a vector
    "clipped_is": Objective(),
    "reinforce": Objective(),
}


def scores_of(algorithm: str) -> Scores | None:
    """The kind of its reward normalizer; None for a name that is not registered."""
    spec = ALGORITHM_SPECS.get(algorithm)
    return None if spec is None else _kind(spec, "reward_normalizer", SCORES, "SCORES")


def estimate_of(algorithm: str) -> Estimate | None:
    """The kind of its advantage function; None for a name that is not registered."""
    spec = ALGORITHM_SPECS.get(algorithm)
    return None if spec is None else _kind(spec, "advantage_fn", ESTIMATES, "ESTIMATES")


def objective_of(algorithm: str) -> Objective | None:
    """The kind of its policy loss; None for a name that is not registered."""
    spec = ALGORITHM_SPECS.get(algorithm)
    return None if spec is None else _kind(spec, "policy_loss_fn", OBJECTIVES, "OBJECTIVES")


def _kind(spec: AlgorithmSpec, field: str, table: Mapping[str, Kind], name: str) -> Kind:
    identifier = getattr(spec, field)
    if identifier not in table:
        raise UnknownFormula(
            f"algorithm {spec.name!r}: nothing is known to hold for {field} {identifier!r}: "
            f"add it to {name} in verification/judges/families.py"
        )
    return table[identifier]
