"""The processes of one layout: started together, given one task after the other, ended together."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from verification.ranks.layout import Layout
from verification.ranks.messages import Answer, Group, Post
from verification.ranks.results import RankResult
from verification.ranks.tracing import read_trace
from verification.ranks.transport import decode
from verification.ranks.watchdog import look_at
from verification.ranks.worker import serve

_main_is_away = threading.Lock()  # held while one thread starts ranks without the main module
REAPING = 5.0  # seconds for the kernel and the fork server to report the end of a process that is gone


class World:
    """One process a rank, with process groups that stay. Made ready or not at all.

    ``reusable`` turns False where a task leaves the ranks in a state that could colour the next one: a rank died, hung
    or left, a collective failed, or the ranks of a group entered it unequally often.
    """

    def __init__(
        self, context: ForkServerContext, layout: Layout, *, megatron: bool, backend: str, deadline: float
    ) -> None:
        self.reusable = True
        self._folder = Path(tempfile.mkdtemp(prefix="relax-ranks-"))
        self._posts = [Post(rank, layout, megatron, backend, self._folder) for rank in range(layout.world)]
        self._processes: list[ForkServerProcess] = []
        self._connections: list[Connection] = []
        try:
            with _without_main():
                for post in self._posts:
                    self._start(context, post)
            for joined in self._results(deadline):
                if joined.ended != "value":  # the others wait for it in vain
                    message = f"a world of layout {layout.name} over {backend} could not start"
                    raise RuntimeError(f"{message}\n{joined.describe()}")
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids, in order of rank."""
        return tuple(process.pid or 0 for process in self._processes)

    def is_alive(self) -> bool:
        """Whether every process still runs."""
        return all(process.is_alive() for process in self._processes)

    def run(self, tasks: Sequence[bytes], deadline: float) -> tuple[RankResult, ...]:
        """Gives each rank its encoded task, and waits for all of them, ``deadline`` seconds at most."""
        for connection, task in zip(self._connections, tasks, strict=True):
            try:
                connection.send_bytes(task)
            except OSError:
                self.reusable = False  # the rank is gone, which will be its result
        return tuple(sorted(self._results(deadline), key=lambda result: result.rank))

    def stop(self) -> None:
        """Kills what was started, by process id, and removes what it left."""
        for process in self._processes:
            if process.pid is not None:
                process.kill()
        for process in self._processes:
            if process.pid is not None:
                process.join(REAPING)
        for connection in self._connections:
            connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, context: ForkServerContext, post: Post) -> None:
        ours, theirs = context.Pipe()
        self._connections.append(ours)
        process = context.Process(target=serve, args=(post, theirs), name=f"rank {post.rank}", daemon=True)
        self._processes.append(process)
        process.start()
        theirs.close()

    def _results(self, deadline: float) -> Iterator[RankResult]:
        """Each rank's result as it comes in; after the deadline those of the ranks that gave no answer."""
        until = time.monotonic() + deadline
        waiting = {connection: rank for rank, connection in enumerate(self._connections)}
        by_group: dict[int, Mapping[Group, int]] = {}
        while waiting and (left := until - time.monotonic()) > 0:
            for connection in wait(list(waiting), left):
                assert isinstance(connection, Connection)
                rank = waiting.pop(connection)
                try:
                    answer: Answer = decode(connection.recv_bytes())
                except (EOFError, OSError):
                    yield self._died(rank)
                    continue
                by_group[rank] = answer.by_group
                self.reusable &= not answer.broken
                yield answer.result
        self.reusable &= len(by_group) == len(self._posts) and _in_step(by_group)
        for rank in waiting.values():
            yield look_at(self._posts[rank], self.pids[rank])

    def _died(self, rank: int) -> RankResult:
        process = self._processes[rank]
        process.join(REAPING)
        trace = read_trace(self._posts[rank].trace)
        return RankResult(rank, died=_how(process.exitcode), collectives=trace.entered, fault_fired=trace.fault_fired)


def _how(exit_code: int | None) -> str:
    if exit_code is None:
        return "closed its connection"
    return signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"


def _in_step(by_group: Mapping[int, Mapping[Group, int]]) -> bool:
    """Whether all ranks of each group entered equally many collectives of it."""
    groups = {group for counts in by_group.values() for group in counts}
    return all(len({by_group[rank].get(group, 0) for rank in group}) == 1 for group in groups)


@contextmanager
def _without_main() -> Iterator[None]:
    """Starts processes that do not run the main script again: a rank needs nothing of it, and it may lack a guard."""
    with _main_is_away:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main
