"""Source lints over syntax trees: what no test of behaviour can see, found by file and line.

The rules are in ``name_lints``, ``source_lints`` and ``tolerance_lint``; this module reads the tree and runs them.
Nothing is imported from the code under examination, so that any checkout can be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from verification.judges.comparison import Comparison
from verification.parity import name_lints, source_lints, tolerance_lint
from verification.parity.source import Finding, Rule, Source

ROOTS = ("relax", "verification", "tests")

RULES: tuple[Rule, ...] = (*name_lints.RULES, *source_lints.RULES, *tolerance_lint.RULES)
TREE_RULES = name_lints.TREE_RULES


def read_tree(root: Path) -> list[Source]:
    """Every Python file of the checkout, parsed; SyntaxError, with file and line, for one that does not parse."""
    paths = [path for folder in ROOTS for path in sorted((root / folder).rglob("*.py"))]
    paths += sorted(root.glob("*.py"))
    return [Source.read(root, path) for path in paths if "__pycache__" not in path.parts]


def find(sources: list[Source]) -> Iterator[tuple[str, str, list[Finding]]]:
    """``(rule, file, findings)`` for each rule and each file in its scope; a rule of the whole tree names its file."""
    names = name_lints.algorithm_names(sources)
    for source in sources:
        for rule in RULES:
            if rule.applies_to(source.path):
                yield rule.name, source.path, list(rule.check(source, names))
    for rule_name, path, check in TREE_RULES:
        yield rule_name, path, list(check(sources))


def lint_tree(root: Path) -> list[Comparison]:
    """One comparison for each rule and file; ValueError where ``root`` is no checkout of this project."""
    if not (root / "relax" / "algorithms" / "spec.py").is_file():
        raise ValueError(f"{root} holds no relax/algorithms/spec.py: give the root of a checkout")
    return [
        Comparison(
            f"lint/{rule}/{path}",
            "source",
            "",
            "lint",
            rule,
            path,
            not findings,
            None,
            "; ".join(map(str, findings)),
        )
        for rule, path, findings in find(read_tree(root))
    ]
