"""Mutants of the KL estimates and the advantage formulas: tokens, masks, signs, discounts, aliases."""

from __future__ import annotations

from functools import partial

from verification.mutants.mutant import Mutant

_KL = partial(Mutant, file="relax/algorithms/formulas/kl.py", checks=("kl.estimate/grpo/*",))
_BROADCAST = partial(Mutant, file="relax/algorithms/formulas/broadcast.py")
_RETURNS = partial(
    Mutant, file="relax/algorithms/formulas/reinforce.py", checks=("advantage.estimate/reinforce_plus_plus/*",)
)
_GAE = partial(Mutant, file="relax/algorithms/formulas/gae.py", checks=("advantage.estimate/ppo/*",))

IN_ADVANTAGES: tuple[Mutant, ...] = (
    _KL(
        name="kl-sign",
        old="log_probs.float() - ref_log_probs.float()",
        new="ref_log_probs.float() - log_probs.float()",
        reason="reference minus policy",
    ),
    _KL(
        name="kl-k2-not-halved",
        old="difference * difference / 2",
        new="difference * difference",
        reason="the half of k2 forgotten",
    ),
    _KL(
        name="kl-k3-by-expm1",
        old="torch.exp(negated) - 1 - negated",
        new="torch.expm1(negated) - negated",
        reason="more accurate, and other bits than the baseline's",
    ),
    _KL(
        name="kl-ratio-dropped",
        old="estimate = importance_ratio * estimate",
        new="estimate = estimate * 1",
        reason="the importance ratio is read and not used",
    ),
    _KL(
        name="kl-clamp-before-ratio",
        old="        estimate = importance_ratio * estimate\n",
        new='        estimate = importance_ratio * (estimate.clamp(max=10) if kind == "low_var_kl" else estimate)\n',
        reason="low_var_kl is cut before the ratio multiplies it",
    ),
    _BROADCAST(
        name="returns-aliased",
        old="return list(returns), returns",
        new="return returns, returns",
        reason="advantages and returns are one list",
        checks=("advantage.estimate/grpo/*",),
    ),
    _BROADCAST(
        name="returns-not-aliased",
        old="return advantages, advantages",
        new="return advantages, list(advantages)",
        reason="advantages and returns are two lists, where the baseline's are one",
        checks=("advantage.estimate/reinforce_plus_plus_baseline/*",),
    ),
    _BROADCAST(
        name="broadcast-mask-forgotten",
        old="advantages = [tokens * mask for tokens, mask in zip(scored, masks, strict=True)]",
        new="advantages = [tokens * 1 for tokens, mask in zip(scored, masks, strict=True)]",
        reason="masked tokens get an advantage",
        checks=("advantage.estimate/reinforce_plus_plus_baseline/*",),
    ),
    _RETURNS(
        name="returns-first-token",
        old="return int(unmasked[-1])",
        new="return int(unmasked[0])",
        reason="the reward at the first unmasked token, not the last",
    ),
    _RETURNS(
        name="returns-kl-mask-forgotten",
        old="(pad_sequence([kl[position] for position in positions]) * mask)",
        new="(pad_sequence([kl[position] for position in positions]))",
        reason="masked tokens pay a KL penalty",
    ),
    _RETURNS(
        name="returns-mask-forgotten",
        old="masked = (_accumulate(token_rewards, gamma) * mask).T",
        new="masked = _accumulate(token_rewards, gamma).T",
        reason="masked tokens keep their return",
    ),
    _RETURNS(
        name="returns-kl-sign",
        old="token_rewards = -kl_coef * (",
        new="token_rewards = kl_coef * (",
        reason="the KL penalty rewards",
    ),
    _RETURNS(
        name="returns-fused",
        old="torch.add(row, torch.mul(running, discount))",
        new="(row.double() + running.double() * discount).to(row)",
        reason="one rounding where the baseline has two",
    ),
    _GAE(
        name="gae-first-token",
        old="penalty[-1] += score",
        new="penalty[0] += score",
        reason="the reward on the first token, not the last",
    ),
    _GAE(
        name="gae-bootstrapped",
        old="next_values = pad(padded_values[:, 1:], (0, 1))",
        new="next_values = torch.cat([padded_values[:, 1:], padded_values[:, -1:]], dim=1)",
        reason="a value after the end of the response",
    ),
    _GAE(
        name="gae-lambda-forgotten",
        old="gamma * lambd).flip(1)",
        new="gamma).flip(1)",
        reason="discounted by gamma alone",
    ),
    _GAE(
        name="gae-returns-without-values",
        old="padded_returns = padded_advantages + padded_values",
        new="padded_returns = padded_advantages + 0",
        reason="returns are the advantages",
    ),
    _GAE(
        name="gae-other-chunks",
        old="CHUNK = 128",
        new="CHUNK = 64",
        reason="sums in another order: other bits than the baseline's",
    ),
    _GAE(
        name="gae-changes-its-input",
        old="penalty = kl * (-kl_coef)",
        new="penalty = kl.mul_(-kl_coef)",
        reason="the KL that was passed is overwritten",
    ),
    _GAE(
        name="gae-empty-response-swallowed",
        old="if length == 0:",
        new="if length < 0:",
        reason="an empty response is not refused by name",
    ),
)
