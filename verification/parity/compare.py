"""Compare the live dispatch with the frozen one: route by route as data, and combination by combination as run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from verification.cases.case import Case
from verification.judges.bits import judge_bits
from verification.judges.comparison import Comparison
from verification.parity.inputs import make_case
from verification.parity.kernels import FROZEN_KERNELS, LIVE_KERNELS
from verification.parity.recorders import Call, Trace, recording
from verification.parity.routing import OLD_ALGORITHMS, OLD_ROLE_SETS, OLD_ROLE_TABLES, OLD_ROUTES, old_roles
from verification.parity.snapshots import difference
from verification.parity.switches import STAGE_SWITCHES, combinations
from verification.subjects.outcome import Outcome
from verification.subjects.protocol import Subject

JUDGE = "parity"


def parity_cases() -> Iterator[Case]:
    """Every combination of switches of every stage, for each of the old algorithms."""
    for stage in STAGE_SWITCHES:
        for algorithm in OLD_ALGORITHMS:
            for number, combination in enumerate(combinations(stage)):
                yield make_case(stage, algorithm, number, combination)


@dataclass(frozen=True)
class Recorded:
    """A subject whose kernels are recorded, with the trace that they write."""

    subject: Subject
    trace: Trace

    def run(self, case: Case) -> Outcome:
        """The outcome of ``case``, its calls in ``trace``. NotImplementedError where the subject cannot run it."""
        self.trace.clear()
        outcome = self.subject.run(case)
        if outcome is None:
            raise NotImplementedError(
                f"{case.id}: {self.subject.name} does not implement {case.stage}/{case.algorithm}"
            )
        return outcome


@contextlib.contextmanager
def recorded_subjects(live: Subject, frozen: Subject) -> Iterator[tuple[Recorded, Recorded]]:
    """Both subjects with recorders in place until the block ends."""
    with recording(LIVE_KERNELS) as live_trace, recording(FROZEN_KERNELS) as frozen_trace:
        yield Recorded(live, live_trace), Recorded(frozen, frozen_trace)


def compare_dispatch(case: Case, live: Recorded, frozen: Recorded) -> list[Comparison]:
    """Both dispatchers on one case: same kernels, arguments, results, aliases, changed inputs and exception types."""
    got, expected = live.run(case), frozen.run(case)
    found = judge_bits(case, got, expected, "frozen dispatch", judge=JUDGE)
    found.extend(compare_traces(case, live.trace, frozen.trace))
    found.extend(_compare_with_routing(case, live.trace))
    return found


def compare_traces(case: Case, live: Trace, frozen: Trace) -> list[Comparison]:
    """One comparison of the kernels' names in order; where they agree, one an argument, one a result of each call."""
    compare = partial(Comparison, case.id, case.stage, case.algorithm, JUDGE, "frozen dispatch")
    got, expected = [call.name for call in live.calls], [call.name for call in frozen.calls]
    agrees = got == expected
    detail = "" if agrees else f"got {', '.join(got) or 'none'}; expected {', '.join(expected) or 'none'} ({case.note})"
    found = [compare("kernels", agrees, None, detail)]
    if agrees:
        for one, other in zip(live.calls, frozen.calls, strict=True):
            found.extend(_compare_calls(compare, one, other))
    return found


def _compare_calls(compare: partial[Comparison], live: Call, frozen: Call) -> Iterator[Comparison]:
    for name in sorted({*live.arguments, *frozen.arguments}):
        nothing = ("missing", "no such argument")
        detail = difference(live.arguments.get(name, nothing), frozen.arguments.get(name, nothing))
        yield compare(f"argument {name} of {live.name}", not detail, None, detail)
    detail = difference(live.result, frozen.result)
    if not detail and live.aliasing != frozen.aliasing:
        detail = "the results share other objects than the frozen ones do"
    yield compare(f"result of {live.name}", not detail, None, detail)


# Which field of a route a table entry answers to.
_FIELD_OF_TABLE = {
    "REWARD_NORMALIZERS": "reward_normalizer",
    "ADVANTAGE_FNS": "advantage_fn",
    "POLICY_LOSS_FNS": "policy_loss_fn",
    "TOKEN_NORMALIZATIONS": "advantage_normalization",
}


def _compare_with_routing(case: Case, live: Trace) -> Iterator[Comparison]:
    """The table entries that the live run entered are those of the old routing tables."""
    for entry in live.entries:
        table, _, identifier = entry.partition("/")
        if table in _FIELD_OF_TABLE:
            expected = getattr(OLD_ROUTES[case.algorithm], _FIELD_OF_TABLE[table])
            detail = "" if identifier == expected else f"got {identifier}, expected {expected}"
            yield Comparison(
                case.id, case.stage, case.algorithm, JUDGE, "old routing", f"entry of {table}", not detail, None, detail
            )


def compare_routing() -> Iterator[Comparison]:
    """The registry's fields and role tables of the old algorithms against the old routing."""
    from relax.algorithms.spec import get_algorithm
    from relax.core.registry import ALGOS, process_role
    from verification.cases.arguments import namespace

    for name, route in OLD_ROUTES.items():
        compare = partial(Comparison, f"parity/routing/{name}", "routing", name, JUDGE, "old routing")
        spec = get_algorithm(name)
        for field in route.__dataclass_fields__:
            yield _equal(compare, f"spec.{field}", getattr(spec, field), getattr(route, field))
        yield _equal(compare, "role table", sorted(ALGOS[name]), sorted(OLD_ROLE_TABLES[name]))
        for mode in OLD_ROLE_SETS:
            switched = dict.fromkeys(mode.split(", "), True)
            roles = process_role(namespace(name, **{"colocate": False, **switched}))
            yield _equal(compare, f"roles of {mode}", list(roles.items()), list(old_roles(name, mode).items()))
        supervised = process_role(namespace(name, loss_type="sft_loss"))
        yield _equal(compare, "roles of sft", list(supervised.items()), list(old_roles(name, "sft").items()))


def _equal(compare: partial[Comparison], what: str, got: Any, expected: Any) -> Comparison:
    agrees = type(got) is type(expected) and got == expected
    return compare(what, agrees, None, "" if agrees else f"got {got!r}, expected {expected!r}")
