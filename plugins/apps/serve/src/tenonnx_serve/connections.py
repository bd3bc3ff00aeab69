"""Limits of connections: their number, and timeouts for headers, bodies and idling."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Maximum number of connections. Further ones are closed unread.
MOST = 64

#: Seconds for the headers of a request, and for each chunk of its body.
HEADERS, BODY = 10.0, 60.0

#: Seconds that a connection may be idle between requests.
IDLE = 15


class LimitedProtocol(H11Protocol):
    """HTTP protocol for unauthenticated clients, as the token is checked only once the headers are read."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST:
            transport.abort()
            return
        self._wait(HEADERS)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            if self._timer is None:  # one timeout for all headers together
                self._wait(HEADERS)
        elif self.cycle.more_body:
            self._wait(BODY)
        else:
            self._stop()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _wait(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
