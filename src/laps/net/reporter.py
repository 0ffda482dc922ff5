"""The timer of a relay's telemetry: a round a second, in slices that nobody notices."""

from __future__ import annotations

import asyncio
import logging
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from laps.edge.telemetry import Telemetry, TelemetrySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laps.config import Config, TelemetryConfig
    from laps.edge.edge import Edge
    from laps.relay.ports import Senses
    from laps.relay.relay import Relay

log = logging.getLogger(__name__)

# After this long whatever has come meanwhile has its turn: what passes a relay is delayed by no
# more, and a step of a round takes half of it at most.
SLICE_S: Final = 0.001


class Reporter:
    """Has a relay speak of itself, while it is to."""

    def __init__(
        self,
        relay: Relay,
        edge: Edge,
        senses: Senses,
        config: Config,
        touched: Callable[[], None],
    ) -> None:
        """`touched` is called when the relay may have changed its mind about the time."""
        self._node = config.node
        self.telemetry = Telemetry(relay, edge, senses, self._settings(config.telemetry))
        self.worked_s = 0.0
        "Processor time that rounds have taken."
        self._relay = relay
        self._touched = touched
        self._loop = asyncio.get_running_loop()
        self._interval_s = config.telemetry.interval_s
        self._due_at = 0.0
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._round: Iterator[None] | None = None
        if config.telemetry.enabled:
            self._start()

    def configure(self, config: TelemetryConfig) -> None:
        """Take a changed configuration."""
        waits = self._timer is not None and self._round is None
        is_other, self._interval_s = config.interval_s != self._interval_s, config.interval_s
        self.telemetry.configure(self._settings(config))
        if config.enabled and not self.telemetry.running:
            self._start()
        elif not config.enabled and self.telemetry.running:
            self._halt()
            self.telemetry.stop(time.monotonic(), "the relay's operator has turned it off")
            self._touched()
        elif is_other and waits:
            self._halt()
            self._due_at = time.monotonic()
            self._wait()

    def leave(self) -> None:
        """The relay stops: say the last that there is to say, at once."""
        if self.telemetry.running:
            self._finish_round()
            self._begin_round()
            self._finish_round()
            self._halt()
            self.telemetry.leave(time.monotonic())
            self._touched()

    def _settings(self, config: TelemetryConfig) -> TelemetrySettings:
        node = self._node
        return TelemetrySettings(
            config.history_s,
            config.history_bytes,
            node.region,
            node.capacity_bps,
            version("laps"),
        )

    # -- rounds ------------------------------------------------------------------------------------

    def _start(self) -> None:
        self.telemetry.start(time.monotonic(), _wall_us())
        self._due_at = time.monotonic()
        self._wait()
        self._touched()

    def _halt(self) -> None:
        self._round = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        """Until the next round is due; those that were missed are left out."""
        now = time.monotonic()
        self._due_at = max(self._due_at + self._interval_s, now)
        self._timer = self._loop.call_later(self._due_at - now, self._due)

    def _due(self) -> None:
        self._begin_round()
        self._go_on()

    def _begin_round(self) -> None:
        self._round = self.telemetry.round(time.monotonic(), _wall_us())

    def _finish_round(self) -> None:
        while self._round is not None:
            self._step(float("inf"))

    def _go_on(self) -> None:
        self._step(SLICE_S)
        if self._round is not None:
            self._timer = self._loop.call_soon(self._go_on)
        else:
            self._wait()
            self._touched()

    def _step(self, limit_s: float) -> None:
        began_at, began_s = time.monotonic(), time.thread_time()
        try:
            for _ in self._round or ():
                if time.monotonic() - began_at >= limit_s:
                    return
            self._round = None
        except Exception:
            # A defect of ours: the relay goes on, and so does the next round.
            log.exception("the relay failed to tell of itself")
            self._round = None
        finally:
            self.worked_s += time.thread_time() - began_s


def _wall_us() -> int:
    return time.time_ns() // 1000
