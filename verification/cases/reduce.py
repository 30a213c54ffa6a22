"""Named cases of ``loss.reduce``: the mean over each response's tokens, and the plain sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from verification.cases.case import Case
from verification.cases.families import ALL
from verification.cases.integers import Integers
from verification.cases.tokens import MASK_KINDS, constant, masks, noise, other_masks

MIXED = (7, 1, 12, 2)
REDUCERS = {"mean": False, "sum": True}


def reduce_cases() -> Iterator[Case]:
    """All of them."""
    for name, per_token in REDUCERS.items():
        for algorithm in ALL:
            stream = Integers(f"reduce/{algorithm}")
            yield reduce_case(
                algorithm, f"{name}-holes", noise(stream, MIXED), masks("holes", stream, MIXED), per_token
            )
        yield from masks_and_values(name, per_token)
        yield from context_parallel(name, per_token)
        yield from kinds_of_masks(name, per_token)


def reduce_case(
    algorithm: str,
    rest: str,
    values: Sequence[np.ndarray],
    loss_masks: Sequence[np.ndarray] | None,
    per_token: bool,
    *,
    full_loss_masks: Sequence[np.ndarray] | None = None,
    note: str = "",
) -> Case:
    """A case of ``loss.reduce``."""
    return Case(
        id=f"loss.reduce/{algorithm}/{rest}",
        stage="loss.reduce",
        algorithm=algorithm,
        inputs={"values": values, "loss_masks": loss_masks, "full_loss_masks": full_loss_masks},
        options={"calculate_per_token_loss": per_token},
        note=note,
    )


def masks_and_values(name: str, per_token: bool) -> Iterator[Case]:
    """Every kind of mask; lengths, magnitudes, values that are no numbers."""
    for kind in (*MASK_KINDS, "zero"):
        stream = Integers(f"reduce/{kind}")
        yield reduce_case("grpo", f"{name}-mask-{kind}", noise(stream, MIXED), masks(kind, stream, MIXED), per_token)
    stream = Integers("reduce/more")
    tokens, full = noise(stream, MIXED), masks("full", stream, MIXED)
    zero = masks("zero", stream, MIXED)
    yield reduce_case("grpo", f"{name}-one-response-masked", tokens, [full[0], zero[1], full[2], full[3]], per_token)
    for lengths in ((1,), (2, 127), (128, 129), (257, 1), (3, 0, 4), (0,)):
        values, some = noise(stream, lengths), masks("holes", stream, lengths)
        title = ".".join(map(str, lengths))
        yield reduce_case("grpo", f"{name}-lengths-{title}", values, some, per_token)
    yield reduce_case("grpo", f"{name}-fractional-mask", tokens, [m * np.float32(0.25) for m in full], per_token,
                      note="a mask whose sum is below one is divided by one")  # fmt: skip
    yield reduce_case("grpo", f"{name}-large", [x * np.float32(2.0**100) for x in tokens], full, per_token)
    yield reduce_case("grpo", f"{name}-tiny", [x * np.float32(2.0**-140) for x in tokens], full, per_token)
    yield reduce_case("grpo", f"{name}-zeros", constant(MIXED, [0.0, -0.0, -0.0, 0.0]), full, per_token)
    cancelling = [np.array([2.0**24, 1.0, -(2.0**24), 1.0], dtype=np.float32)]
    yield reduce_case("grpo", f"{name}-cancelling", cancelling, masks("full", stream, (4,)), per_token)
    odd = [np.array([np.nan, 1.0], dtype=np.float32), np.array([np.inf, -np.inf, 1.0], dtype=np.float32)]
    yield reduce_case("grpo", f"{name}-not-numbers", odd, masks("full", stream, (2, 3)), per_token)
    yield reduce_case(
        "grpo", f"{name}-nan-masked", odd, masks("last", stream, (2, 3)), per_token,
        note="the mask multiplies: a NaN stays one",
    )  # fmt: skip


def context_parallel(name: str, per_token: bool) -> Iterator[Case]:
    """A rank's own tokens in the numerator, the full mask in the denominator."""
    for kind in ("full", "holes", "leading", "zero"):
        stream = Integers(f"reduce/cut/{kind}")
        lengths = (8, 4, 12)
        values, full = noise(stream, lengths), masks(kind, stream, lengths)
        for rank in (0, 1):
            own = [slice(rank * length // 2, (rank + 1) * length // 2) for length in lengths]
            yield reduce_case(
                "grpo", f"{name}-cut{rank}-{kind}",
                [array[part] for array, part in zip(values, own, strict=True)],
                [array[part] for array, part in zip(full, own, strict=True)],
                per_token, full_loss_masks=full,
            )  # fmt: skip
    stream = Integers("reduce/cut/empty")
    full = masks("full", stream, (6, 2))
    yield reduce_case(
        "grpo", f"{name}-cut-empty-slice", [noise(stream, (3,))[0], np.zeros(0, dtype=np.float32)],
        [full[0][:3], full[1][:0]], per_token, full_loss_masks=full,
        note="this rank holds no token of the second response",
    )  # fmt: skip


def kinds_of_masks(name: str, per_token: bool) -> Iterator[Case]:
    """No masks, and masks of integers and booleans, also beside full masks of another dtype."""
    stream = Integers("reduce/mask/kinds")
    lengths = (7, 0, 12, 2)
    values = noise(stream, lengths)
    for kind, other in other_masks(stream, lengths):
        for algorithm in ALL if kind == "none" else ("grpo",):
            yield reduce_case(algorithm, f"{name}-mask-{kind}", values, other, per_token)
        if other is not None:
            yield reduce_case(
                "grpo", f"{name}-cut-{kind}", [array[:3] for array in values], [array[:3] for array in other],
                per_token, full_loss_masks=other,
            )  # fmt: skip
    zero = [np.zeros(length, dtype=np.bool_) for length in lengths]
    yield reduce_case("grpo", f"{name}-mask-bool-zero", values, zero, per_token)
    full = [np.ones(length, dtype=np.float32) for length in lengths]
    yield reduce_case(
        "grpo", f"{name}-cut-none", [array[:3] for array in values], None, per_token, full_loss_masks=full,
        note="every token of this rank counts; the denominator is the whole response's",
    )  # fmt: skip
