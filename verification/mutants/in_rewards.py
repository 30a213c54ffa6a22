"""Mutants of the reward stage: the baseline's group statistics, what is read, what is refused, where results go."""

from __future__ import annotations

from functools import partial

from verification.mutants.mutant import Mutant

# Ordinary rewards, a spread near epsilon, groups of every size.
_GROUPED = ("reward.normalize/grpo/*s-g?", "reward.normalize/grpo/tiny-g?", "reward.normalize/grpo/mixed-g*")
_GROUP = partial(Mutant, file="relax/algorithms/formulas/group.py", checks=_GROUPED)
_QUOTIENT = partial(_GROUP, old="return centred / (_row_std(centred)[:, None] + EPSILON)")
_MEAN = partial(_GROUP, old="rewards - rewards.mean(dim=1, keepdim=True)")
_STAGE = partial(Mutant, file="relax/algorithms/rewards.py")
_INPUTS = partial(Mutant, file="relax/algorithms/reward_inputs.py")
_POST_PROCESS = partial(Mutant, file="relax/rollout/post_process.py")
_MALFORMED = ("reward.normalize/gdpo/bad-*", "reward.normalize/gdpo/missing-*", "reward.normalize/gdpo/field-*")

IN_REWARDS: tuple[Mutant, ...] = (
    _GROUP(name="group-epsilon-halved", old="EPSILON = 1e-6", new="EPSILON = 5e-7", reason="half the epsilon"),
    _QUOTIENT(
        name="group-epsilon-moved",
        new="return centred / _row_std(centred)[:, None] + EPSILON",
        reason="epsilon added to the quotient, not to the std",
    ),
    _QUOTIENT(
        name="group-epsilon-squared",
        new="return centred / (_row_std(centred)[:, None] + EPSILON**2)",
        reason="epsilon squared",
    ),
    _QUOTIENT(
        name="group-epsilon-inside-root",
        new="return centred / (_row_std(centred)[:, None] ** 2 + EPSILON).sqrt()",
        reason="epsilon added to the variance",
    ),
    _QUOTIENT(
        name="group-std-of-raw-rewards",
        new="return centred / (_row_std(rewards)[:, None] + EPSILON)",
        reason="the std of the rewards before they were centred: the same number, not the same bits",
    ),
    _GROUP(
        name="group-std-n",
        old="std = rows.double().std(dim=1)",
        new="std = rows.double().std(dim=1, correction=0)",
        reason="n for n-1",
    ),
    _MEAN(name="group-sum-for-mean", new="rewards - rewards.sum(dim=1, keepdim=True)", reason="the sum for the mean"),
    _MEAN(
        name="group-median-for-mean",
        new="rewards - rewards.median(dim=1, keepdim=True).values",
        reason="the median for the mean",
    ),
    _MEAN(
        name="group-other-axis",
        new="rewards - rewards.mean(dim=0, keepdim=True)",
        reason="the mean over groups, not within one",
    ),
    _MEAN(name="batch-for-group", new="rewards - rewards.mean()", reason="the batch's mean for the group's"),
    _STAGE(
        name="leave-one-out-keeps-itself",
        old="weight=Fraction(size, size - 1)",
        new="weight=Fraction(1)",
        reason="the sample's own reward stays in its baseline",
        checks=("reward.normalize/rloo/*-g?", "reward.normalize/rloo/field-*"),
    ),
    _STAGE(
        name="scores-not-scattered",
        old="flat[positions.ravel()] = scores.ravel()",
        new="flat[:] = scores.ravel()",
        reason="scores stay in the order of groups, not of samples",
        checks=("reward.normalize/*/*interleaved*", "reward.normalize/*/shuffled*"),
    ),
    _STAGE(
        name="std-switch-flipped",
        old="if not args.grpo_std_normalization:",
        new="if args.grpo_std_normalization:",
        reason="the switch of Dr. GRPO does the opposite",
        checks=("reward.normalize/grpo/binary-*",),
    ),
    _STAGE(
        name="exact-statistics-ignored",
        old="if formula is None or args.exact_statistics:",
        new="if formula is None:",
        reason="--exact-statistics is accepted and does nothing",
        checks=("reward.normalize/grpo/*-exact*",),
    ),
    _STAGE(
        name="exact-statistics-from-float32",
        old="enumerate(raw_rewards)], dtype=np.float64)",
        new="enumerate(raw_rewards)], dtype=np.float32).astype(np.float64)",
        reason="rewards rounded to float32 before the exact statistic",
        checks=("reward.normalize/grpo/*-exact*", "reward.normalize/rloo/*-g?"),
    ),
    _STAGE(
        name="signal-from-weighted-sums",
        old="scores = combine_components(args, samples, ())",
        new="scores = _weighted_sums(args, samples)",
        reason="the filter looks at summed components, not at what training sees",
        checks=("reward.signal/gdpo/*-*qual", "reward.signal/gdpo/*-negative", "reward.signal/gdpo/field-*"),
    ),
    _STAGE(
        name="signal-with-threshold",
        old="bool(rewards.min() != rewards.max())",
        new="bool(rewards.max() - rewards.min() > 1e-6)",
        reason="a small spread is called none",
        checks=("reward.signal/grpo/*-g?",),
    ),
    _STAGE(
        name="overflow-swallowed",
        old="    if np.isinf(scores).any():\n        p, member = np.argwhere(np.isinf(scores))[0]\n        key =",
        new="    if np.isnan(scores).any():\n        p, member = np.argwhere(np.isinf(scores))[0]\n        key =",
        reason="a combined reward beyond float32 goes on as an infinity",
        checks=("reward.normalize/gdpo/overflow", *_MALFORMED),
    ),
    _INPUTS(
        name="nan-as-zero",
        old='number = float(value) if real else float("nan")',
        new='number = float(np.nan_to_num(value)) if real else float("nan")',
        reason="a NaN replaced by 0",
        checks=_MALFORMED,
    ),
    _INPUTS(
        name="none-as-zero",
        old='number = float(value) if real else float("nan")',
        new='number = float(value) if real else 0.0 if value is None else float("nan")',
        reason="a missing value replaced by 0",
        checks=_MALFORMED,
    ),
    _INPUTS(
        name="bool-as-number",
        old="real = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)",
        new="real = isinstance(value, numbers.Real | np.bool_)",
        reason="True taken for 1",
        checks=_MALFORMED,
    ),
    _INPUTS(
        name="missing-key-swallowed",
        old="rows.append([sample.reward[key] for key in keys])",
        new="rows.append([sample.reward.get(key, 0.0) for key in keys])",
        reason="a missing component counts as 0",
        checks=_MALFORMED,
    ),
    _INPUTS(
        name="components-from-float32",
        old="components = np.array(rows, dtype=np.float64)",
        new="components = np.array(rows, dtype=np.float32).astype(np.float64)",
        reason="components rounded to float32 before step 1",
        checks=("reward.normalize/gdpo/*-g8-*",),
    ),
    _POST_PROCESS(
        name="rewards-normalization-ignored",
        old="if normalize is not None and args.rewards_normalization:",
        new="if normalize is not None:",
        reason="--disable-rewards-normalization is accepted and does nothing",
        checks=("reward.normalize/grpo/*off-g4",),
    ),
    _POST_PROCESS(
        name="custom-advantage-ignored",
        old='return raw_rewards, real_numbers(samples, advantages, "custom_advantage")',
        new="return raw_rewards, raw_rewards",
        reason="the agent's own advantages are replaced by its rewards",
        checks=("reward.normalize/grpo/custom-*",),
    ),
)
