"""A Python file as the lints see it: path, syntax tree, comments, and questions that several rules ask of a tree."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """One breach of a rule, with its place and what to do about it."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Source:
    """One file: its path below the root, with forward slashes; its tree; the lines with a comment; the blank lines."""

    path: str
    tree: ast.Module
    comment_lines: frozenset[int]
    blank_lines: frozenset[int]

    @classmethod
    def parse(cls, path: str, text: str) -> Source:
        """The file ``path`` with the contents ``text``."""
        comments = {
            token.start[0]
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:"))
        }
        blank = {number for number, line in enumerate(text.splitlines(), start=1) if not line.strip()}
        return cls(path, ast.parse(text, filename=path), frozenset(comments), frozenset(blank))

    @classmethod
    def read(cls, root: Path, path: Path) -> Source:
        """The file at ``path``, below ``root``."""
        return cls.parse(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))

    def finding(self, node: ast.AST, message: str) -> Finding:
        """A finding at the line of ``node``."""
        return Finding(self.path, getattr(node, "lineno", 1), message)


@dataclass(frozen=True)
class Rule:
    """A rule for single files. ``check`` gets the file and the registered algorithm names."""

    name: str
    applies_to: Callable[[str], bool]
    check: Callable[[Source, frozenset[str]], Iterator[Finding]]


def below(*folders: str, but: tuple[str, ...] = ()) -> Callable[[str], bool]:
    """Whether a path lies below one of ``folders`` and is none of ``but``."""
    return lambda path: path.startswith(tuple(f"{folder}/" for folder in folders)) and path not in but


def dotted(node: ast.AST) -> str:
    """``a.b.c`` for a chain of attributes on a name; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        value = dotted(node.value)
        return f"{value}.{node.attr}" if value else ""
    return ""


def imported_modules(node: ast.AST) -> list[str]:
    """The modules that an import statement may load (``from a import b``: ``a.b``); relative imports are left out."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def module_level_imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when the module is imported: in no function, and not under ``if TYPE_CHECKING``."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and dotted(node.test).endswith("TYPE_CHECKING"):
            pending.extend(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))


def starts_with_module(name: str, modules: frozenset[str]) -> bool:
    """Whether a dotted name is one of ``modules`` or lies below one of them."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)
