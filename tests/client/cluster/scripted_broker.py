"""A peer that speaks the protocol and answers as a test says, for what no broker does on demand."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.protocol.headers import decode_request, encode_response
from tidelog.protocol.schema import Message

Answer = Callable[[Any], Message | None]


class ScriptedBroker:
    """Listens on the loopback until the `with` block ends.

    `answers` makes the response of each request, or None to end the connection; `versions` limits
    what an API offers.
    """

    def __init__(
        self,
        answers: Mapping[ApiKey, Answer],
        versions: Mapping[ApiKey, tuple[int, int]],
    ) -> None:
        self._answers = {ApiKey.API_VERSIONS: self._tell_versions, **answers}
        self._versions = {ApiKey.API_VERSIONS: (0, 3), **versions}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepted: list[socket.socket] = []
        self._is_stopped = False
        self.client_ids: set[str | None] = set()
        self.versions_asked: dict[ApiKey, set[int]] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> ScriptedBroker:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuse connections and end those that are open, as a broker that is gone; idempotent."""
        if self._is_stopped:
            return
        self._is_stopped = True
        # Threads that wait in accept and read are woken by this, not by close.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._accepted:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _tell_versions(self, _: Message) -> ApiVersionsResponse:
        rows = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self._versions.items()
        ]
        return ApiVersionsResponse(api_keys=rows)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._accepted.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # A client, or this broker, that ends the connection is no failure.
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            while len(prefix := stream.read(4)) == 4:
                header, request = decode_request(stream.read(struct.unpack(">i", prefix)[0]))
                self.client_ids.add(header.client_id)
                api_key = ApiKey(header.api_key)
                self.versions_asked.setdefault(api_key, set()).add(header.api_version)
                answer = self._answers[api_key](request)
                if answer is None:
                    return
                connection.sendall(
                    encode_response(
                        header.api_key, header.api_version, header.correlation_id, answer
                    )
                )
