"""The corpus: every named, field, recorded and real case, gathered once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from verification.cases.advantage import advantage_cases
from verification.cases.batches import batch_cases
from verification.cases.case import Case
from verification.cases.command_line import command_line_cases
from verification.cases.components import component_cases
from verification.cases.field import field_cases
from verification.cases.group_signal import signal_cases
from verification.cases.kl import kl_cases
from verification.cases.log_probs import log_prob_cases
from verification.cases.normalization import normalization_cases
from verification.cases.policy import policy_cases
from verification.cases.real import real_cases
from verification.cases.reduce import reduce_cases
from verification.cases.reward import reward_cases
from verification.cases.reward_refusals import reward_refusal_cases
from verification.cases.roles import role_cases
from verification.cases.vectors import vector_cases

SOURCES: dict[str, Callable[[], Iterator[Case]]] = {
    "reward": reward_cases,
    "reward refusals": reward_refusal_cases,
    "components": component_cases,
    "signal": signal_cases,
    "kl": kl_cases,
    "advantage": advantage_cases,
    "batches": batch_cases,
    "normalization": normalization_cases,
    "policy": policy_cases,
    "reduce": reduce_cases,
    "log-probs": log_prob_cases,
    "command line": command_line_cases,
    "roles": role_cases,
    "field": field_cases,
    "vectors": vector_cases,
    "real": real_cases,
}

IDENTITY = re.compile(r"(?P<stage>[a-z.]+)/(?P<algorithm>[a-z_]+)/[a-z0-9.+-]+")


@lru_cache(maxsize=1)
def corpus() -> tuple[Case, ...]:
    """Every case, in a fixed order. An id that is used twice or does not follow the form is a ValueError."""
    return tuple(_by_id().values())


def find(identity: str) -> Case:
    """The case called ``identity``; a KeyError that names the closest ones where there is none."""
    cases = _by_id()
    if identity not in cases:
        close = difflib.get_close_matches(identity, cases, n=3)
        raise KeyError(f"no case {identity!r}" + (f"; the closest are {', '.join(close)}" if close else ""))
    return cases[identity]


@lru_cache(maxsize=1)
def _by_id() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for source, generate in SOURCES.items():
        for case in generate():
            form = IDENTITY.fullmatch(case.id)
            if not form or (form["stage"], form["algorithm"]) != (case.stage, case.algorithm):
                raise ValueError(f"case {case.id!r} of {source}: its id must be {case.stage}/{case.algorithm}/rest")
            if case.id in cases:
                raise ValueError(f"case {case.id!r} of {source}: the id is taken")
            cases[case.id] = case
    return cases
