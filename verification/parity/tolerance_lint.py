"""The lint about tolerances in tests: none without its reason beside it, none wide, none where bits are claimed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator

from verification.parity.source import Finding, Rule, Source, below, dotted

WIDEST = 1e-2
# Comparing calls, with how many positional arguments come before the tolerances.
COMPARING = {
    "allclose": 2,
    "approx": 1,
    "assert_allclose": 2,
    "assert_almost_equal": 2,
    "assert_array_almost_equal": 2,
    "assert_close": 2,
    "isclose": 2,
}
KEYWORDS = frozenset({"rtol", "atol", "rel", "abs", "rel_tol", "abs_tol", "decimal"})
DECIMALS = frozenset({"assert_almost_equal", "assert_array_almost_equal"})
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def check_tolerances(source: Source, names: frozenset[str]) -> Iterator[Finding]:
    """Each comparing call, and each ``abs(a - b) < number``, in every statement of a test file."""
    for statement, function in _statements(source.tree, ""):
        for node in _own_nodes(statement):
            for widest, shown in _tolerances(node):
                yield from _judge(source, statement, function, node, widest, shown)


def _judge(
    source: Source, statement: ast.stmt, function: str, node: ast.AST, widest: float | None, shown: str
) -> Iterator[Finding]:
    """``widest`` is the largest tolerance of ``node``, None where it cannot be read from the source."""
    if widest == 0:
        return
    if widest is not None and widest > WIDEST:
        yield source.finding(node, f"{shown} tolerates {widest:g}, more than {WIDEST:g}: compare ulps or bits")
    if {"bit", "bits"} & set(function.split("_")):
        yield source.finding(node, f"{function} claims bits, but {shown} tolerates a difference: compare bits")
    if not _has_reason(source, statement):
        yield source.finding(node, f"{shown} has no reason beside it: say in a comment where its tolerance comes from")


def _has_reason(source: Source, statement: ast.stmt) -> bool:
    """A comment in the statement, or within three lines above it with no blank line between."""
    if any(line in source.comment_lines for line in range(statement.lineno, (statement.end_lineno or 0) + 1)):
        return True
    for line in range(statement.lineno - 1, statement.lineno - 4, -1):
        if line in source.comment_lines:
            return True
        if line in source.blank_lines:
            break
    return False


def _statements(node: ast.AST, function: str) -> Iterator[tuple[ast.stmt, str]]:
    """Every statement with the name of the function around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child, function
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield from _statements(child, inner)


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement without those of the statements inside it."""
    pending = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while pending:
        node = pending.pop(0)
        yield node
        pending.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt))


def _tolerances(node: ast.AST) -> Iterator[tuple[float | None, str]]:
    if isinstance(node, ast.Call):
        called = dotted(node.func).rpartition(".")[2] or getattr(node.func, "attr", "")
        if called in COMPARING:
            given = [*node.args[COMPARING[called] :], *(word.value for word in node.keywords if word.arg in KEYWORDS)]
            numbers = [_number(value) for value in given]
            if called in DECIMALS:
                numbers = [None if number is None else 10.0**-number for number in numbers]
            # Without any given the library's own tolerance holds, which is none that a reader sees.
            yield (None if not numbers or None in numbers else max(numbers)), called  # type: ignore[type-var]
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt | ast.LtE):
        bound = _number(node.comparators[0])
        # A whole number bounds a count or a distance in ulps.
        if bound is not None and not (bound >= 1 and bound.is_integer()) and _is_distance(node.left):
            yield bound, "abs(a - b) < number"


def _is_distance(node: ast.AST) -> bool:
    """``abs(a - b)``, ``(a - b).abs()``, and either followed by ``.max()`` and the like."""
    if isinstance(node, ast.Call):
        called = dotted(node.func).rpartition(".")[2]
        if called in ("abs", "fabs") and node.args:
            return isinstance(node.args[0], ast.BinOp) and isinstance(node.args[0].op, ast.Sub)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "abs":
                return isinstance(node.func.value, ast.BinOp) and isinstance(node.func.value.op, ast.Sub)
            return node.func.attr in ("max", "item", "mean", "sum") and _is_distance(node.func.value)
    return False


def _number(node: ast.AST) -> float | None:
    """The value of a literal or of arithmetic on literals; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = _number(node.operand)
        return None if operand is None else -operand
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _number(node.left), _number(node.right)
        if left is not None and right is not None:
            return float(_OPERATORS[type(node.op)](left, right))
    return None


RULES = (Rule("tolerance", below("tests"), check_tolerances),)
