"""The hash lock of the frozen copies: ``LOCK`` holds the SHA-256 of every source file of this folder.

``check_lock()`` lists what differs. ``python -m verification.frozen.lock --write`` records the present files; it is a
deliberate act that a reviewer sees in the diff of ``LOCK``, and it is refused where ``CI`` is set.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LOCK_NAME = "LOCK"
REWRITE = "python -m verification.frozen.lock --write"


def locked_files(folder: Path = FOLDER) -> dict[str, str]:
    """File name to SHA-256 for every Python file below ``folder``, this one included, sorted by name."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.py"))
    }


def as_text(hashes: dict[str, str]) -> str:
    """The text of ``LOCK``: ``sha256  name`` a line, sorted by name, as ``sha256sum -c`` reads it."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(hashes.items()))


def read_lock(folder: Path = FOLDER) -> dict[str, str]:
    """The recorded hashes. ValueError, with file and line, for a line that is none or a name that comes twice."""
    recorded: dict[str, str] = {}
    for number, line in enumerate((folder / LOCK_NAME).read_text(encoding="utf-8").splitlines(), start=1):
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or set(digest) - set("0123456789abcdef") or not name or name in recorded:
            raise ValueError(f"{folder / LOCK_NAME}:{number}: not a line 'sha256  name' of a new file: {line!r}")
        recorded[name] = digest
    return recorded


def check_lock(folder: Path = FOLDER) -> list[str]:
    """What is wrong with the frozen copies, one sentence each with the file and the remedy; empty when they stand."""
    if not (folder / LOCK_NAME).is_file():
        return [f"{folder / LOCK_NAME} is missing: restore it from version control"]
    try:
        recorded = read_lock(folder)
    except ValueError as error:
        return [f"{error}: restore {LOCK_NAME} from version control"]
    present = locked_files(folder)
    problems = []
    for name in sorted(set(recorded) | set(present)):
        path = folder / name
        if name not in present:
            problems.append(f"{path} is locked but missing: restore it from version control")
        elif name not in recorded:
            problems.append(f"{path} is not locked: remove it, or record it with '{REWRITE}'")
        elif recorded[name] != present[name]:
            problems.append(f"{path} {_difference(path, recorded[name])}")
    return problems


def _difference(path: Path, recorded: str) -> str:
    """How a file differs from its recorded hash, and what to do."""
    if hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest() == recorded:
        return "has CRLF line endings: check it out again with LF, as .gitattributes asks"
    return (
        f"differs from its locked hash: restore it from version control; "
        f"if the baseline itself was misread, correct the copy and record it with '{REWRITE}'"
    )


def write_lock(folder: Path = FOLDER) -> None:
    """Record the present files. PermissionError where ``CI`` is set."""
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise PermissionError("the frozen copies are not locked anew under CI: run this in a checkout and commit LOCK")
    temporary = folder / f"{LOCK_NAME}.new"
    temporary.write_bytes(as_text(locked_files(folder)).encode())
    temporary.replace(folder / LOCK_NAME)


def main(argv: Sequence[str] | None = None) -> int:
    """Check the lock, or write it anew; 0 when it holds, 1 when it does not, 2 when writing is refused."""
    parser = argparse.ArgumentParser(prog="python -m verification.frozen.lock", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="record the present files as the frozen ones")
    if parser.parse_args(argv).write:
        try:
            write_lock()
        except PermissionError as error:
            sys.stderr.write(f"{error}\n")
            return 2
    problems = check_lock()
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
