"""What an algorithm is made of, as data: one frozen record an algorithm, one table, no code.

The advantage formula and the policy loss run in different processes that import different modules, so only a name
crosses between them; each process resolves the identifiers below in its own table. This module imports the standard
library only, and algorithm names are spelled here alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REWARD_NORMALIZER_IDS = frozenset({"none", "group_mean_std", "group_mean", "leave_one_out", "component_groups"})
ADVANTAGE_FN_IDS = frozenset({"broadcast", "masked_broadcast", "discounted_returns", "gae", "whitened_broadcast"})
POLICY_LOSS_FN_IDS = frozenset({"ppo_clip", "soft_gate", "clipped_is", "reinforce"})
KL_LEVELS = frozenset({"token", "sequence"})
ADVANTAGE_NORMALIZATIONS = frozenset({"whiten", "token_global"})

# Below these sizes the normalizer divides by zero: by the unbiased std of one value, or by the count of the others.
SMALLEST_GROUP: Mapping[str, int] = {"group_mean_std": 2, "leave_one_out": 2, "component_groups": 2}

# The advantage functions whose result depends on ``kl_coef``; the others take only the shape of the KL.
ADVANTAGE_FNS_WITH_KL = frozenset({"discounted_returns", "gae"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSpec:
    """One algorithm: the identifiers of its implementations, and what it asks of the command line.

    Raises:
        ValueError: an identifier that no table knows, an algorithm that both requires and forbids a setting, or a
            ``min_group_size`` that its reward normalizer cannot work with.
    """

    name: str
    """Its name on the command line. Read by ``check_table``, the role tables and every message about it."""

    reward_normalizer: str
    """Key of ``REWARD_NORMALIZERS``. Read by ``relax.rollout.post_process`` and ``relax.refusals``."""

    advantage_fn: str
    """Key of ``ADVANTAGE_FNS``. Read by ``compute_advantages_and_returns``."""

    policy_loss_fn: str
    """Key of ``POLICY_LOSS_FNS``. Read by ``compute_policy_loss_for``."""

    kl_level: str = "token"
    """``token`` or ``sequence``: the policy ratio is a token's or its response's. Read by ``policy_objective``."""

    advantage_normalization: str = "whiten"
    """``whiten`` or ``token_global``: what ``--normalize-advantages`` does. Read by ``normalize_advantages``."""

    needs_full_log_probs: bool = False
    """The objective needs whole responses under context parallelism. Read by the policy loss."""

    needs_critic: bool = False
    """A critic is trained too. Read by ``relax.core.registry``."""

    requires_normalize_advantages: bool = False
    """``--normalize-advantages`` must be given. Read by ``validate_algorithm_args``."""

    forbids_normalize_advantages: bool = False
    """``--normalize-advantages`` must not be given. Read by ``validate_algorithm_args``."""

    requires_rewards_normalization: bool = False
    """``--disable-rewards-normalization`` must not be given. Read by ``validate_algorithm_args``."""

    supports_fully_async: bool = True
    """``--fully-async`` may be given. Read by ``validate_algorithm_args``."""

    uses_reward_components: bool = False
    """A reward is a mapping of named components. Read by the reward stage and ``validate_algorithm_args``."""

    min_group_size: int = 1
    """The smallest ``--n-samples-per-prompt``. Read by ``validate_algorithm_args``."""

    allows_reward_post_process_hooks: bool = True
    """Hooks may return before the reward stage. Read by ``validate_algorithm_args``."""

    forbids_reward_side_kl: bool = False
    """``--kl-coef`` must be 0. Read by ``validate_algorithm_args``."""

    requires_global_token_loss: bool = False
    """``--calculate-per-token-loss`` must be given. Read by ``validate_algorithm_args``."""

    requires_on_policy_updates: bool = False
    """One optimizer step a rollout, none of it stale. Read by ``validate_algorithm_args``."""

    disabled_reason: str | None = None
    """Why the command line refuses it for now, or None. Read by ``validate_algorithm_args``."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("an algorithm needs a name: set AlgorithmSpec.name")
        for field, known in (
            ("reward_normalizer", REWARD_NORMALIZER_IDS),
            ("advantage_fn", ADVANTAGE_FN_IDS),
            ("policy_loss_fn", POLICY_LOSS_FN_IDS),
            ("kl_level", KL_LEVELS),
            ("advantage_normalization", ADVANTAGE_NORMALIZATIONS),
        ):
            value = getattr(self, field)
            if value not in known:
                raise ValueError(
                    f"algorithm {self.name!r}: {field} {value!r} is not known: use one of {', '.join(sorted(known))}"
                )
        if self.requires_normalize_advantages and self.forbids_normalize_advantages:
            raise ValueError(
                f"algorithm {self.name!r} both requires and forbids normalize_advantages: "
                "clear requires_normalize_advantages or forbids_normalize_advantages"
            )
        if self.requires_rewards_normalization and self.reward_normalizer == "none":
            raise ValueError(
                f"algorithm {self.name!r} both requires rewards normalization and has none: "
                "clear requires_rewards_normalization or choose another reward_normalizer"
            )
        smallest = SMALLEST_GROUP.get(self.reward_normalizer, 1)
        if self.min_group_size < smallest:
            raise ValueError(
                f"algorithm {self.name!r}: min_group_size {self.min_group_size} is too small for "
                f"reward_normalizer {self.reward_normalizer!r}: use {smallest} or more"
            )


def check_table(specs: Mapping[str, AlgorithmSpec]) -> None:
    """Raises ValueError where a key of ``specs`` is not the name of its algorithm."""
    for key, spec in specs.items():
        if key != spec.name:
            raise ValueError(f"ALGORITHM_SPECS[{key!r}] is named {spec.name!r}: the key must be the name")


ALGORITHM_SPECS: dict[str, AlgorithmSpec] = {
    "grpo": AlgorithmSpec(
        name="grpo",
        reward_normalizer="group_mean_std",
        advantage_fn="broadcast",
        policy_loss_fn="ppo_clip",
        min_group_size=2,
    ),
    "gspo": AlgorithmSpec(
        name="gspo",
        reward_normalizer="group_mean_std",
        advantage_fn="broadcast",
        policy_loss_fn="ppo_clip",
        kl_level="sequence",
        needs_full_log_probs=True,
        min_group_size=2,
    ),
    "sapo": AlgorithmSpec(
        name="sapo",
        reward_normalizer="group_mean_std",
        advantage_fn="broadcast",
        policy_loss_fn="soft_gate",
        min_group_size=2,
    ),
    "cispo": AlgorithmSpec(
        name="cispo",
        reward_normalizer="group_mean_std",
        advantage_fn="broadcast",
        policy_loss_fn="clipped_is",
        min_group_size=2,
    ),
    "ppo": AlgorithmSpec(
        name="ppo",
        reward_normalizer="none",
        advantage_fn="gae",
        policy_loss_fn="ppo_clip",
        needs_critic=True,
    ),
    "reinforce_plus_plus": AlgorithmSpec(
        name="reinforce_plus_plus",
        reward_normalizer="none",
        advantage_fn="discounted_returns",
        policy_loss_fn="ppo_clip",
        advantage_normalization="token_global",
        requires_normalize_advantages=True,
    ),
    "reinforce_plus_plus_baseline": AlgorithmSpec(
        name="reinforce_plus_plus_baseline",
        reward_normalizer="group_mean",
        advantage_fn="masked_broadcast",
        policy_loss_fn="ppo_clip",
        advantage_normalization="token_global",
        requires_normalize_advantages=True,
    ),
    # Its gradient is that of log p of the whole response, taken where the response was sampled. A mean over the
    # response's tokens would rescale it, a KL in the reward would never be read, and a second step is off-policy.
    "rloo": AlgorithmSpec(
        name="rloo",
        reward_normalizer="leave_one_out",
        advantage_fn="broadcast",
        policy_loss_fn="reinforce",
        requires_rewards_normalization=True,
        supports_fully_async=False,
        min_group_size=2,
        forbids_reward_side_kl=True,
        requires_global_token_loss=True,
        requires_on_policy_updates=True,
    ),
    # Whatever returned before the reward stage, or normalised once more behind it, would train something else.
    "gdpo": AlgorithmSpec(
        name="gdpo",
        reward_normalizer="component_groups",
        advantage_fn="whitened_broadcast",
        policy_loss_fn="ppo_clip",
        forbids_normalize_advantages=True,
        requires_rewards_normalization=True,
        uses_reward_components=True,
        min_group_size=2,
        allows_reward_post_process_hooks=False,
    ),
}
check_table(ALGORITHM_SPECS)

# What the command line takes where --advantage-estimator is not given.
DEFAULT_ALGORITHM = "grpo"


def list_algorithm_names() -> list[str]:
    """The registered names, in the order of the table."""
    return list(ALGORITHM_SPECS)


def get_algorithm(name: str) -> AlgorithmSpec:
    """The algorithm called ``name``.

    Raises:
        ValueError: no such algorithm; the message lists those there are and the closest of them.
    """
    if isinstance(name, str) and name in ALGORITHM_SPECS:
        return ALGORITHM_SPECS[name]
    from relax.spelling import closest  # only a mistake pays for this import

    names = list_algorithm_names()
    meant = closest(str(name).lower().replace("-", "_"), names)
    hint = f"; did you mean {meant!r}?" if meant else ""
    raise ValueError(f"unknown algorithm {name!r}: the registered ones are {', '.join(names)}{hint}")
