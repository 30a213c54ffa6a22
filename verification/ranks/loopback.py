"""Gloo on the loopback interface, with one device for all groups of a process.

By itself every group makes a device: a listening socket, and a thread that wakes up a hundred times a second for as
long as the group exists. A rank of megatron has some twenty groups, so that a dozen idle ranks would take half a core.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

from torch.distributed import ProcessGroupGloo


def use_loopback() -> None:
    """From now on the gloo groups of this process share a device on the loopback interface."""
    found = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if found:
        interface = found.pop()
        os.environ["GLOO_SOCKET_IFNAME"] = interface  # for whoever makes a device without asking here
        device = ProcessGroupGloo.create_device(interface=interface)
    else:
        device = ProcessGroupGloo.create_device(hostname="127.0.0.1")
    original = ProcessGroupGloo.__init__

    def init(
        self: Any, store: Any, rank: int, size: int, options: Any = None, timeout: timedelta | None = None
    ) -> None:
        if options is None:  # else its maker has chosen a device
            options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
            options._devices = [device]
            if timeout is not None:
                options._timeout = timeout
        original(self, store, rank, size, options)

    ProcessGroupGloo.__init__ = init  # type: ignore[assignment, method-assign]
