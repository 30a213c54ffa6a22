"""Which algorithms share a formula, written down from the design so that the corpus asks the registry nothing."""

from __future__ import annotations

DIVIDE_BY_STD = ("grpo", "gspo", "sapo", "cispo")
CENTRE_ONLY = ("reinforce_plus_plus_baseline",)
LEAVE_ONE_OUT = ("rloo",)
NO_GROUPS = ("ppo", "reinforce_plus_plus")
COMPONENTS = ("gdpo",)

SINGLE_REWARD = (*DIVIDE_BY_STD, *NO_GROUPS, *CENTRE_ONLY, *LEAVE_ONE_OUT)
GROUPED = (*DIVIDE_BY_STD, *CENTRE_ONLY, *LEAVE_ONE_OUT)
ALL = (*SINGLE_REWARD, *COMPONENTS)

BROADCAST = (*DIVIDE_BY_STD, *LEAVE_ONE_OUT)
TOKEN_GLOBAL = ("reinforce_plus_plus", "reinforce_plus_plus_baseline")
TOKEN_WHITEN = (*DIVIDE_BY_STD, "ppo", *LEAVE_ONE_OUT)


def required_options(algorithm: str) -> dict[str, object]:
    """The options without which the command line refuses ``algorithm``."""
    return {"normalize_advantages": True} if algorithm in TOKEN_GLOBAL else {}
