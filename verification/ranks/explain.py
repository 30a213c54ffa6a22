"""One rank case laid open: what each rank holds, how it ended, and where the batch parts from one rank's."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from verification.explaining.inputs import case_as_data, case_sheets
from verification.ranks.cases import RankCase
from verification.ranks.findings import Judged
from verification.ranks.results import RankResult, RankRun
from verification.report.document import Document, Finding, Sheet, Tried
from verification.report.sheets import ulps


def sheets(rank_case: RankCase, run: RankRun, judged: Judged) -> Iterator[Sheet]:
    """The case, every rank of the run, and every comparison, as tables."""
    yield from case_sheets(rank_case.case)
    program = f"{rank_case.program} on {rank_case.layout.world} ranks, {rank_case.qkv_format}"
    facts = [("program", program)]
    if rank_case.culprit is not None:
        facts.append(("malformed", f"data-parallel rank {rank_case.culprit} alone brings what is wrong"))
    yield Sheet(rank_case.id, ("", ""), tuple(facts))
    for result in run.ranks:
        yield _rank(rank_case, result)
    cells = [
        ("agrees" if one.agrees else "DIFFERENT", one.against, one.what, ulps(one.ulps), one.detail)
        for one in judged.comparisons
    ]
    yield Sheet("compared with", ("", "with", "what", "ulps", "detail"), tuple(cells), words=(0, 1, 2, 4))
    yield Sheet("run it again", ("",), tuple((command,) for command in _commands(rank_case)), words=(0,))


def _rank(rank_case: RankCase, result: RankResult) -> Sheet:
    plan = rank_case.plan
    tp, cp, dp, pp = rank_case.layout.coordinates(result.rank)
    rows = []
    for sample in plan.samples(dp):
        own = ", ".join(map(str, plan.own(sample, cp))) or "none"
        total, length = plan.total_lengths[sample], plan.sequence_lengths[sample]
        rows.append((f"sample {sample}", f"{total} tokens, padded to {length}; of its response tokens {own}"))
    rows += [(f"collective {number}", name) for number, name in enumerate(result.collectives, start=1)]
    note = "" if result.ended == "value" else result.describe()
    title = f"rank {result.rank} (tp {tp}, cp {cp}, dp {dp}, pp {pp}): {result.ended}"
    return Sheet(title, ("", ""), tuple(rows), note=note)


def _commands(rank_case: RankCase) -> list[str]:
    name = rank_case.id
    return [shlex.join(["relax-verify", *verb, name]) for verb in (["explain"], ["ranks", "--case"])]


def document_of(rank_case: RankCase, run: RankRun, judged: Judged) -> Document:
    """The page of one rank case."""
    case, command = rank_case.case, _commands(rank_case)[0]
    findings = [
        Finding(
            rank_case.id,
            case.stage,
            case.algorithm,
            f"{one.against}: {one.what}",
            one.detail,
            one.ulps,
            command=command,
        )
        for one in judged.comparisons
        if not one.agrees
    ]
    return Document(
        title=command,
        verdict=f"VERDICT different ({len(findings)})" if findings else "VERDICT equivalent",
        exit_code=int(bool(findings)),
        sheets=tuple(sheet for sheet in sheets(rank_case, run, judged) if sheet.rows),
        findings=tuple(findings),
        tried=(Tried(rank_case.id, case.stage),),
    )


def as_dict(rank_case: RankCase, run: RankRun, judged: Judged) -> dict[str, Any]:
    """What the JSON holds."""
    return {
        "id": rank_case.id,
        "case": case_as_data(rank_case.case),
        "program": rank_case.program,
        "layout": rank_case.layout.name,
        "ranks": [
            {"rank": one.rank, "ended": one.ended, "said": one.describe(), "collectives": list(one.collectives)}
            for one in run.ranks
        ],
        "comparisons": [asdict(one) for one in judged.comparisons],
        "commands": _commands(rank_case),
    }
