"""For each stage the switches that change the route, and which combinations of them are run.

Switches that interact are run in their full product. Those that do not are laid beside it pairwise: every two values of
any two switches of a stage, of either kind, meet in some combination. Faulty values come last and one at a time: a
combination that ends in an exception hides what its other switches do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

# One value of each switch.
Combination = dict[str, Any]


@dataclass(frozen=True)
class Switches:
    """The switches of one stage, each with its values, the first being the usual one; ``faults`` are refused values."""

    interacting: Mapping[str, tuple[Any, ...]]
    independent: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    faults: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def combinations(self) -> Iterator[Combination]:
        """The full product of ``interacting`` at the usual values of the rest, what pairwise cover lacks, the faults.

        Each fault is laid over the first and over the last combination without one.
        """
        names = [*self.interacting, *self.independent]
        usual = tuple(values[0] for values in self.independent.values())
        chosen = [tuple(row) + usual for row in itertools.product(*self.interacting.values())]
        chosen += pairwise([*self.interacting.values(), *self.independent.values()], chosen)
        for row in chosen:
            yield dict(zip(names, row, strict=True))
        for name, values in self.faults.items():
            for value, row in itertools.product(values, (chosen[0], chosen[-1])):
                yield {**dict(zip(names, row, strict=True)), name: value}


def pairwise(values: list[tuple[Any, ...]], chosen: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows that, together with ``chosen``, let every two values of any two switches meet; greedy, deterministic.

    Each row starts from the first pair that is still missing; every other switch, in order, then takes the value that
    meets the most missing partners among those already set.
    """
    switches = range(len(values))
    missing = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(switches, 2)
        for x in range(len(values[a]))
        for y in range(len(values[b]))
    }
    for row in chosen:
        placed = [(switch, values[switch].index(value)) for switch, value in enumerate(row)]
        missing.difference_update(itertools.combinations(placed, 2))
    added = []
    while missing:
        row_so_far = dict(min(missing))
        for switch in switches:
            if switch not in row_so_far:
                met = [
                    sum(tuple(sorted([(switch, index), other])) in missing for other in row_so_far.items())
                    for index in range(len(values[switch]))
                ]
                row_so_far[switch] = met.index(max(met))
        placed = sorted(row_so_far.items())
        missing.difference_update(itertools.combinations(placed, 2))
        added.append(tuple(values[switch][index] for switch, index in placed))
    return added


# Names that are no attribute of the command line choose among the inputs (see ``inputs.py``).
STAGE_SWITCHES: dict[str, Switches] = {
    "reward.normalize": Switches(
        interacting={
            "custom_reward_post_process_path": (
                None,
                "verification.cases.hooks.doubled",
                "verification.cases.hooks:doubled",
            ),
            "agentic_custom_advantage_path": (None, "the.rollout.fills.custom_advantage"),
            "rewards_normalization": (True, False),
            "grpo_std_normalization": (True, False),
            "groups": ("interleaved", "missing index", "wrong size"),
        },
        independent={"reward_key": (None, "score"), "kinds": ("varied", "flat", "not finite")},
    ),
    "reward.signal": Switches(
        interacting={"reward_key": (None, "score"), "kinds": ("varied", "flat", "not finite")},
        independent={"rewards_normalization": (True, False), "grpo_std_normalization": (True, False)},
    ),
    "kl.estimate": Switches(
        interacting={
            "kl_coef": (0.0, 0.125),
            "kl_loss_type": ("k1", "k2", "k3", "low_var_kl"),
            "log_probs": ("none", "given"),
            "importance_ratios": ("none", "given"),
        },
        faults={"kl_loss_type": ("no such kind",)},
    ),
    "advantage.estimate": Switches(
        interacting={
            "kl_coef": (0.0, 0.1),
            "gamma": (1.0, 0.9),
            "lambd": (1.0, 0.95, 0.0),
            "lengths": ("short", "long", "empty"),
        },
        independent={
            "masks": ("full", "holes", "one throughout", "none", "int64", "bool"),
            "normalize_advantages": (False, True),
            "values": ("float32", "float64"),
        },
    ),
    "advantage.normalize": Switches(
        interacting={
            "normalize_advantages": (True, False),
            "masks": ("full", "holes", "zero", "none", "int64", "bool"),
            "lengths": ("short", "empty"),
        },
    ),
    "policy.loss": Switches(
        interacting={
            "eps_clip_c": (None, 3.0),
            "use_opsm": (False, True),
            "correction": ("none", "truncate", "icepop"),
        },
        independent={
            "masks": ("full", "holes", "one throughout", "none", "int64", "bool"),
            "eps_clip": (0.2, 0.1),
            "eps_clip_high": (0.2, 0.3),
            "sapo_tau_pos": (1.0, 1.5),
            "sapo_tau_neg": (1.05, 2.0),
            "opsm_delta": (1e-4, 0.5),
            "tis_clip": (2.0, 1.125),
            "tis_clip_low": (0.0, 0.75),
        },
        faults={"eps_clip_c": (1.0,), "correction": ("no such mode", "without rollout log-probs")},
    ),
    "loss.reduce": Switches(
        interacting={
            "calculate_per_token_loss": (False, True),
            "masks": ("full", "holes", "one throughout", "none", "int64", "bool"),
            "full_loss_masks": ("none", "longer"),
        },
    ),
    "roles.resolve": Switches(
        interacting={
            "mode": ("colocate", "hybrid", "fully_async"),
            "true_on_policy_mode": (False, True),
            "debug": ("none", "debug_rollout_only", "debug_train_only"),
            "loss_type": ("policy_loss", "sft_loss"),
        },
    ),
}


@cache
def combinations(stage: str) -> tuple[Combination, ...]:
    """The combinations of ``stage`` that are run for each algorithm.

    Supervised training with the debug mode that starts the rollout only is left out: it has no rollout, the command
    line refuses the pair, and the baseline says nothing about it.
    """
    return tuple(
        row
        for row in STAGE_SWITCHES[stage].combinations()
        if not (row.get("loss_type") == "sft_loss" and row.get("debug") == "debug_rollout_only")
    )
