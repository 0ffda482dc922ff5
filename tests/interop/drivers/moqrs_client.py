"""moq-rs: `moqrs_client.py publish|subscribe URL SETTINGS`, in an environment of its own.

Over `moqt:` it offers every draft it knows in the handshake and speaks the one that the relay
takes; nothing on our side can narrow that.
"""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, TypeVar

import moq

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


def say(event: str, **what: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **what}) + "\n")
    sys.stdout.flush()


async def told(word: str) -> None:
    while await asyncio.to_thread(sys.stdin.readline) != f"{word}\n":
        pass


def connect(url: str, settings: dict[str, str]) -> moq.Client:
    pinned = [settings["fingerprint"]]
    return moq.Client(url, tls_fingerprints=pinned, websocket_enabled=False, reconnect=False)


async def unless_closed(client: moq.Client, coming: Awaitable[T]) -> T:
    """What comes, or the error with which the session was closed."""
    closed, wanted = (asyncio.ensure_future(it) for it in (client.session.closed(), coming))
    try:
        await asyncio.wait((closed, wanted), return_when=asyncio.FIRST_COMPLETED)
        if not wanted.done():
            await closed
        found: T = await wanted
        return found
    finally:
        closed.cancel()
        wanted.cancel()


async def publish(url: str, settings: dict[str, str]) -> None:
    async with connect(url, settings) as client:
        broadcast = client.create_broadcast(settings["namespace"])
        track = broadcast.publish_track(settings["track"])
        broadcast.announce()
        say("announced")
        await track.used()
        say("demand")
        for group_id, payloads in enumerate(json.loads(settings["groups"])):
            await told("go")
            group = track.append_group()
            for payload in payloads:
                group.write_frame(payload.encode(), timestamp_us=1000 * group_id)
            group.finish()
        await told("finish")
        track.finish()
        await told("close")
        broadcast.close()
        await asyncio.Event().wait()


async def subscribe(url: str, settings: dict[str, str]) -> None:
    async with connect(url, settings) as client:
        say("connected")
        # It subscribes to nothing that was not announced to it. A session that was closed before it
        # asks leaves it waiting for good, so that it has to listen for that too.
        broadcast = await unless_closed(
            client, client.announced_broadcast(settings["namespace"]).available()
        )
        say("available")
        track = await broadcast.subscribe_track(settings["track"])
        say("subscribed")
        async for group in track:
            async for frame in group:
                say("object", group=group.sequence, payload=frame.payload.decode())
        say("end")
        async for route in client.announced(settings["namespace"]):
            if not route.active:
                say("withdrawn")
                return


async def main(role: str, url: str, settings: dict[str, str]) -> None:
    try:
        await {"publish": publish, "subscribe": subscribe}[role](url, settings)
    except moq.Error as error:
        say("error", text=repr(error))


moq.log_level("error")
asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
