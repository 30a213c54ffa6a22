"""What a process that is to be killed does to the goldens of a small checkout; as a program, it forks one a line.

Started once, since importing torch takes longer than what the processes do. Lines in: a number to record, ``accept``,
or ``accept by renames``, which does without the exchange of two folders. Lines out: the process id, then ``done`` where
it was not killed, then ``ended``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from verification.cases.case import Case
from verification.goldens import exchange
from verification.goldens.changes import accept
from verification.goldens.guard import permit
from verification.goldens.locked import locked
from verification.goldens.staging import record, staged, staged_recording
from verification.goldens.twice import in_process
from verification.revisions.checkout import Checkout
from verification.subjects.outcome import Outcome

BY_RENAMES = "accept by renames"
COUNT = 60  # goldens: enough that a kill meets a copy or a deletion half done


class Value:
    """A subject that gives one number on every case."""

    name = "value"

    def __init__(self, value: float) -> None:
        self.value = value

    def run(self, case: Case) -> Outcome:
        return Outcome(arrays={"loss": torch.tensor(self.value)})


def work(checkout: Checkout, line: str) -> None:
    """Records one number for every case, or accepts what is staged."""
    with locked(checkout):
        granted = permit(checkout, "HEAD", ignore="golden", environment={})
        if line.startswith("accept"):
            if line == BY_RENAMES:
                exchange._exchanged = lambda one, other: False
            accept(granted, staged(checkout), staged_recording(checkout), ())
        else:
            names = [f"loss.reduce/grpo/n{i}" for i in range(COUNT)]
            cases = [Case(name, "loss.reduce", "grpo", {"values": [name]}) for name in names]
            record(granted, cases, in_process(Value(float(line))))


def main() -> None:
    """Forks for each line of standard input."""
    checkout = Checkout(Path(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            print(os.getpid(), flush=True)
            work(checkout, line.strip())
            print("done", flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main()
