"""An explanation as tables: what the terminal and the page show of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from verification.cases.case import Case
from verification.explaining.arrays import Alike, Array, arrays, changed_inputs
from verification.explaining.explanation import Explanation, Side, results
from verification.explaining.inputs import case_sheets
from verification.explaining.recorded import Recorded
from verification.explaining.values import elements, kind
from verification.explaining.values import exact as as_exact
from verification.oracle.exact import Exact
from verification.report.document import Sheet
from verification.report.sheets import ulps
from verification.subjects.outcome import Outcome

ROWS = 12  # elements of one array, around the first difference
PAIRS = 6  # of aliases


def sheets(explanation: Explanation, rows: int = ROWS) -> Iterator[Sheet]:
    """Everything, each array with up to ``rows`` elements."""
    yield from tables(explanation, rows)
    yield from _findings(explanation)
    yield commands(explanation)


def tables(explanation: Explanation, rows: int) -> Iterator[Sheet]:
    """The case, what the subjects made of it, the golden, and how many comparisons the judges made."""
    yield from case_sheets(explanation.case)
    yield from outcome_sheets(explanation.case, explanation.sides, explanation.exact, rows)
    yield golden_sheet(explanation.golden)
    counts = [
        (name, str(len(found.comparisons)), str(sum(not one.agrees for one in found.comparisons)))
        for name, found in explanation.judged.items()
    ]
    yield Sheet("judges", ("subject", "comparisons", "differences"), tuple(counts), words=(0,))


def outcome_sheets(case: Case, sides: Sequence[Side], exact: Mapping[str, Exact], rows: int = ROWS) -> Iterator[Sheet]:
    """What every side made of a case, and each array element by element around the place where they part."""
    yield _outcomes(sides, exact)
    for side in sides:
        if side.provenance:
            yield Sheet(f"where {side.name} comes from", ("", ""), tuple(side.provenance.items()))
    for array in arrays(case, results(sides), exact):
        yield _array(array, rows)
    for array in changed_inputs({side.name: side.outcome for side in sides if side.outcome is not None}):
        yield _changed(array)
    yield from _texts(results(sides))


def golden_sheet(golden: Recorded) -> Sheet:
    """Where a golden lies and which recording it comes from, or why there is none."""
    rows = [("file", golden.path)] if golden.path else [("status", golden.why)]
    rows += [(name.replace("_", " "), value) for name, value in golden.recording.items()]
    if golden.path and not golden.recording:
        rows.append(("recording", "none names this golden"))
    return Sheet("golden", ("", ""), tuple(rows))


def commands(explanation: Explanation) -> Sheet:
    """What to type to see it again."""
    return Sheet("run it again", ("",), tuple((command,) for command in explanation.commands), words=(0,))


def _findings(explanation: Explanation) -> Iterator[Sheet]:
    """What differs, and the problems of the harness, where there are any."""
    differing = [
        (name, one.judge, one.against, one.what, ulps(one.ulps), one.detail)
        for name, found in explanation.judged.items()
        for one in found.comparisons
        if not one.agrees
    ]
    if differing:
        columns = ("subject", "judge", "against", "what", "ulps", "detail")
        yield Sheet("differences", columns, tuple(differing), words=(0, 1, 2, 3, 5))
    if explanation.found.problems:
        cells = [(one.where, one.message) for one in explanation.found.problems]
        yield Sheet("problems of the harness", ("where", "message"), tuple(cells))


def _outcomes(sides: Sequence[Side], exact: Mapping[str, Exact]) -> Sheet:
    rows = [(side.name, _summary(side)) for side in sides]
    rows.append(("oracle", f"exact values of {len(exact)} arrays" if exact else "nothing to say on this case"))
    return Sheet("outcomes", ("", ""), tuple(rows))


def _summary(side: Side) -> str:
    outcome = side.outcome
    if outcome is None:
        return side.why
    if outcome.failure is not None:
        parts = [f"failed with {outcome.failure.kind}: {outcome.failure.message}"]
    else:
        parts = [f"{len(outcome.arrays)} arrays"] if outcome.arrays else []
        parts += [f"{len(outcome.texts)} texts"] if outcome.texts else []
    parts.append(f"changed {', '.join(sorted(outcome.mutated))}" if outcome.mutated else "inputs untouched")
    if outcome.aliases:
        pairs = sorted(outcome.aliases)
        more = f" and {len(pairs) - PAIRS} pairs more" if len(pairs) > PAIRS else ""
        parts.append("shared: " + ", ".join(f"{one} = {other}" for one, other in pairs[:PAIRS]) + more)
    if outcome.elsewhere:
        parts.append(f"on another device: {', '.join(outcome.elsewhere)}")
    return "; ".join(parts)


def _array(array: Array, rows: int) -> Sheet:
    """Where the subjects part first, then element by element around that place."""
    groups, notes = array.comparable, []
    for group in array.groups:
        if group not in groups:
            notes.append(f"{group.name}: {kind(group.tensor)}")
    pairs = list(array.apart())
    for pair in pairs:
        distance = "" if pair.ulps is None else f", at most {ulps(pair.ulps)} ulps apart"
        where = f"{pair.count} of {_tensor(pair.one).numel()} differ, first at {array.place(pair.first)}"
        notes.append(f"{pair.one.name} and {pair.other.name}: {where}{distance}")
    if len(array.groups) == 1:
        notes.append(f"{groups[0].name}: the same bits" if len(groups[0].subjects) > 1 else f"{groups[0].name} alone")
    if array.exact is not None:
        notes += [_to_exact(group) for group in groups if group.ulps is not None or group.beyond]
        notes.append(f"formula {array.exact.formula}, bound {array.exact.bound_ulps:g} ulps ({array.exact.reason})")
    total = _tensor(groups[0]).numel()
    start = max(0, min((pair.first for pair in pairs), default=0) - rows // 4)
    end = min(total, start + rows)
    columns = [[array.place(index) for index in range(start, end)]]
    columns += [elements(_tensor(group), start, end) for group in groups]
    heads = ["", *(group.name for group in groups)]
    if array.exact is not None and array.exact.shape == tuple(array.shape):
        heads.append("exact")
        columns.append([as_exact(value) for value in array.exact.values[start:end]])
    if end - start < total:
        notes.append(f"{total - (end - start)} of {total} elements are not shown")
    title = f"{array.name} {kind(groups[0].tensor)}"
    cells = tuple(zip(*columns, strict=True))
    return Sheet(title, tuple(heads), cells, words=tuple(range(len(heads))), note="\n".join(notes))


def _to_exact(group: Alike) -> str:
    if group.beyond:
        return f"{group.name} is beyond the bound: {group.beyond}"
    return f"{group.name}: at most {ulps(group.ulps)} ulps from the exact value"


def _tensor(group: Alike) -> torch.Tensor:
    assert group.tensor is not None
    return group.tensor


def _changed(array: Array) -> Sheet:
    rows = []
    for group in array.groups:
        if group.tensor is None:
            value = "untouched"
        elif group.tensor.dtype == torch.uint8:
            value = bytes(group.tensor.tolist()).decode(errors="replace")
        else:
            value = f"{kind(group.tensor)}: {', '.join(elements(group.tensor))}"
        rows.append((group.name, value))
    return Sheet(f"input {array.name} after the call", ("", ""), tuple(rows))


def _texts(outcomes: Mapping[str, Outcome]) -> Iterator[Sheet]:
    """Results that are no numbers, one table a name, the subjects that say the same in one row."""
    for name in dict.fromkeys(name for outcome in outcomes.values() for name in outcome.texts):
        said: dict[str, list[str]] = {}
        for who, outcome in outcomes.items():
            said.setdefault(outcome.texts.get(name, "missing"), []).append(who)
        rows = tuple((" = ".join(names), text) for text, names in said.items())
        yield Sheet(f"text {name}", ("", ""), rows)
