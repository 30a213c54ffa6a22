"""Mutants of the correctly rounded statistics: epsilon, weights, variances, error bounds, rounding, segments."""

from __future__ import annotations

from functools import partial

from verification.mutants.mutant import Mutant

# Both kinds of numbers: ordinary rewards, which the fast path settles, and the vectors, which were made to resist it.
_STEPS = ("reward.normalize/gdpo/*-g8-*", "reward.normalize/gdpo/vector-???0-*")
_BATCHES = ("advantage.estimate/gdpo/*-n*", "advantage.estimate/gdpo/vector-???0-*")
_GDPO = partial(Mutant, file="relax/algorithms/exact/gdpo.py", checks=_STEPS)
_WEIGHTS = partial(_GDPO, old="return standardize_groups(components, weights, EPSILON)")
_GROUPS = partial(Mutant, file="relax/algorithms/exact/groups.py", checks=_STEPS)
_BATCH = partial(Mutant, file="relax/algorithms/exact/batch.py", checks=_BATCHES)
_NEAREST = partial(
    Mutant,
    file="relax/algorithms/exact/nearest.py",
    checks=("reward.normalize/rloo/*-g?", "reward.normalize/gdpo/*-g8-*"),
)
_SEGMENTS = partial(Mutant, file="relax/algorithms/exact/segments.py", checks=("advantage.estimate/gdpo/plan-*",))

IN_EXACT_STATISTICS: tuple[Mutant, ...] = (
    _GDPO(name="gdpo-epsilon-of-grpo", old="EPSILON = 1e-4", new="EPSILON = 1e-6", reason="another dialect's epsilon"),
    _GDPO(
        name="gdpo-epsilon-in-float32",
        old="EPSILON = 1e-4",
        new="EPSILON = float(np.float32(1e-4))",
        reason="epsilon in float32: 3e-12 off",
    ),
    _WEIGHTS(
        name="weights-dropped",
        new="return standardize_groups(components, [1.0] * len(weights), EPSILON)",
        reason="every component counts the same",
    ),
    _WEIGHTS(
        name="weights-normalized",
        new="return standardize_groups(components, [w / sum(map(abs, weights)) for w in weights], EPSILON)",
        reason="weights made to sum to 1",
    ),
    _WEIGHTS(
        name="weights-before-step-1",
        new="return standardize_groups(components * np.array(weights), [1.0] * len(weights), EPSILON)",
        reason="components weighted before they are standardised, so that the weights cancel",
    ),
    _GROUPS(
        name="component-std-n",
        old="std = np.sqrt(squares / (group_size - 1))",
        new="std = np.sqrt(squares / group_size)",
        reason="n for n-1 in step 1, on the fast path",
    ),
    _GROUPS(
        name="component-std-n-in-fallback",
        old="fmpq(0)) / (len(column) - 1)",
        new="fmpq(0)) / len(column)",
        reason="n for n-1 in step 1, by exact arithmetic alone",
    ),
    _GROUPS(
        name="component-epsilon-inside-root",
        old="denominator = std + epsilon",
        new="denominator = np.sqrt(std * std + epsilon * epsilon)",
        reason="epsilon under the root in step 1",
    ),
    _GROUPS(
        name="group-bound-too-small",
        old="bound = 1.01 * np.where(counted, bound, 0.0).sum(axis=0)",
        new="bound = 1e-6 * np.where(counted, bound, 0.0).sum(axis=0)",
        reason="values called settled that float64 cannot decide",
    ),
    _GROUPS(
        name="flat-by-threshold",
        old="counted = (spread > 0)",
        new="counted = (spread > 1e-6)",
        reason="a component of small spread counts as flat",
    ),
    _GROUPS(
        name="group-zero-sign",
        old="return (low32 + np.float32(0)).T, (low32 == high32).T",
        new="return low32.T, (low32 == high32).T",
        reason="a zero may be negative",
        checks=("reward.normalize/gdpo/tiny-weights-*",),
    ),
    _NEAREST(
        name="ties-away-from-zero",
        old="if 2 * rest > half or (2 * rest == half and count & 1):",
        new="if 2 * rest >= half:",
        reason="ties rounded away from zero, not to even",
    ),
    _NEAREST(
        name="truncated",
        old="if 2 * rest > half or (2 * rest == half and count & 1):",
        new="if 2 * rest > 2 * half:",
        reason="truncated, not rounded",
    ),
    _BATCH(
        name="batch-std-n",
        old="std = np.sqrt(squares / (n - 1))",
        new="std = np.sqrt(squares / n)",
        reason="n for n-1 in step 3, on the fast path",
    ),
    _BATCH(
        name="batch-std-n-in-fallback",
        old="total * total, n * (n - 1))",
        new="total * total, n * n)",
        reason="n for n-1 in step 3, by exact arithmetic alone",
    ),
    _BATCH(
        name="batch-bound-too-small",
        old="absolute = 1.05 * mean_error / denominator",
        new="absolute = 1e-6 * mean_error / denominator",
        reason="the error of the mean taken too small: values called settled that are not",
    ),
    _BATCH(
        name="batch-mean-in-one-double",
        old="        x -= high\n        x -= low\n",
        new="        x -= high\n",
        reason="the second half of the mean dropped, its error bound kept",
    ),
    _BATCH(
        name="batch-zero-sign",
        old="low32 += np.float32(0)  # makes a negative zero positive",
        new="pass",
        reason="a zero may be negative",
    ),
    _SEGMENTS(
        name="segments-merged",
        old="    row = [PROTOCOL_VERSION",
        new="    plan = [sum(plan)] if status == _FINE else plan\n    row = [PROTOCOL_VERSION",
        reason="one batch made of all: the merged rollout is whitened",
    ),
    _SEGMENTS(
        name="segments-shifted",
        old="shards[:, n_segments:]",
        new="shards[:, n_segments - 1 : -1]",
        reason="each batch one sample too early",
    ),
    _SEGMENTS(
        name="segments-reversed",
        old="mine[segment] = whitened",
        new="mine[-1 - segment] = whitened",
        reason="results of the last batch come first",
    ),
    _SEGMENTS(
        name="segments-local",
        old="_own_slices(shards, n_segments, collective.rank)",
        new="_own_slices(buffer.numpy()[None], n_segments, 0)",
        reason="whitened over this rank's samples, not over all ranks'",
        checks=(),
        tests=("tests/relax/test_segments.py",),
    ),
    _SEGMENTS(
        name="segments-slice-of-rank-0",
        old="slice(start, start + held)",
        new="slice(0, held)",
        reason="every rank takes the first rank's slice",
        checks=(),
        tests=("tests/relax/test_segments.py",),
    ),
    _SEGMENTS(
        name="plan-not-required",
        old="    elif sizes is None:\n        status = _NO_SIZES\n",
        new="    elif sizes is None:\n        plan = [samples]\n",
        reason="without a plan the merged rollout is whitened",
    ),
)
