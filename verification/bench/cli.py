"""``relax-verify bench``: the performance table, on one thread."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from verification.report.outputs import write_whole
from verification.usage import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from verification.bench.paired import Row


FAMILIES = ("groups", "gdpo", "returns", "start", "ranks", "training")


def add_bench_command(subparsers: Any) -> None:
    """Adds the verb ``bench``; it sets ``run``, a function of the parsed options that gives the exit status."""
    bench = subparsers.add_parser("bench", help="the performance table, ratios taken in one run")
    bench.add_argument(
        "--only", nargs="+", default=[], choices=FAMILIES, metavar="FAMILY", help=f"among {', '.join(FAMILIES)}"
    )
    bench.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    bench.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> int:
    import torch
    from rich.console import Console

    from relax.algorithms.exact import counters
    from verification.bench.rows import absent, at_scale, rows

    lacking = {family: why for family in options.only or FAMILIES if (why := absent(family))}
    if len(lacking) == len(options.only or FAMILIES):
        raise UsageError("; ".join(f"{family} is not there: {why}" for family, why in lacking.items()))
    torch.set_num_threads(1)
    measured: list[Row] = []
    for row in rows(options.only):
        measured.append(row)
        sys.stderr.write(f"{row.name} against {row.reference}: {row.figure:z.2f} {row.measure}\n")
    Console(width=None if sys.stdout.isatty() else 150).print(_table(measured))
    for name, tally in sorted(counters().items()):
        exact = f"{tally.fallback} of {tally.outputs} outputs by exact arithmetic ({tally.fallback_rate:.5%})"
        print(f"exact engine, {name}: {exact}")
    if not options.only:
        print(at_scale())
    for family, why in lacking.items():
        print(f"{family}: not there: {why}")
    missed = sum(not row.holds for row in measured)
    print(f"BENCH {'holds' if not missed else f'missed ({missed})'}")
    if options.json:
        write_whole(options.json, json.dumps([{**vars(row), "holds": row.holds} for row in measured], indent=2) + "\n")
    return 1 if missed else 0


def _table(measured: list[Row]) -> Table:
    from rich.table import Table

    table = Table(
        title="One thread; both sides in turn; medians over the rounds (starts of an interpreter: the fastest)"
    )
    for words in ("what", "against"):
        table.add_column(words)
    for numbers in ("figure", "promised", "ms", "ms, reference"):
        table.add_column(numbers, justify="right")
    table.add_column("")
    for row in measured:
        bound = "at least" if row.measure == "times faster" else "at most"
        table.add_row(
            row.name,
            row.reference,
            f"{row.figure:z.2f} {row.measure}",
            f"{bound} {row.target:g}",
            f"{1000 * row.seconds:.2f}",
            f"{1000 * row.reference_seconds:.2f}",
            "holds" if row.holds else "MISSED",
        )
    return table
