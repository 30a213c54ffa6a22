"""Named cases of ``policy.loss``: objectives, clips, sequence masks and importance weights, values and gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verification.cases.case import Case
from verification.cases.families import ALL
from verification.cases.integers import Integers
from verification.cases.tokens import constant, log_probs, masks, moved, noise, other_masks

LENGTHS = (5, 1, 8, 2)

CLIPPED = ("grpo", "gspo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gdpo")
ONE_OF_EACH = ("grpo", "gspo", "sapo", "cispo", "rloo")

# Natural logarithms as written constants: no function of the platform decides what an input is.
LOG_OF = {"0.8": -0.22314355131420976, "1.2": 0.1823215567939546, "1.5": 0.4054651081081644, "2": 0.6931471805599453}


@dataclass(frozen=True)
class Rollout:
    """The token arrays of one objective, a list of ``[R_i]`` each."""

    old: Sequence[np.ndarray]
    new: Sequence[np.ndarray]
    advantages: Sequence[np.ndarray]
    masks: Sequence[np.ndarray] | None
    rollout: Sequence[np.ndarray] | None = None


def policy_cases() -> Iterator[Case]:
    """All of them."""
    yield from moves()
    yield from clips()
    yield from kinks()
    yield from gates()
    yield from sequence_masks()
    yield from importance_weights()
    yield from edges()
    yield from kinds_of_masks()


def policy_case(
    algorithm: str,
    rest: str,
    tokens: Rollout,
    *,
    error: tuple[str, ...] | None = None,
    note: str = "",
    **options: Any,
) -> Case:
    """A case of ``policy.loss``."""
    inputs = {
        "old_log_probs": tokens.old,
        "log_probs": tokens.new,
        "advantages": tokens.advantages,
        "loss_masks": tokens.masks,
        "rollout_log_probs": tokens.rollout,
    }
    return Case(f"policy.loss/{algorithm}/{rest}", "policy.loss", algorithm, inputs, options, error, note)


def rollout(name: str, *, by: float, mask: str = "full", lengths: Sequence[int] = LENGTHS) -> Rollout:
    """Log-probabilities moved by at most ``by``, and advantages that differ token by token."""
    stream = Integers(f"policy/{name}")
    old = log_probs(stream, lengths)
    new = moved(stream, old, by=by)
    return Rollout(
        old=old,
        new=new,
        advantages=noise(stream, lengths, reach=2),
        masks=masks(mask, stream, lengths),
        rollout=moved(stream, old, by=0.75),
    )


def at_differences(differences: Sequence[float], advantages: Sequence[float]) -> Rollout:
    """One response for each advantage whose log-ratios, new - old, are ``differences``: new is 0."""
    row = np.array(differences, dtype=np.float32)
    count = len(advantages)
    lengths = [len(row)] * count
    return Rollout(
        old=[-row] * count,
        new=[np.zeros_like(row)] * count,
        advantages=constant(lengths, advantages),
        masks=constant(lengths, [1.0] * count),
    )


def moves() -> Iterator[Case]:
    """Every algorithm on small, middling and large steps, one advantage a response and one a token, masks."""
    for algorithm in ALL:
        for name, by in (("small", 2.0**-6), ("middling", 0.5), ("large", 4.0)):
            yield policy_case(algorithm, f"move-{name}", rollout(f"move/{name}", by=by))
        identical = rollout("identical", by=0.5)
        yield policy_case(algorithm, "identical", replace(identical, new=identical.old))
        broadcast = replace(rollout("broadcast", by=0.5), advantages=constant(LENGTHS, [0.7, -1.1, -0.3, 1.9]))
        yield policy_case(algorithm, "broadcast", broadcast)
        yield policy_case(algorithm, "mask-holes", rollout("mask/holes", by=0.5, mask="holes"))
    for kind in ("trailing", "leading", "first", "zero"):
        for algorithm in ("grpo", "gspo"):
            yield policy_case(algorithm, f"mask-{kind}", rollout(f"mask/{kind}", by=0.5, mask=kind))


def clips() -> Iterator[Case]:
    """Clip ranges, symmetric and not, closed, wide; the dual clip."""
    ranges = {"0.1-0.28": (0.1, 0.28), "0-0": (0.0, 0.0), "0.2-1": (0.2, 1.0), "0.999-5": (0.999, 5.0)}
    for name, (low, high) in ranges.items():
        for algorithm in (*CLIPPED, "cispo"):
            yield policy_case(algorithm, f"clip-{name}", rollout("clip", by=1.0), eps_clip=low, eps_clip_high=high)
    for algorithm in CLIPPED:
        for bound in (1.5, 3.0):
            yield policy_case(algorithm, f"dual-{bound}", rollout("dual", by=2.0), eps_clip_c=bound)
    for bound in (1.0, 0.5):
        yield policy_case("grpo", f"dual-{bound}", rollout("dual", by=2.0), eps_clip_c=bound, error=("eps_clip_c",))


def kinks() -> Iterator[Case]:
    """Ratios at and within an ulp of a clip's edge, and advantages of both signs and both zeros."""
    signs = (1.0, -1.0, 0.0, -0.0, 0.5, -2.0)
    for name, value in LOG_OF.items():
        centre = np.float32(value)
        around = [np.nextafter(centre, np.float32(-9)), centre, np.nextafter(centre, np.float32(9))]
        tokens = at_differences([float(difference) for difference in around], signs)
        for algorithm in ("grpo", "cispo", "ppo"):
            yield policy_case(algorithm, f"kink-{name}", tokens, eps_clip=0.2, eps_clip_high=0.2)
            if algorithm != "cispo":
                yield policy_case(algorithm, f"kink-{name}-dual", tokens, eps_clip_c=max(1.1, float(name)))
        yield policy_case("sapo", f"kink-{name}", tokens)
    at_one = at_differences([0.0, -0.0, 2.0**-24, -(2.0**-24)], signs)
    for algorithm in ONE_OF_EACH:
        yield policy_case(algorithm, "kink-at-one", at_one)
        yield policy_case(algorithm, "kink-at-one-closed", at_one, eps_clip=0.0, eps_clip_high=0.0)


def gates() -> Iterator[Case]:
    """SAPO's temperatures; the clips are not looked at."""
    for positive, negative in ((1.0, 1.0), (0.5, 2.0), (4.0, 0.125), (1.0, 1.05)):
        yield policy_case(
            "sapo", f"tau-{positive}-{negative}", rollout("gate", by=1.5), sapo_tau_pos=positive, sapo_tau_neg=negative
        )
    zeros = replace(rollout("gate/zero", by=1.0), advantages=constant(LENGTHS, [0.0, -0.0, 0.0, -0.0]))
    yield policy_case("sapo", "zero-advantages", zeros)
    yield policy_case("sapo", "clip-unused", rollout("gate", by=1.5), eps_clip=0.0, eps_clip_high=0.0)


def sequence_masks() -> Iterator[Case]:
    """OPSM: a response that has moved too far is dropped where its advantage is negative."""
    for algorithm in ALL:
        tokens = replace(rollout("opsm", by=1.0), advantages=constant(LENGTHS, [-0.7, -1.1, -0.3, 1.9]))
        yield policy_case(algorithm, "opsm", tokens, use_opsm=True)
    for delta in (0.0, 0.05, 10.0, -10.0):
        for algorithm in ("grpo", "gspo"):
            tokens = rollout("opsm/delta", by=1.0, mask="holes")
            yield policy_case(algorithm, f"opsm-delta{delta}", tokens, use_opsm=True, opsm_delta=delta)
    identical = rollout("opsm/identical", by=1.0)
    yield policy_case("grpo", "opsm-identical", replace(identical, new=identical.old), use_opsm=True, opsm_delta=0.0)
    yield policy_case("grpo", "opsm-mask-zero", rollout("opsm", by=1.0, mask="zero"), use_opsm=True)
    shifted = rollout("opsm/shifted", by=0.25)
    at_edge = replace(
        shifted,
        new=[array - np.float32(0.125) for array in shifted.old],
        advantages=constant(LENGTHS, [-1.0, 1.0, -0.5, 0.0]),
    )
    yield policy_case("grpo", "opsm-at-delta", at_edge, use_opsm=True, opsm_delta=0.125, note="exceeds means >")


def importance_weights() -> Iterator[Case]:
    """TIS and IcePop: weights from old against rollout log-probabilities, without gradient."""
    for algorithm in ALL:
        for mode in ("truncate", "icepop"):
            yield policy_case(algorithm, f"tis-{mode}", rollout("tis", by=0.5), use_tis=True, tis_mode=mode)
    for mode in ("truncate", "icepop"):
        for low, high in ((0.5, 1.5), (0.0, 1.0), (0.9, 1.1)):
            yield policy_case(
                "grpo", f"tis-{mode}-{low}-{high}", rollout("tis", by=0.5), use_tis=True, tis_mode=mode,
                tis_clip=high, tis_clip_low=low,
            )  # fmt: skip
        far = rollout("tis/far", by=0.5)
        far = replace(far, rollout=[array * np.float32(16.0) for array in far.old])
        yield policy_case("grpo", f"tis-{mode}-far", far, use_tis=True, tis_mode=mode)
        same = replace(far, rollout=far.old)
        yield policy_case(
            "grpo", f"tis-{mode}-at-bounds", same, use_tis=True, tis_mode=mode, tis_clip=1.0, tis_clip_low=1.0,
            note="a weight of exactly 1 is inside",
        )  # fmt: skip
        both = replace(rollout("tis/both", by=1.0), advantages=constant(LENGTHS, [-0.7, -1.1, -0.3, 1.9]))
        for algorithm in ONE_OF_EACH:
            yield policy_case(algorithm, f"opsm-tis-{mode}", both, use_opsm=True, use_tis=True, tis_mode=mode)
        missing = replace(rollout("tis", by=0.5), rollout=None)
        for algorithm in ("grpo", "rloo"):
            yield policy_case(
                algorithm, f"tis-{mode}-missing", missing, use_tis=True, tis_mode=mode, error=("rollout_log_probs",)
            )
    yield policy_case("grpo", "rollout-unused", rollout("tis", by=0.5), note="without --use-tis it is not looked at")


def edges() -> Iterator[Case]:
    """Ratios of zero and infinity, numbers that are none, empty responses."""
    extreme = at_differences([80.0, -80.0, 89.0, 100.0, -110.0, 0.0], (1.0, -1.0, 0.0, -0.0))
    odd = at_differences([float("nan"), float("inf"), float("-inf"), 0.5], (1.0, -1.0, 0.0))
    nan_advantage = at_differences([0.5, -0.5, 0.0], (float("nan"), float("inf"), 1.0))
    lengths = (3, 0, 4)
    for algorithm in ONE_OF_EACH:
        yield policy_case(algorithm, "extreme-ratios", extreme)
        yield policy_case(algorithm, "not-numbers", odd)
        yield policy_case(algorithm, "advantage-not-a-number", nan_advantage)
        yield policy_case(algorithm, "empty-response", rollout("empty", by=0.5, lengths=lengths))
        yield policy_case(algorithm, "one-token", rollout("one", by=0.5, lengths=(1,)))
    yield policy_case("grpo", "extreme-ratios-dual", extreme, eps_clip_c=3.0)
    yield policy_case("grpo", "long", rollout("long", by=0.5, lengths=(257, 40), mask="holes"))
    yield policy_case("gspo", "long", rollout("long", by=0.5, lengths=(257, 40), mask="holes"))


def kinds_of_masks() -> Iterator[Case]:
    """No masks, and masks of integers and booleans: where they are read, by a sequence-level ratio and by OPSM."""
    tokens = replace(rollout("mask/kinds", by=0.5), advantages=constant(LENGTHS, [-0.7, -1.1, -0.3, 1.9]))
    for name, other in other_masks(Integers("policy/mask/kinds"), LENGTHS):
        given = replace(tokens, masks=other)
        for algorithm in ALL:
            yield policy_case(algorithm, f"mask-{name}", given)
        for algorithm in ONE_OF_EACH:
            yield policy_case(algorithm, f"mask-{name}-opsm", given, use_opsm=True, opsm_delta=0.05)
        yield policy_case("gspo", f"mask-{name}-tis", given, use_tis=True)
