"""aiomoqt: `aiomoqt_client.py publish|subscribe URL SETTINGS`, in an environment of its own.

Draft 14 over WebTransport: over raw QUIC it takes the head of every stream of objects for one
of WebTransport's, so there it can neither send nor read any.
"""
# mypy: disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any
from urllib.parse import urlsplit

from aiomoqt.client import MOQTClient
from aiomoqt.messages import (
    ObjectDatagram,
    PublishNamespaceOk,
    SubgroupHeader,
    Subscribe,
    SubscribeDone,
    SubscribeOk,
)
from aiomoqt.types import MOQTMessageType, SubscribeDoneCode
from aiomoqt.utils.logger import set_log_level

Settings = dict[str, str]


def say(event: str, **what: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **what}) + "\n")
    sys.stdout.flush()


async def told(word: str) -> None:
    while await asyncio.to_thread(sys.stdin.readline) != f"{word}\n":
        pass


def client(url: str) -> Any:
    parts = urlsplit(url)
    return MOQTClient(parts.hostname, parts.port, endpoint=parts.path[1:], verify_tls=False)


async def publish(url: str, settings: Settings) -> None:
    subscribed: asyncio.Queue[Any] = asyncio.Queue()

    async def take(session: Any, request: Subscribe) -> None:
        session.subscribe_ok(request_msg=request)
        subscribed.put_nowait(request)

    publisher = client(url)
    publisher.register_handler(MOQTMessageType.SUBSCRIBE, take)
    async with publisher.connect() as session:
        await session.client_session_init()
        answer = await session.publish_namespace(settings["namespace"], wait_response=True)
        assert isinstance(answer, PublishNamespaceOk), answer
        say("announced")
        request = await subscribed.get()
        assert request.track_name.decode() == settings["track"]
        say("demand")
        groups = json.loads(settings["groups"])
        send = send_datagrams if settings.get("sent_as") == "datagrams" else send_subgroup
        for group_id, payloads in enumerate(groups):
            await told("go")
            send(session, request.track_alias, group_id, payloads)
        await told("finish")
        done = SubscribeDone(
            request_id=request.request_id,
            status_code=SubscribeDoneCode.TRACK_ENDED,
            stream_count=0 if settings.get("sent_as") == "datagrams" else len(groups),
            reason="",
        )
        session.send_control_message(done.serialize())
        await told("close")
        session.publish_namespace_done(tuple(settings["namespace"].encode().split(b"/")))
        await session.async_closed()


def send_subgroup(session: Any, alias: int, group_id: int, payloads: list[str]) -> None:
    stream = session._h3.create_webtransport_stream(session._session_id, is_unidirectional=True)
    head = SubgroupHeader(track_alias=alias, group_id=group_id, end_of_group=True)
    session._quic.send_stream_data(stream, head.serialize().data)
    for payload in payloads:
        session._quic.send_stream_data(stream, head.next_object(payload.encode()).data)
    session._quic.send_stream_data(stream, b"", end_stream=True)
    session.transmit()


def send_datagrams(session: Any, alias: int, group_id: int, payloads: list[str]) -> None:
    for object_id, payload in enumerate(payloads):
        datagram = ObjectDatagram(alias, group_id, object_id, payload=payload.encode())
        # 0: the first request of the connection, a quarter of its stream's id.
        session._quic.send_datagram_frame(b"\0" + datagram.serialize().data)
    session.transmit()


async def subscribe(url: str, settings: Settings) -> None:
    expected = sum(len(payloads) for payloads in json.loads(settings["groups"]))
    came = asyncio.Semaphore(0)

    def take(message: Any, _size: int, _now: int, group: int, _subgroup: int | None) -> None:
        say("object", group=group, payload=message.payload.decode())
        came.release()

    async with client(url).connect() as session:
        session.on_object_received = take
        await session.client_session_init()
        say("connected")
        name = settings["namespace"], settings["track"]
        # What is published at one relay is known at another a little later.
        answer = await session.subscribe(*name, wait_response=True)
        while not isinstance(answer, SubscribeOk):
            await asyncio.sleep(0.05)
            answer = await session.subscribe(*name, wait_response=True)
        say("subscribed")
        # It keeps what it is told of a track's end to itself, so here the objects are counted.
        for _ in range(expected):
            await came.acquire()
        say("end")
        await session.async_closed()


async def main(role: str, url: str, settings: Settings) -> None:
    try:
        await {"publish": publish, "subscribe": subscribe}[role](url, settings)
    except Exception as error:
        say("error", text=repr(error))
        raise


set_log_level(logging.CRITICAL)
asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
