"""Mutants of the registry and of what reads it: a wrong identifier, a flag flipped."""

from __future__ import annotations

from functools import partial

from verification.mutants.mutant import Mutant

_SPEC = partial(Mutant, file="relax/algorithms/spec.py")
_TOKEN_GLOBAL = 'policy_loss_fn="ppo_clip",\n        advantage_normalization="token_global",'

IN_REGISTRY: tuple[Mutant, ...] = (
    _SPEC(
        name="wrong-objective-sapo",
        old='policy_loss_fn="soft_gate",',
        new='policy_loss_fn="ppo_clip",',
        reason="SAPO wired to the clipped objective",
        checks=("policy.loss/sapo/*",),
    ),
    _SPEC(
        name="wrong-objective-cispo",
        old='policy_loss_fn="clipped_is",',
        new='policy_loss_fn="ppo_clip",',
        reason="CISPO wired to the clipped objective",
        checks=("policy.loss/cispo/*",),
    ),
    _SPEC(
        name="wrong-baseline-rloo",
        old='reward_normalizer="leave_one_out",',
        new='reward_normalizer="group_mean",',
        reason="RLOO wired to the group mean",
        checks=("reward.normalize/rloo/*-g?",),
    ),
    _SPEC(
        name="step-3-left-out",
        old='advantage_fn="whitened_broadcast",',
        new='advantage_fn="broadcast",',
        reason="GDPO without the whitening of its batch",
        checks=("advantage.estimate/gdpo/*-n16",),
    ),
    _SPEC(
        name="wrong-returns",
        old='advantage_fn="discounted_returns",',
        new='advantage_fn="broadcast",',
        reason="REINFORCE++ without its returns",
        checks=("advantage.estimate/reinforce_plus_plus/*",),
    ),
    _SPEC(
        name="wrong-token-normalization",
        old=f'advantage_fn="discounted_returns",\n        {_TOKEN_GLOBAL}',
        new='advantage_fn="discounted_returns",\n        policy_loss_fn="ppo_clip",',
        reason="REINFORCE++ normalised by the sample variance",
        checks=("advantage.normalize/reinforce_plus_plus/*",),
    ),
    _SPEC(
        name="wrong-kl-level",
        old='kl_level="sequence",',
        new='kl_level="token",',
        reason="GSPO with the ratio of a token",
        checks=("policy.loss/gspo/*",),
    ),
    _SPEC(
        name="flag-critic",
        old="needs_critic=True,",
        new="needs_critic=False,",
        reason="PPO starts without its critic",
        checks=("roles.resolve/ppo/*",),
    ),
    _SPEC(
        name="flag-components",
        old="uses_reward_components=True,",
        new="uses_reward_components=False,",
        reason="GDPO's rewards are read as single numbers",
        checks=("reward.*/gdpo/bad-*", "reward.signal/gdpo/field-*", "arguments.validate/gdpo/*"),
    ),
    _SPEC(
        name="flag-token-normalization",
        old="forbids_normalize_advantages=True,",
        new="forbids_normalize_advantages=False,",
        reason="GDPO accepts to be normalised once more",
        checks=("arguments.validate/gdpo/*",),
    ),
    _SPEC(
        name="flag-hooks",
        old="allows_reward_post_process_hooks=False,",
        new="allows_reward_post_process_hooks=True,",
        reason="GDPO accepts a hook that returns before its reward stage",
        checks=("arguments.validate/gdpo/*",),
    ),
    _SPEC(
        name="flag-on-policy",
        old="requires_on_policy_updates=True,",
        new="requires_on_policy_updates=False,",
        reason="RLOO, which has no ratio, accepts off-policy updates",
        checks=("arguments.validate/rloo/*",),
    ),
)
