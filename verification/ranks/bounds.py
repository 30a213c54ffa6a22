"""Where a layout of ranks may round otherwise than one rank, and how far: the one table.

Everything that is not here is held to the bits of one rank: what is computed a token or a response at a time, and what
is correctly rounded. ``seen``: the largest distance over all rank cases (``relax-verify ranks`` shows it anew).
"""

from __future__ import annotations

from dataclasses import dataclass

from relax.algorithms.spec import get_algorithm
from verification.ranks.cases import RankCase


@dataclass(frozen=True)
class Bound:
    """How far apart two float32 results may be, in ulps of the element's scale, why, and the largest distance seen."""

    formula: str
    ulps: float
    seen: float
    reason: str


_PARTS = "each rank sums its own tokens, then the ranks' sums are added: other roundings than in one sum"
_VOCABULARY = "the sum over the vocabulary is cut at the shards' borders"

WHITEN = Bound("whiten over ranks", 4.0, 2.1, _PARTS)
TOKEN_GLOBAL = Bound("token_global over ranks", 4.0, 2.0, _PARTS)
GAE = Bound("gae of fewer rows", 4.0, 0.5, "a matrix product of another number of rows may add in another order")
GAE_WHITEN = Bound("whiten of gae over ranks", 6.0, 1.5, f"{GAE.reason}; {_PARTS}")
REDUCED = Bound("reduced over ranks", 2.0, 0.32, f"{_PARTS}, here in float64")
SEQUENCE_GRADIENT = Bound(
    "sequence gradient over ranks", 3.0, 1.0, "the gradient of a response's mean sums over the ranks' tokens"
)
GATE = Bound("soft gate", 3.0, 1.0, "the sigmoid of the last few elements of a vector may come from another routine")
LOG_PROBS = Bound("log-probs over a cut vocabulary", 4.0, 1.7, _VOCABULARY)
STEP = Bound("policy step over ranks", 4.0, 2.0, f"{_PARTS}, here in float64")
STEP_CUT = Bound("policy step over a cut vocabulary", 12.0, 6.25, f"{_VOCABULARY}, and log-probs enter the ratio")
LOGITS = Bound("gradient of logits over ranks", 3.0, 2.0, f"as for {SEQUENCE_GRADIENT.formula} and {GATE.formula}")
LOGITS_CUT = Bound("gradient of cut logits", 8.0, 4.0, STEP_CUT.reason)
BOUNDS = (
    WHITEN, TOKEN_GLOBAL, GAE, GAE_WHITEN, REDUCED, SEQUENCE_GRADIENT, GATE, LOG_PROBS, STEP, STEP_CUT, LOGITS,
    LOGITS_CUT,
)  # fmt: skip


def bound_of(rank_case: RankCase, name: str) -> Bound | None:
    """The bound that the array ``name`` is held to on the layout of the case; None where that is equal bits."""
    layout, spec = rank_case.layout, get_algorithm(rank_case.case.algorithm)
    split = layout.dp * layout.cp > 1  # the tokens of the batch lie on several ranks
    normalized = split and name == "advantages" and bool(rank_case.case.options.get("normalize_advantages"))
    over_tokens = {"whiten": WHITEN, "token_global": TOKEN_GLOBAL}[spec.advantage_normalization] if normalized else None
    cut_means = spec.kl_level == "sequence" and layout.cp > 1
    gated = spec.policy_loss_fn == "soft_gate" and split
    match rank_case.program:
        case "advantages" if spec.advantage_fn == "gae" and layout.dp > 1 and name != "kl":
            return GAE_WHITEN if normalized else GAE
        case "advantages" | "normalization":
            return over_tokens
        case "objective" if gated and name in ("loss", "grad.log_probs"):
            return GATE
        case "objective" if cut_means and name == "grad.log_probs":
            return SEQUENCE_GRADIENT
        case "reduction" if split and name == "loss":
            return REDUCED
        case "log_probs" | "policy_loss" if name.endswith("elsewhere"):
            return None
        case "log_probs" if layout.tp > 1:
            return LOG_PROBS
        case "policy_loss" if layout.tp > 1:
            return LOGITS_CUT if name == "grad.logits" else STEP_CUT
        case "policy_loss" if name == "grad.logits":
            return LOGITS if gated or cut_means else None
        case "policy_loss" if split:
            return STEP
    return None
