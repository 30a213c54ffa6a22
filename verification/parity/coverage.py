"""Every line of the live tables, and every registered algorithm, is reached by some parity or corpus case."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from verification.cases.case import Case
from verification.judges.comparison import Comparison
from verification.parity.compare import Recorded
from verification.parity.kernels import LIVE_KERNELS, LIVE_TABLES

# The stage whose cases can enter a table, and the field of the registry by which an algorithm chooses its line.
STAGE_OF_TABLE = {
    "REWARD_NORMALIZERS": "reward.normalize",
    "ADVANTAGE_FNS": "advantage.estimate",
    "POLICY_LOSS_FNS": "policy.loss",
    "TOKEN_NORMALIZATIONS": "advantage.normalize",
    "OFF_POLICY_WEIGHTS": "policy.loss",
}
ROUTED_STAGES = tuple(dict.fromkeys((*STAGE_OF_TABLE.values(), "reward.signal", "arguments.validate", "roles.resolve")))
# Cases that are tried for one line before it counts as unreached; the first valid one of the algorithm is enough.
ATTEMPTS = 20


def table_lines() -> list[str]:
    """Every callable line of the live tables, as ``TABLE/key``. A line that holds None has nothing to run."""
    lines: list[str] = []
    for place in LIVE_TABLES:
        module_name, _, name = place.partition(":")
        table = getattr(importlib.import_module(module_name), name)
        lines.extend(f"{name}/{key}" for key, implementation in table.items() if implementation is not None)
    return lines


def unrecorded_lines() -> list[str]:
    """Lines of the live tables that have no recorder: parity would not see which algorithm reaches them."""
    recorded = {kernel.entry for kernel in LIVE_KERNELS}
    return [line for line in table_lines() if line not in recorded]


def compare_coverage(reached: Iterable[str], live: Recorded, corpus: Iterable[Case] | None = None) -> list[Comparison]:
    """One comparison a line of a table: reached by the given traces, or by a case of the corpus that is run for it."""
    if corpus is None:
        from verification.cases import corpus as whole_corpus

        corpus = whole_corpus()
    cases = [case for case in corpus if case.error is None]
    reached = set(reached)
    found = []
    for line in table_lines():
        table = line.partition("/")[0]
        if line in unrecorded_lines():
            detail = f"{line} has no recorder: add it to verification.parity.kernels.LIVE_KERNELS"
        elif line in reached or _reached_by(line, STAGE_OF_TABLE[table], cases, live):
            detail = ""
        else:
            detail = f"{line} is reached by no parity case and no case of the corpus: add one, or remove the line"
        identity = f"parity/coverage/{line}"
        found.append(Comparison(identity, "routing", "", "parity", "tables", line, not detail, None, detail))
    return found


def compare_registered(corpus: Iterable[Case] | None = None) -> list[Comparison]:
    """One comparison a registered algorithm and a stage that routes by algorithm: a valid case of the corpus asks it.

    A stage that the algorithm's own command line refuses needs none.
    """
    from relax.algorithms.spec import get_algorithm, list_algorithm_names

    if corpus is None:
        from verification.cases import corpus as whole_corpus

        corpus = whole_corpus()
    asked = {(case.stage, case.algorithm) for case in corpus if case.error is None}
    found = []
    for name in list_algorithm_names():
        for stage in ROUTED_STAGES:
            if stage == "advantage.normalize" and get_algorithm(name).forbids_normalize_advantages:
                continue
            routed = (stage, name) in asked
            detail = "" if routed else f"no valid case of {stage} asks {name}: add one below verification/cases"
            identity = f"parity/coverage/{stage}/{name}"
            found.append(Comparison(identity, "routing", name, "parity", "corpus", stage, routed, None, detail))
    return found


def _reached_by(line: str, stage: str, cases: list[Case], live: Recorded) -> bool:
    tried: dict[str, int] = {}
    for case in cases:
        if case.stage != stage or tried.get(case.algorithm, 0) >= ATTEMPTS:
            continue
        tried[case.algorithm] = tried.get(case.algorithm, 0) + 1
        live.run(case)
        if line in live.trace.entries:
            return True
    return False
