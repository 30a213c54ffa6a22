"""Lints about the registry: algorithm names stay in the spec, and every field of the spec is read somewhere.

The role of supervised training is chosen by ``loss_type``, not by an algorithm's name: the one exception, no breach.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from verification.parity.source import Finding, Rule, Source, below, dotted

SPEC = "relax/algorithms/spec.py"
# What an expression that holds an algorithm's name is called, by its last part.
NAME_HOLDERS = frozenset({"advantage_estimator", "algorithm", "algorithm_name", "estimator"})
PREFIX_TESTS = frozenset({"startswith", "endswith", "removeprefix", "removesuffix"})
# Objects that carry attributes of the same names and are no spec.
NO_SPEC = frozenset({"self", "args", "config"})
REMEDY = "read a field of the spec instead, get_algorithm(args.advantage_estimator)"


def algorithm_names(sources: list[Source]) -> frozenset[str]:
    """The keys of ``ALGORITHM_SPECS``, read from its source. ValueError where there is no such literal."""
    for source in sources:
        if source.path == SPEC:
            for node in ast.walk(source.tree):
                if (
                    isinstance(node, ast.AnnAssign)
                    and dotted(node.target) == "ALGORITHM_SPECS"
                    and isinstance(node.value, ast.Dict)
                ):
                    return frozenset(str(key.value) for key in node.value.keys if isinstance(key, ast.Constant))
    raise ValueError(f"{SPEC} has no dict literal ALGORITHM_SPECS: the lints read the names there")


def check_literals(source: Source, names: frozenset[str]) -> Iterator[Finding]:
    """An algorithm's name as a string literal."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
            yield source.finding(node, f"algorithm name {node.value!r} outside {SPEC}: {REMEDY}")


def check_comparisons(source: Source, names: frozenset[str]) -> Iterator[Finding]:
    """A decision by an algorithm's name: a comparison, a membership test, a prefix test, a match, a key of a table."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Compare):
            if any(map(_holds_name, [node.left, *node.comparators])):
                yield source.finding(node, f"comparison with an algorithm's name: {REMEDY}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in PREFIX_TESTS and _holds_name(node.func.value):
                yield source.finding(node, f"{node.func.attr} on an algorithm's name: {REMEDY}")
        elif isinstance(node, ast.Match) and _holds_name(node.subject):
            yield source.finding(node, f"match on an algorithm's name: {REMEDY}")


def _holds_name(node: ast.AST) -> bool:
    return dotted(node).rpartition(".")[2] in NAME_HOLDERS


def spec_fields(sources: list[Source]) -> dict[str, int]:
    """Field of ``AlgorithmSpec`` to its line."""
    for source in sources:
        if source.path == SPEC:
            for node in ast.walk(source.tree):
                if isinstance(node, ast.ClassDef) and node.name == "AlgorithmSpec":
                    return {
                        statement.target.id: statement.lineno
                        for statement in node.body
                        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
                    }
    raise ValueError(f"{SPEC} has no class AlgorithmSpec: the lints read its fields there")


def check_consumers(sources: list[Source]) -> Iterator[Finding]:
    """A field of the spec that nothing under ``relax`` reads."""
    elsewhere = [source for source in sources if source.path.startswith("relax/") and source.path != SPEC]
    read = {
        node.attr
        for source in elsewhere
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and dotted(node.value) not in NO_SPEC
    }
    for field, line in spec_fields(sources).items():
        if field not in read:
            yield Finding(SPEC, line, f"nothing under relax reads the field {field}: give it a consumer or remove it")


RULES = (
    Rule("algorithm-name-literal", below("relax", but=(SPEC,)), check_literals),
    Rule("algorithm-name-comparison", below("relax", but=(SPEC,)), check_comparisons),
)
TREE_RULES: tuple[tuple[str, str, Callable[[list[Source]], Iterator[Finding]]], ...] = (
    ("spec-field-without-consumer", SPEC, check_consumers),
)
