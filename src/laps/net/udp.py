"""A UDP socket that takes and gives datagrams by the batch (recvmmsg, GRO and GSO on Linux)."""

from __future__ import annotations

import errno
import logging
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from qh3._hazmat import UdpSocketState

from laps.errors import ListenError
from laps.types import Address

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from laps.net.handshake import Address as SocketAddress

log = logging.getLogger(__name__)

# Linux: set the size beyond net.core.[rw]mem_max, for who may. Python names neither.
_SO_FORCE: Final = {socket.SO_RCVBUF: 33, socket.SO_SNDBUF: 32}

# What the network card or the path cannot segment is sent one datagram at a time from then on.
_NO_SEGMENTATION: Final = {errno.EIO, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOPROTOOPT}


def bind(host: str, port: int, buffer_bytes: int) -> socket.socket:
    """A UDP socket bound to the address, with kernel buffers of the size asked for if it may."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            grow_buffer(sock, option, buffer_bytes)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise ListenError(explain_bind(host, port, error)) from error
    return sock


def grow_buffer(sock: socket.socket, option: int, size: int) -> int:
    """Make a kernel buffer as large as allowed, up to `size`; return what it became.

    At the default of 208 KiB a burst over loopback loses packets that nothing else would.
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_FORCE[option], size)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, option, size)
    became = sock.getsockopt(socket.SOL_SOCKET, option) // 2  # Linux counts its own overhead in
    if became < size:
        log.info("a socket buffer is %d bytes, not %d: raise net.core.rmem_max", became, size)
    return became


def explain_bind(host: str, port: int, error: OSError) -> str:
    """Why an address cannot be listened on, and what to do."""
    where = Address(host, port)
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"{where} is in use: stop what listens there or choose another port (0: any free)"
            )
        case errno.EADDRNOTAVAIL:
            return (
                f"{where} is not an address of this machine: listen on one that is, or on 0.0.0.0"
            )
        case errno.EACCES:
            return f"{where} needs privileges: choose a port above 1023"
    if isinstance(error, socket.gaierror):
        return f"{where}: the host name is not known: {error.strerror}"
    return f"cannot listen on {where}: {error.strerror}"


class Probe:
    """Finds out that nobody listens at an address.

    The machine there answers with ICMP, which the kernel tells to a socket that is connected to
    the address. The one that dials many is not, and on one that is polled uvloop takes the error
    for the end of the socket: so this one is only looked at.
    """

    def __init__(self, addr: SocketAddress) -> None:
        self._sock = socket.socket(
            socket.AF_INET6 if ":" in addr[0] else socket.AF_INET, socket.SOCK_DGRAM
        )
        self._sock.setblocking(False)
        with suppress(OSError):  # no route: then nobody refuses
            self._sock.connect(addr)

    def send(self) -> None:
        """Send a byte that is no packet of QUIC: who listens drops it."""
        with suppress(OSError):
            self._sock.send(b"\0")

    def refused(self) -> bool:
        """Whether what was sent last was refused."""
        return self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED

    def close(self) -> None:
        """Free its port."""
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class UdpSocket:
    """The socket on an event loop: calls `readable`, and `writable` after it was `blocked`."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        readable: Callable[[], None],
        writable: Callable[[], None],
    ) -> None:
        self._sock = sock
        self._loop = loop
        self._writable = writable
        self._state = UdpSocketState(sock.fileno())
        self._unsent: deque[tuple[list[bytes], SocketAddress]] = deque()
        self.recv = self._state.recv
        self.errors = 0
        loop.add_reader(sock.fileno(), readable)

    @property
    def address(self) -> SocketAddress:
        """Where it is bound."""
        return self._sock.getsockname()  # type: ignore[no-any-return]

    def blocked(self) -> bool:
        """Whether the kernel takes no more for now; who sends anyway is queued without bound."""
        return bool(self._unsent)

    def send(self, datagrams: list[bytes], addr: SocketAddress) -> None:
        """Send datagrams to one address, in order; what cannot be sent at all is lost."""
        if self._unsent:
            self._unsent.append((datagrams, addr))
            return
        if rest := self._send(datagrams, addr):
            self._unsent.append((rest, addr))
            self._loop.add_writer(self._sock.fileno(), self._flush)

    def _send(self, datagrams: list[bytes], addr: SocketAddress) -> list[bytes]:
        """Send what goes; return what is to be tried again."""
        while datagrams:
            try:
                sent = self._state.send(datagrams, addr)
                return datagrams[sent:]
            except OSError as error:
                sent = getattr(error, "datagrams_sent", 0)
                datagrams = datagrams[sent:]
                if error.errno in _NO_SEGMENTATION and self._state.max_gso_segments > 1:
                    self._state.disable_gso()
                else:
                    # Too large for the path (a probe of its size), no route, a refusal by the
                    # other side: QUIC sees a loss and deals with it.
                    self.errors += 1
                    datagrams = datagrams[1:]
        return []

    def _flush(self) -> None:
        while self._unsent:
            datagrams, addr = self._unsent.popleft()
            if rest := self._send(datagrams, addr):
                self._unsent.appendleft((rest, addr))
                return
        self._loop.remove_writer(self._sock.fileno())
        self._writable()

    def close(self) -> None:
        """Leave the loop and free the port."""
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._unsent.clear()
        self._sock.close()
        del self._state, self.recv  # they hold a descriptor of the socket of their own
