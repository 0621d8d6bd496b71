"""A connection to a node on the same machine that hands over files in place of records.

A node that does so tells the name of its Unix socket among its settings. The socket speaks the same
protocol; only, where an answer over TCP has records it has a `FileReference` here, and the file
that it means arrives with it.
"""

import mmap
import os
import socket
import sys
from array import array
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Self

from tidelog.client.cluster.connection import WireConnection
from tidelog.client.errors import ConnectError, NotServedError
from tidelog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.protocol.file_reference import (
    LOCAL_READS_SOCKET,
    FileReference,
    decode_file_reference,
)

_BROKER = 4
_FILES_MAX = 64
_DESCRIPTOR_BYTES = array("i").itemsize
_CREDENTIALS = Struct("iII")
_ROOT = 0
# Which Python does not name yet.
_MADV_POPULATE_READ = 22


class LocalConnection(WireConnection):
    """A connection over a node's Unix socket, with the files that came along with its answers."""

    def __init__(self, sock: socket.socket, address: str, *, client_id: str) -> None:
        self._files: deque[int] = deque()
        super().__init__(sock, address, client_id=client_id)

    @classmethod
    def open_local(cls, address: str, *, client_id: str, timeout_s: float = 10.0) -> Self:
        """Connect to `@name`, if the same user or root listens there."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        try:
            sock.connect(f"\0{address.removeprefix('@')}")
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError as error:
            sock.close()
            raise ConnectError(f"no broker answers at {address}: {error}") from error
        _, user_id, _ = _CREDENTIALS.unpack(raw)
        if user_id not in (os.geteuid(), _ROOT):
            sock.close()
            raise ConnectError(f"{address} belongs to another user")
        return cls(sock, address, client_id=client_id)

    def resolve(
        self, records: memoryview, allocate: Callable[[int], bytearray | memoryview]
    ) -> memoryview:
        """The records that an answer has, or that its next file has if it refers to one.

        Answers are resolved in the order in which they come. `allocate` gives room for records
        that have to be copied.
        """
        reference = decode_file_reference(records)
        if reference is None:
            return records
        if not self._files:
            raise ConnectError(f"{self.address} sent no file with its answer")
        fd = self._files.popleft()
        try:
            return read_range(fd, reference, allocate)
        except OSError as error:
            raise ConnectError(f"a file of {self.address} cannot be read: {error}") from error
        finally:
            os.close(fd)

    def close(self) -> None:
        super().close()
        while self._files:
            os.close(self._files.popleft())

    def _receive_some(self, view: memoryview) -> int:
        received, ancillary, flags, _ = self._socket.recvmsg_into(
            (view,), socket.CMSG_SPACE(_FILES_MAX * _DESCRIPTOR_BYTES), socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._files.extend(array("i", data[: len(data) - len(data) % _DESCRIPTOR_BYTES]))
        if flags & socket.MSG_CTRUNC:
            raise ConnectError(f"{self.address}: this process cannot take more files")
        if not received:
            raise ConnectError(f"{self.address} closed the connection")
        return received


def find_local_address(connection: WireConnection, node_id: int) -> str | None:
    """Where the node behind a connection hands over files; None if it does not, or is no Tidelog.

    A machine that is not the node's has nobody listening there.
    """
    if not sys.platform.startswith("linux"):
        return None
    resource = DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(node_id), configuration_keys=[LOCAL_READS_SOCKET]
    )
    try:
        answer = connection.call(
            DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse
        )
    except NotServedError:
        return None
    for result in answer.results:
        for each in result.configs:
            if each.name == LOCAL_READS_SOCKET and each.value and each.value.startswith("@"):
                return each.value
    return None


def read_range(
    fd: int, reference: FileReference, allocate: Callable[[int], bytearray | memoryview]
) -> memoryview:
    """The bytes of a range of a file: mapped where that is safe, else copied to what is allocated.

    All pages are brought in first, so that a disk that fails is an error here and not the end of
    the process at the first touch. Kernels before Linux 5.14 cannot do that.
    """
    position, size_bytes = reference
    begin = position - position % mmap.ALLOCATIONGRANULARITY
    try:
        mapped = mmap.mmap(fd, position + size_bytes - begin, prot=mmap.PROT_READ, offset=begin)
        mapped.madvise(_MADV_POPULATE_READ)
    except (OSError, ValueError):
        return _read(fd, position, memoryview(allocate(size_bytes)))
    return memoryview(mapped)[position - begin :]


def _read(fd: int, position: int, room: memoryview) -> memoryview:
    left = room
    while left:
        count = os.preadv(fd, (left,), position)
        if not count:
            raise OSError("it is shorter than the broker said")
        left = left[count:]
        position += count
    return room
