"""An explanation as tables: what the terminal and the page show of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from verification.explaining.arrays import Alike, Array, arrays, changed_inputs
from verification.explaining.explanation import Explanation, Side
from verification.explaining.inputs import case_sheets
from verification.explaining.values import elements, exact, kind
from verification.report.document import Sheet
from verification.report.sheets import ulps

ROWS = 12  # elements of one array, around the first difference
PAIRS = 6  # of aliases
DIFFERENCES, PROBLEMS = "differences", "problems of the harness"


def sheets(explanation: Explanation, rows: int = ROWS) -> Iterator[Sheet]:
    """The case, every subject's outcome, each array with up to ``rows`` elements, the golden, the judges."""
    yield from case_sheets(explanation.case)
    yield _outcomes(explanation)
    for side in explanation.sides:
        if side.provenance:
            yield Sheet(f"where {side.name} comes from", ("", ""), tuple(side.provenance.items()))
    for array in arrays(explanation.case, explanation.results, explanation.exact):
        yield _array(array, rows)
    for array in changed_inputs(_ran(explanation)):
        yield _changed(array)
    yield from _texts(explanation)
    yield _golden(explanation)
    yield _judges(explanation)
    differing = [
        (name, one.judge, one.against, one.what, ulps(one.ulps), one.detail)
        for name, found in explanation.judged.items()
        for one in found.comparisons
        if not one.agrees
    ]
    if differing:
        columns = ("subject", "judge", "against", "what", "ulps", "detail")
        yield Sheet(DIFFERENCES, columns, tuple(differing), words=(0, 1, 2, 3, 5))
    if explanation.found.problems:
        cells = [(one.where, one.message) for one in explanation.found.problems]
        yield Sheet(PROBLEMS, ("where", "message"), tuple(cells))
    yield Sheet("run it again", ("",), tuple((command,) for command in explanation.commands), words=(0,))


def _ran(explanation: Explanation) -> dict:
    return {side.name: side.outcome for side in explanation.sides if side.outcome is not None}


def _outcomes(explanation: Explanation) -> Sheet:
    rows = [(side.name, _summary(side)) for side in explanation.sides]
    count = len(explanation.exact)
    rows.append(("oracle", f"exact values of {count} arrays" if count else "nothing to say on this case"))
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
        columns.append([exact(value) for value in array.exact.values[start:end]])
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


def _texts(explanation: Explanation) -> Iterator[Sheet]:
    """Results that are no numbers, one table a name, the subjects that say the same in one row."""
    results = explanation.results
    for name in dict.fromkeys(name for outcome in results.values() for name in outcome.texts):
        said: dict[str, list[str]] = {}
        for who, outcome in results.items():
            said.setdefault(outcome.texts.get(name, "missing"), []).append(who)
        rows = tuple((" = ".join(names), text) for text, names in said.items())
        yield Sheet(f"text {name}", ("", ""), rows)


def _golden(explanation: Explanation) -> Sheet:
    golden = explanation.golden
    rows = [("file", golden.path)] if golden.path else [("status", golden.why)]
    rows += [(name.replace("_", " "), value) for name, value in golden.recording.items()]
    if golden.path and not golden.recording:
        rows.append(("recording", "none names this golden"))
    return Sheet("golden", ("", ""), tuple(rows))


def _judges(explanation: Explanation) -> Sheet:
    rows = [
        (name, str(len(found.comparisons)), str(sum(not one.agrees for one in found.comparisons)))
        for name, found in explanation.judged.items()
    ]
    return Sheet("judges", ("subject", "comparisons", "differences"), tuple(rows), words=(0,))
