"""Named cases of ``logprob.entropy``: shapes of a distribution, sizes of a vocabulary, dtypes, what has no logit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from verification.cases.case import Case
from verification.cases.families import ALL
from verification.cases.integers import Integers

LENGTHS = (5, 1, 8)
FEW = (2, 1)  # responses of a large vocabulary
VOCABULARIES = {1: LENGTHS, 2: LENGTHS, 3: LENGTHS, 7: LENGTHS, 8: LENGTHS, 17: LENGTHS, 128: FEW, 257: FEW}
SOME_VOCABULARY = 17
MASKED = -np.inf


def log_prob_cases() -> Iterator[Case]:
    """All of them."""
    for algorithm in ALL:
        yield log_prob_case(algorithm, "mixed", *drawn("mixed", LENGTHS, SOME_VOCABULARY))
    for vocabulary, lengths in VOCABULARIES.items():
        name = f"vocabulary-{vocabulary}"
        yield log_prob_case("grpo", name, *drawn(name, lengths, vocabulary))
        uniform, ids = drawn(f"uniform-{vocabulary}", lengths, vocabulary)
        yield log_prob_case("grpo", f"uniform-{vocabulary}", [np.full_like(rows, 3.25) for rows in uniform], ids)
    for lengths in ((1,), (2, 127), (0,), (3, 0, 2), (0, 0)):
        name = f"lengths-{'.'.join(map(str, lengths))}"
        yield log_prob_case("grpo", name, *drawn(name, lengths, 3))
    yield from distributions()
    yield from half_precision()
    yield from masked_entries()
    yield from without_numbers()
    yield from refused()


def log_prob_case(
    algorithm: str,
    rest: str,
    logits: Sequence[np.ndarray],
    tokens: Sequence[np.ndarray],
    *,
    error: tuple[str, ...] | None = None,
    note: str = "",
) -> Case:
    """A case of ``logprob.entropy``."""
    inputs = {"logits": list(logits), "tokens": list(tokens)}
    return Case(f"logprob.entropy/{algorithm}/{rest}", "logprob.entropy", algorithm, inputs, error=error, note=note)


def drawn(
    name: str, lengths: Sequence[int], vocabulary: int, *, reach: int = 8, bits: int = 12
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Logits ``[R_i, V]`` in [-reach, reach] and token ids ``[R_i]``; every difference of two logits is exact."""
    stream = Integers(f"log-probs/{name}")
    logits = [
        stream.array(length * vocabulary, -reach << bits, reach << bits, bits).reshape(length, vocabulary)
        for length in lengths
    ]
    return logits, [np.array([stream.below(vocabulary) for _ in range(length)], dtype=np.int64) for length in lengths]


def distributions() -> Iterator[Case]:
    """One entry far above or below the rest, ties, offsets, tails beyond the range of exp, the ends of the format."""
    for height in (30.0, -30.0, 1e4, -1e4):
        logits, tokens = drawn(f"dominant{height}", (6, 4), 7, reach=1)
        for rows, ids in zip(logits, tokens, strict=True):
            for position in range(len(rows)):  # the token itself, and another entry
                rows[position, ids[position] if position % 2 else (ids[position] + 3) % 7] = height
        yield log_prob_case("grpo", f"dominant{height:+.0f}", logits, tokens)
    logits, tokens = drawn("ties", LENGTHS, SOME_VOCABULARY, reach=2, bits=0)
    yield log_prob_case("grpo", "ties", logits, tokens, note="every value occurs several times, the largest too")
    for name, offset in (("16384", 2.0**14), ("1e6", 2.0**20), ("minus-1e6", -(2.0**20))):
        logits, tokens = drawn("offset", LENGTHS, SOME_VOCABULARY, bits=3)
        yield log_prob_case("grpo", f"offset-{name}", [rows + np.float32(offset) for rows in logits], tokens)
    yield log_prob_case("grpo", "tails", *drawn("tails", (9, 4), SOME_VOCABULARY, reach=110),
                        note="probabilities down to the subnormals and below them")  # fmt: skip
    yield log_prob_case("grpo", "rounded-differences", *drawn("rounded", (9, 4), SOME_VOCABULARY, reach=3, bits=22))
    logits, tokens = drawn("tiny", (4, 3), 7)
    yield log_prob_case("grpo", "tiny", [rows * np.float32(2.0**-140) for rows in logits], tokens)
    logits, tokens = drawn("zeros", (4, 3), 7)
    yield log_prob_case("grpo", "zeros", [rows * np.float32(0.0) for rows in logits], tokens, note="of either sign")
    logits, tokens = drawn("largest", (4, 3), 7, bits=0)
    largest = np.finfo(np.float32).max
    yield log_prob_case("grpo", "largest", [np.sign(rows) * largest for rows in logits], tokens,
                        note="differences beyond float32: probability 0, log-prob -inf")  # fmt: skip
    logits, tokens = drawn("int32", LENGTHS, 7)
    yield log_prob_case("grpo", "int32-tokens", logits, [ids.astype(np.int32) for ids in tokens])


def half_precision() -> Iterator[Case]:
    """bfloat16 (its bits as uint16) and float16, computed in float32; sixteenths up to 8 are exact in either."""
    for name, narrow in (("bfloat16", _bfloat16), ("float16", lambda rows: rows.astype(np.float16))):
        for vocabulary in (7, 128):
            logits, tokens = drawn(f"half-{vocabulary}", VOCABULARIES[vocabulary], vocabulary, bits=4)
            yield log_prob_case("grpo", f"{name}-{vocabulary}", [narrow(rows) for rows in logits], tokens)
        logits, tokens = drawn("half-masked", (4, 0, 3), 7, bits=4)
        for rows, ids in zip(logits, tokens, strict=True):
            rows[np.arange(len(ids)), (ids + 1) % 7] = MASKED
        yield log_prob_case("grpo", f"{name}-masked", [narrow(rows) for rows in logits], tokens)


def _bfloat16(rows: np.ndarray) -> np.ndarray:
    """The bits of float32 values that bfloat16 holds exactly."""
    bits = rows.view(np.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(np.uint16)


def masked_entries() -> Iterator[Case]:
    """Entries of -inf, as a constrained sampler writes them: probability 0, no part in the entropy."""
    for name, share in (("masked-some", 4), ("masked-most", 8)):
        logits, tokens = drawn(name, LENGTHS, SOME_VOCABULARY)
        stream = Integers(f"log-probs/{name}/which")
        for rows, ids in zip(logits, tokens, strict=True):
            for position, row in enumerate(rows):
                kept = row[ids[position]]
                row[[stream.below(9) < share for _ in row]] = MASKED
                row[ids[position]] = kept
        yield log_prob_case("grpo", name, logits, tokens)
    logits, tokens = drawn("masked-but-one", LENGTHS, 7)
    for rows, ids in zip(logits, tokens, strict=True):
        kept = rows[np.arange(len(ids)), ids]
        rows[:] = MASKED
        rows[np.arange(len(ids)), ids] = kept
    yield log_prob_case("grpo", "masked-but-one", logits, tokens, note="a certain token: log-prob and entropy are 0")
    logits, tokens = drawn("masked-token", LENGTHS, 7)
    for rows, ids in zip(logits, tokens, strict=True):
        rows[np.arange(len(ids)), ids] = MASKED
    yield log_prob_case("grpo", "masked-token", logits, tokens, note="an impossible token: log-prob -inf")
    logits, tokens = drawn("masked-padding", LENGTHS, 7)
    padded = [np.concatenate([rows, np.full((len(rows), 5), MASKED, dtype=np.float32)], axis=1) for rows in logits]
    yield log_prob_case("grpo", "masked-padding", padded, tokens, note="the padding of the vocabulary")


def without_numbers() -> Iterator[Case]:
    """NaN, +inf and a row of nothing but -inf: NaN in that row, and in no other."""
    for name, value in (("nan", np.nan), ("inf", np.inf)):
        logits, tokens = drawn(name, (4, 3), 7)
        logits[0][2, 5] = value
        yield log_prob_case("grpo", f"{name}-in-a-row", logits, tokens)
    logits, tokens = drawn("nothing", (4, 3), 7)
    logits[1][0] = MASKED
    yield log_prob_case("grpo", "nothing-in-a-row", logits, tokens)


def refused() -> Iterator[Case]:
    """Ids outside the vocabulary, and shapes that do not fit."""
    for name, token in (("negative", -1), ("too-large", 7), ("far", 1 << 40)):
        logits, tokens = drawn("refused", (4, 3), 7)
        tokens[1][2] = token
        yield log_prob_case("grpo", f"token-{name}", logits, tokens,
                            error=("response 1", f"token {token}", "position 2", "vocabulary of 7"))  # fmt: skip
    logits, tokens = drawn("refused", (4, 3), 7)
    yield log_prob_case("grpo", "row-missing", [logits[0], logits[1][:2]], tokens, error=("response 1", "(2, 7)"))
    yield log_prob_case("grpo", "response-missing", logits, tokens[:1], error=("logits holds 2", "tokens holds 1"))
    yield log_prob_case("grpo", "no-vocabulary", [rows[:, :0] for rows in logits], tokens, error=("(4, 0)",))
