"""Named cases of ``advantage.normalize``: whitening and token-global normalisation over unmasked tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from verification.cases.case import Case
from verification.cases.families import ALL, TOKEN_GLOBAL, TOKEN_WHITEN
from verification.cases.integers import Integers
from verification.cases.tokens import MASK_KINDS, constant, masks, noise, other_masks

MIXED = (7, 1, 12, 2)


def normalization_cases() -> Iterator[Case]:
    """All of them."""
    for algorithm in (*TOKEN_WHITEN, *TOKEN_GLOBAL):
        yield from of_every_algorithm(algorithm)
    for algorithm in ("ppo", "grpo", *TOKEN_GLOBAL):
        yield from of_each_formula(algorithm)
    yield from kinds_of_masks()
    yield from not_numbers()
    yield from switched_off()


def normalize_case(
    algorithm: str,
    rest: str,
    advantages: Sequence[np.ndarray],
    loss_masks: Sequence[np.ndarray] | None,
    *,
    on: bool = True,
    error: tuple[str, ...] | None = None,
    note: str = "",
) -> Case:
    """A case of ``advantage.normalize``."""
    return Case(
        id=f"advantage.normalize/{algorithm}/{rest}",
        stage="advantage.normalize",
        algorithm=algorithm,
        inputs={"advantages": advantages, "loss_masks": loss_masks},
        options={"normalize_advantages": on},
        error=error,
        note=note,
    )


def of_every_algorithm(algorithm: str) -> Iterator[Case]:
    """Tokens that differ, and one value a response, under masks of two kinds."""
    for kind in ("full", "holes"):
        stream = Integers(f"normalization/{kind}")
        yield normalize_case(algorithm, f"tokens-{kind}", noise(stream, MIXED), masks(kind, stream, MIXED))
        broadcast = constant(MIXED, [0.5, -1.25, 0.1, -0.7])
        yield normalize_case(algorithm, f"broadcast-{kind}", broadcast, masks(kind, stream, MIXED))


def of_each_formula(algorithm: str) -> Iterator[Case]:
    """Counts of one, two and none; offsets, flat and large values; long and empty responses."""
    for kind in MASK_KINDS[2:]:
        stream = Integers(f"normalization/{kind}")
        yield normalize_case(algorithm, f"tokens-{kind}", noise(stream, MIXED), masks(kind, stream, MIXED))
    stream = Integers("normalization/more")
    tokens, full, zero = noise(stream, MIXED), masks("full", stream, MIXED), masks("zero", stream, MIXED)
    one = [*zero[:2], masks("first", stream, (12,))[0], zero[3]]
    two = [masks("first", stream, (7,))[0], zero[1], zero[2], masks("last", stream, (2,))[0]]
    yield normalize_case(algorithm, "no-token", tokens, zero, error=("mask",), note="n = 0 over all ranks")
    yield normalize_case(algorithm, "one-token", tokens, one)
    yield normalize_case(algorithm, "two-tokens", tokens, two)
    yield normalize_case(algorithm, "one-response-masked", tokens, [full[0], full[1], zero[2], full[3]])
    yield normalize_case(algorithm, "flat", constant(MIXED, [0.2] * 4), full)
    yield normalize_case(algorithm, "zeros", constant(MIXED, [0.0, -0.0, 0.0, -0.0]), full)
    yield normalize_case(
        algorithm, "offset", constant((1, 1, 1, 1), [1000.0, 1000.01, 1000.02, 1000.03]),
        masks("full", stream, (1, 1, 1, 1)), note="the one-pass variance loses this one",
    )  # fmt: skip
    yield normalize_case(algorithm, "large-offset", [array + np.float32(4096.0) for array in tokens], full)
    yield normalize_case(algorithm, "tiny", [array * np.float32(2.0**-40) for array in tokens], full)
    yield normalize_case(algorithm, "large", [array * np.float32(2.0**60) for array in tokens], full)
    yield normalize_case(
        algorithm, "overflow", [array * np.float32(2.0**100) for array in tokens], full,
        note="squares leave float32: baseline, weaknesses included",
    )  # fmt: skip
    lengths = (130, 1, 60)
    yield normalize_case(algorithm, "long", noise(stream, lengths), masks("holes", stream, lengths))
    lengths = (3, 0, 4)
    yield normalize_case(algorithm, "empty-response", noise(stream, lengths), masks("full", stream, lengths))
    fractions = [array * np.float32(0.25) for array in full]
    yield normalize_case(algorithm, "fractional-mask", tokens, fractions, note="n counts the mask's sum")


def kinds_of_masks() -> Iterator[Case]:
    """No masks, and masks of integers and booleans: every token counts, or those whose mask is 1."""
    stream = Integers("normalization/mask/kinds")
    lengths = (7, 0, 12, 2)
    tokens = noise(stream, lengths)
    for kind, other in other_masks(stream, lengths):
        for algorithm in (*TOKEN_WHITEN, *TOKEN_GLOBAL) if kind == "none" else ("ppo", *TOKEN_GLOBAL):
            yield normalize_case(algorithm, f"mask-{kind}", tokens, other)
    for algorithm in ("grpo", *TOKEN_GLOBAL):
        yield normalize_case(algorithm, "off-no-mask", tokens, None, on=False)


def not_numbers() -> Iterator[Case]:
    """NaN and infinity under the mask, and without one."""
    odd = [np.array([0.5, np.nan, 0.25], dtype=np.float32), np.array([np.inf, 0.5], dtype=np.float32)]
    hidden = [np.array([1.0, 0.0, 1.0], dtype=np.float32), np.array([0.0, 1.0], dtype=np.float32)]
    for algorithm in ("grpo", *TOKEN_GLOBAL):
        yield normalize_case(
            algorithm, "nan-masked", odd, hidden, note="the mask multiplies: a NaN stays one, in every token's mean"
        )
        yield normalize_case(algorithm, "not-numbers", odd, None)


def switched_off() -> Iterator[Case]:
    """Without ``--normalize-advantages`` the advantages are handed back."""
    stream = Integers("normalization/off")
    tokens, full = noise(stream, MIXED), masks("holes", stream, MIXED)
    for algorithm in ALL:
        yield normalize_case(algorithm, "off", tokens, full, on=False)
