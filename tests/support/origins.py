"""A relay in memory whose names belong to origins, with a test for their servers.

stage = OriginStage()
app = stage.quicr()
media = app.subscribe("media.example/t")
stage.questions()                    # [{"action": "subscribe", "track": "t", …}]
stage.answer(allow=True, keep_s=60)
media.replies                        # [ok]
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from laps.auth.origin_api import CallFailed
from laps.auth.origins import Origin, OriginApi, Origins
from laps.edge.authority import Authority
from laps.wire.moqt.dialect import DRAFT16
from support.moqt import MoqtNet
from support.quicr import QuicrApp
from support.tokens import NOW

if TYPE_CHECKING:
    from laps.auth.judge import Verifier
    from laps.edge.asking import Call, OriginCounters
    from laps.wire.moqt.dialect import Dialect
    from support.moqt import App

MEDIA = "media.example"


def origin(name: str = MEDIA, *more: str, ids: tuple[str, ...] = (), **api: Any) -> Origin:
    """An origin that is asked, with these namespaces besides its name."""
    namespaces = tuple(tuple(part.encode() for part in it.split("/")) for it in (name, *more))
    return Origin(name, namespaces, ids, OriginApi(f"https://{name}/laps", **api))


class OriginStage:
    """A relay whose names belong to origins."""

    def __init__(
        self,
        *origins: Origin,
        dialect: Dialect = DRAFT16,
        verifier: Verifier | None = None,
        **settings: Any,
    ) -> None:
        self.net = MoqtNet()
        self.relay = self.net.relay("1:1")
        self.authority = Authority(verifier)
        self.authority.wall_s = NOW - self.net.now
        self.configure(*(origins or (origin(),)))
        self.edge = self.net.edge(self.relay, self.authority, **settings)
        self.dialect = dialect
        self.calls: list[Call] = []
        "Those that were not answered yet."

    def configure(self, *origins: Origin) -> None:
        """As SIGHUP does."""
        self.authority.decisions.forget()
        self.authority.origins = Origins(origins)

    def review(self) -> None:
        """Whether all may go on, as after SIGHUP."""
        self.edge.reviews.all(self.net.now)
        self.edge.perform(self.net.now)
        self.net.run()

    def quicr(self) -> QuicrApp:
        return QuicrApp(self.net, self.relay)

    def moqt(self, **setup: Any) -> App:
        app = self.net.app(self.relay, self.dialect, setup=False)
        return app.start(**setup)

    @property
    def counters(self) -> OriginCounters:
        return self.edge.origins.counters[MEDIA]

    # -- what its origins do -----------------------------------------------------------------------

    def take(self) -> list[Call]:
        """What the shell is to ask, all that was not answered yet."""
        asked = self.edge.origins.asked
        while asked:
            self.calls.append(asked.popleft())
        return self.calls

    def questions(self) -> list[dict[str, Any]]:
        return [json.loads(call.body) for call in self.take()]

    def answer(self, number: int = 0, **fields: Any) -> None:
        """The origin answers one of the questions."""
        self.hear(number, json.dumps(fields).encode())

    def fail(self, number: int = 0, words: str = "broken", **fields: bool) -> None:
        self.hear(number, CallFailed(words, **fields))

    def hear(self, number: int, result: bytes | CallFailed) -> None:
        call = self.take().pop(number)
        self.edge.origins.answered(call.id, result, self.net.now)
        self.net.run()

    def answer_all(self, **fields: Any) -> int:
        """Answer whatever is asked, also what is asked for that; how many there were."""
        count = 0
        while self.take():
            self.answer(**fields)
            count += 1
        return count
