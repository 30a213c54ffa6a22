"""One rank case laid open: what each rank holds, how it ended, and where the batch parts from one rank's."""

from __future__ import annotations

from collections.abc import Iterator

from verification.explain import describe
from verification.ranks.cases import RankCase
from verification.ranks.findings import Judged
from verification.ranks.results import RankRun


def explain(rank_case: RankCase, run: RankRun, judged: Judged) -> Iterator[str]:
    """Lines of text on one run of a case."""
    layout, plan = rank_case.layout, rank_case.plan
    yield from describe(rank_case.case)
    yield ""
    yield rank_case.id
    yield f"  program {rank_case.program} on {layout.world} rank(s), {rank_case.qkv_format}"
    if rank_case.culprit is not None:
        yield f"  malformed: data-parallel rank {rank_case.culprit} alone brings what is wrong"
    for rank, result in enumerate(run.ranks):
        tp, cp, dp, pp = layout.coordinates(rank)
        yield f"rank {rank} (tp {tp}, cp {cp}, dp {dp}, pp {pp}): {result.ended}"
        for sample in plan.samples(dp):
            own = ", ".join(map(str, plan.own(sample, cp))) or "none"
            total, length = plan.total_lengths[sample], plan.sequence_lengths[sample]
            yield f"  sample {sample}: {total} tokens, padded to {length}; of its response tokens {own}"
        for collective in result.collectives:
            yield f"  {collective}"
    for one in judged.comparisons:
        distance = "" if one.ulps is None else f" ({one.ulps:g} ulps)"
        yield f"{'agrees' if one.agrees else 'DIFFERENT'} with {one.against}: {one.what}{distance}"
        if one.detail:
            yield f"    {one.detail}"
    yield f"run it again: relax-verify ranks --case '{rank_case.id}'"
