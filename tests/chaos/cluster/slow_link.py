"""Holds up the packets that a host gets, each by a time of its own, so that some overtake others.

    python -m tests.chaos.cluster.slow_link QUEUE DELAY_MS JITTER_MS SEED

The kernel hands packets over by iptables' target NFQUEUE and waits for a verdict on each; only
their numbers come here, over nfnetlink (linux/netfilter/nfnetlink_queue.h). Ends when it is killed.
"""

from __future__ import annotations

import heapq
import random
import socket
import struct
import sys
import time

_NETLINK_NETFILTER = 12
_SUBSYSTEM_QUEUE = 3 << 8
_PACKET, _VERDICT, _CONFIG = (_SUBSYSTEM_QUEUE | kind for kind in (0, 1, 2))
_REQUEST = 1

_ATTRIBUTE_PACKET_HEADER = 1
_ATTRIBUTE_VERDICT = 2
_CONFIG_COMMAND, _CONFIG_PARAMETERS, _CONFIG_QUEUE_LENGTH_MAX = 1, 2, 3
_BIND = 1
_COPY_META = 1
_ACCEPT = 1

_PACKETS_HELD_MAX = 20_000
_RECEIVE_BYTES = 1 << 16

_MESSAGE = struct.Struct("=IHHII")
_FAMILY = struct.Struct(">BBH")
_ATTRIBUTE = struct.Struct("=HH")


class PacketQueue:
    """A queue of the kernel's netfilter, held by this process."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self.socket.bind((0, 0))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._send(_CONFIG, _CONFIG_COMMAND, struct.pack(">BBH", _BIND, 0, socket.AF_INET))
        self._send(_CONFIG, _CONFIG_PARAMETERS, struct.pack(">IB", 0, _COPY_META))
        self._send(_CONFIG, _CONFIG_QUEUE_LENGTH_MAX, struct.pack(">I", _PACKETS_HELD_MAX))

    def packets(self, timeout_s: float) -> list[bytes]:
        """The numbers of packets that have come, as the kernel writes them."""
        self.socket.settimeout(max(timeout_s, 0.0005))
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except (TimeoutError, BlockingIOError):
            return []
        except OSError:
            return []  # too many at once: the kernel has dropped some, as a network does
        found = []
        at = 0
        while at + _MESSAGE.size <= len(data):
            size, kind, *_ = _MESSAGE.unpack_from(data, at)
            if kind == _PACKET:
                found.append(_packet_number(data[at + _MESSAGE.size + _FAMILY.size : at + size]))
            at += (size + 3) & ~3
        return found

    def accept(self, packet: bytes) -> None:
        self._send(_VERDICT, _ATTRIBUTE_VERDICT, struct.pack(">I", _ACCEPT) + packet)

    def _send(self, kind: int, attribute: int, value: bytes) -> None:
        padded = value + bytes(-len(value) % 4)
        body = _FAMILY.pack(0, 0, self._number)
        body += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), attribute) + padded
        self.socket.send(_MESSAGE.pack(_MESSAGE.size + len(body), kind, _REQUEST, 0, 0) + body)


def _packet_number(attributes: bytes) -> bytes:
    at = 0
    while at + _ATTRIBUTE.size <= len(attributes):
        size, kind = _ATTRIBUTE.unpack_from(attributes, at)
        if kind & 0x7FFF == _ATTRIBUTE_PACKET_HEADER:
            return attributes[at + _ATTRIBUTE.size : at + _ATTRIBUTE.size + 4]
        at += (size + 3) & ~3
    raise ValueError("the kernel handed over a packet without a number")


def hold_up(queue: PacketQueue, delay_ms: int, jitter_ms: int, rng: random.Random) -> None:
    """Goes on for ever."""
    held: list[tuple[float, bytes]] = []
    while True:
        wait_s = held[0][0] - time.monotonic() if held else 1.0
        for packet in queue.packets(wait_s):
            heapq.heappush(
                held, (time.monotonic() + (delay_ms + rng.uniform(0, jitter_ms)) / 1000, packet)
            )
        now = time.monotonic()
        while held and held[0][0] <= now:
            queue.accept(heapq.heappop(held)[1])


def main() -> None:
    number, delay_ms, jitter_ms, seed = map(int, sys.argv[1:5])
    queue = PacketQueue(number)
    sys.stdout.write("\n")
    sys.stdout.flush()
    hold_up(queue, delay_ms, jitter_ms, random.Random(seed))


if __name__ == "__main__":
    main()
