"""An explanation as data for JSON: every element of every array, nothing cut."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from verification.check import environment
from verification.explaining.arrays import Alike, Array, arrays
from verification.explaining.explanation import Explanation, Side
from verification.explaining.inputs import case_as_data
from verification.explaining.values import array_as_data, exact
from verification.oracle.exact import Exact
from verification.subjects.outcome import Outcome


def explanation_as_dict(explanation: Explanation) -> dict[str, Any]:
    """The whole explanation; `strict_json` writes it."""
    found = explanation.found
    golden = explanation.golden
    return {
        "case": case_as_data(explanation.case),
        "verdict": explanation.verdict,
        "exit_code": explanation.exit_code,
        "subjects": [_side(side) for side in explanation.sides],
        "oracle": {name: _exact(one) for name, one in explanation.exact.items()},
        "arrays": [_array(one) for one in arrays(explanation.case, explanation.results, explanation.exact)],
        "golden": {
            "platform": golden.platform,
            "path": golden.path or None,
            "why_not": golden.why or None,
            "recording": dict(golden.recording) or None,
        },
        "judges": {
            name: {
                "comparisons": len(one.comparisons),
                "differences": [asdict(each) for each in one.comparisons if not each.agrees],
            }
            for name, one in explanation.judged.items()
        },
        "problems": [asdict(one) for one in found.problems],
        "commands": explanation.commands,
        "environment": dict(environment()),
    }


def _side(side: Side) -> dict[str, Any]:
    outcome = None if side.outcome is None else outcome_as_dict(side.outcome)
    return {
        "name": side.name,
        "why_not": side.why or None,
        "provenance": dict(side.provenance) or None,
        "outcome": outcome,
    }


def outcome_as_dict(outcome: Outcome) -> dict[str, Any]:
    """What one subject made of a case, complete."""
    failure = outcome.failure
    return {
        "arrays": {name: array_as_data(tensor) for name, tensor in outcome.arrays.items()},
        "texts": dict(outcome.texts),
        "failure": None if failure is None else {"kind": failure.kind, "message": failure.message},
        "changed_inputs": {path: array_as_data(tensor) for path, tensor in outcome.mutated.items()},
        "aliases": sorted(list(pair) for pair in outcome.aliases),
        "elsewhere": list(outcome.elsewhere),
    }


def _exact(one: Exact) -> dict[str, Any]:
    return {
        "formula": one.formula,
        "bound_ulps": one.bound_ulps,
        "reason": one.reason,
        "correctly_rounded": one.correctly_rounded,
        "shape": list(one.shape),
        "values": [None if value is None else exact(value) for value in one.values],
        "judged": [one.judged(index) for index in range(len(one.values))],
    }


def _array(array: Array) -> dict[str, Any]:
    return {
        "name": array.name,
        "alike": [_alike(group) for group in array.groups],
        "apart": [
            {
                "one": list(pair.one.subjects),
                "other": list(pair.other.subjects),
                "differing": pair.count,
                "first": array.place(pair.first),
                "ulps": pair.ulps,
            }
            for pair in array.apart()
        ],
    }


def _alike(group: Alike) -> dict[str, Any]:
    return {
        "subjects": list(group.subjects),
        "missing": group.tensor is None,
        "ulps_to_exact": group.ulps,
        "beyond_bound": group.beyond or None,
    }
