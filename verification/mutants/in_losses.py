"""Mutants of the policy objectives and their weights: clips, signs, gradients, comparisons."""

from __future__ import annotations

from functools import partial

from verification.mutants.mutant import Mutant

_RATIO = partial(Mutant, file="relax/algorithms/formulas/ratio.py")
_CLIP = partial(_RATIO, checks=("policy.loss/grpo/*",))
_CISPO = partial(_RATIO, checks=("policy.loss/cispo/*",))
_SAPO = partial(_RATIO, checks=("policy.loss/sapo/*",))
_OFF_POLICY = partial(Mutant, file="relax/algorithms/formulas/off_policy.py", checks=("policy.loss/grpo/*tis-*",))
_OPSM = partial(Mutant, file="relax/algorithms/formulas/sequence.py", checks=("policy.loss/grpo/*opsm*",))

IN_LOSSES: tuple[Mutant, ...] = (
    _CLIP(
        name="clips-swapped",
        old="torch.clamp(ratio, 1 - eps_clip, 1 + eps_clip_high)",
        new="torch.clamp(ratio, 1 - eps_clip_high, 1 + eps_clip)",
        reason="the lower clip's width above, the upper's below",
    ),
    _CLIP(
        name="clip-min-for-max",
        old="loss = torch.maximum(unclipped, clipped)",
        new="loss = torch.minimum(unclipped, clipped)",
        reason="the optimistic of the two losses",
    ),
    _CLIP(
        name="clipfrac-at-equality",
        old="clipfrac = (clipped > unclipped).float()",
        new="clipfrac = (clipped >= unclipped).float()",
        reason="tokens inside the clip counted as clipped",
    ),
    _CLIP(
        name="clip-detached",
        old="    ratio = torch.exp(-ppo_kl)\n    unclipped",
        new="    ratio = torch.exp(-ppo_kl.detach())\n    unclipped",
        reason="a detach too many: the value stays, the gradient is gone",
    ),
    _CLIP(
        name="ratio-inverted",
        old="    ratio = torch.exp(-ppo_kl)\n    unclipped",
        new="    ratio = torch.exp(ppo_kl)\n    unclipped",
        reason="old over new policy",
    ),
    _CLIP(
        name="dual-clip-for-all",
        old="torch.where(advantages < 0, torch.minimum(bound, loss), loss)",
        new="torch.minimum(bound, loss)",
        reason="the dual clip also where the advantage is positive",
    ),
    _CLIP(
        name="dual-clip-below-1",
        old="if not eps_clip_c > 1:",
        new="if not eps_clip_c > 0:",
        reason="a bound that cuts ratios near 1 is accepted",
    ),
    _SAPO(
        name="gate-temperatures-swapped",
        old="torch.full_like(ratio, tau_pos), torch.full_like(ratio, tau_neg)",
        new="torch.full_like(ratio, tau_neg), torch.full_like(ratio, tau_pos)",
        reason="the two temperatures exchanged",
    ),
    _SAPO(
        name="gate-at-zero-advantage",
        old="tau = torch.where(advantages > 0,",
        new="tau = torch.where(advantages >= 0,",
        reason=">= for >",
    ),
    _CISPO(
        name="coefficient-not-detached",
        old="ratio = torch.exp(-ppo_kl.detach())",
        new="ratio = torch.exp(-ppo_kl)",
        reason="a detach too few: the coefficient teaches too",
    ),
    _CISPO(
        name="coefficient-at-zero-advantage",
        old="gains = advantages >= 0",
        new="gains = advantages > 0",
        reason="> for >=",
    ),
    _CISPO(
        name="coefficient-clips-swapped",
        old="lower, upper = 1 - eps_clip, 1 + eps_clip_high",
        new="lower, upper = 1 - eps_clip_high, 1 + eps_clip",
        reason="the lower clip's width above, the upper's below",
    ),
    _RATIO(
        name="reinforce-sign",
        old="return -advantages * log_probs",
        new="return advantages * log_probs",
        reason="good responses become less likely",
        checks=("policy.loss/rloo/*",),
    ),
    _OPSM(
        name="opsm-at-delta",
        old="(_masked_mean(old - new, mask) > delta)",
        new="(_masked_mean(old - new, mask) >= delta)",
        reason=">= for >",
    ),
    _OPSM(
        name="opsm-drops-gains",
        old="dropped = (advantage < 0) & (",
        new="dropped = (advantage == advantage) & (",
        reason="responses with a positive advantage are dropped too",
    ),
    _OFF_POLICY(
        name="icepop-bounds-excluded",
        old="(weights >= low) & (weights <= high)",
        new="(weights > low) & (weights < high)",
        reason="a weight at a bound counts as outside",
    ),
    _OFF_POLICY(
        name="icepop-keeps-outside",
        old="torch.zeros_like(weights)",
        new="torch.ones_like(weights)",
        reason="weight 1 outside the bounds, not 0",
    ),
    _OFF_POLICY(
        name="truncated-from-above-only",
        old="torch.clamp(torch.exp(old_log_probs - rollout_log_probs), low, high)",
        new="torch.clamp(torch.exp(old_log_probs - rollout_log_probs), max=high)",
        reason="the lower bound of the weights is not applied",
    ),
)
