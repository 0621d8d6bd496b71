"""A node as a process of the operating system."""

from __future__ import annotations

import gc
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError
from tidelog.server.node import Node
from tidelog.server.structured_logs import capture_logging
from tidelog.world.operating_system import OperatingSystem

if TYPE_CHECKING:
    from tidelog.server.configuration.node_config import NodeConfig

_SWITCH_INTERVAL_S = 0.001


class StartError(TidelogError):
    """The operating system, or a disk, refused what the node needs."""


def run_node(
    config: NodeConfig,
    *,
    on_ready: Callable[[Node], None] | None = None,
    handle_signals: bool = True,
) -> None:
    """Start a node and serve until it is told to stop.

    `on_ready` is called when the node serves clients: at once where it is the whole quorum, else
    when the controller has let it in. With `handle_signals` (main thread only) SIGTERM and SIGINT
    shut the node down cleanly, a second one changes nothing, and the process is made fit to serve
    many clients.
    """
    node = Node(config, OperatingSystem())
    if on_ready is not None:
        node.on_ready = partial(on_ready, node)
    if handle_signals:
        _prepare_process(node)
    with capture_logging(node.log):
        try:
            node.start()
        except OSError as error:
            raise StartError(f"the node cannot start: {error}") from error
        node.run()


def _prepare_process(node: Node) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: node.request_stop())
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    # What the hot path makes is freed by counting references; the collector only has to find
    # the few cycles, and looking for them often costs a tenth of the throughput.
    gc.set_threshold(50_000, 20, 100)
    # The journal's thread is to get its turn while the loop is busy: most wait for its sync.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
