"""Publish moving pictures: a ball that bounces, as PNG files written by hand.

    .venv/bin/python examples/player/make_frames.py moqt://127.0.0.1:33435 demo frames

Each picture is a group of its own, so that a viewer may begin with any of them.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import sys
import zlib

import laps
from laps.errors import LapsError

WIDTH, HEIGHT, RADIUS = 320, 180, 18
SKY = (18, 48, 79)
BALL = (255, 176, 32)


def main() -> None:
    """Publish until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Publish moving pictures to a relay.")
    parser.add_argument("url", help="the relay, like moqt://127.0.0.1:33435")
    parser.add_argument("namespace", nargs="?", default="demo")
    parser.add_argument("track", nargs="?", default="frames")
    parser.add_argument("--rate", type=float, default=10, help="pictures in a second (10)")
    args = parser.parse_args()
    try:
        asyncio.run(publish(args.url, args.namespace, args.track, args.rate))
    except KeyboardInterrupt:
        pass
    except LapsError as error:
        sys.exit(f"make_frames: {error}")


async def publish(url: str, namespace: str, name: str, rate: float) -> None:
    """Publish one picture after the other."""
    async with laps.connect(url) as session:
        track = await session.publish(namespace, name)
        sys.stdout.write(f"publishing {namespace} {name} until Ctrl-C\n")
        sys.stdout.flush()
        number = 0
        while True:
            await track.write(picture(number), new_group=True)
            number += 1
            await asyncio.sleep(1 / rate)


def picture(number: int) -> bytes:
    """The picture of that number: a PNG with the ball where it is by then."""
    x, y = ball(number)
    sky = bytes(SKY) * WIDTH
    rows = []
    for row in range(HEIGHT):
        half = round(max(0, RADIUS**2 - (row - y) ** 2) ** 0.5)
        left, right = (x - half) * 3, (x + half) * 3
        rows.append(sky[:left] + bytes(BALL) * (2 * half) + sky[right:])
    return png(WIDTH, HEIGHT, rows)


def ball(number: int) -> tuple[int, int]:
    """Where the ball is: it moves by a few pixels each time, and bounces off the edges."""
    return bounce(number * 7, WIDTH - 2 * RADIUS), bounce(number * 4, HEIGHT - 2 * RADIUS)


def bounce(distance: int, room: int) -> int:
    """How far from the first edge something is that has gone to and fro."""
    there = distance % (2 * room)
    return RADIUS + (there if there <= room else 2 * room - there)


# PNG
# signature(8) | chunk, …
#
# chunk
# length of the data(4) | kind(4) | data | CRC-32 of kind and data(4)


def png(width: int, height: int, rows: list[bytes]) -> bytes:
    """A PNG of rows of red, green and blue bytes."""
    # 8 bits for each of three colours; each row begins with the filter it has been through: none.
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(b"\x00" + row for row in rows), 1)
    chunks = ((b"IHDR", head), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in chunks)


def chunk(kind: bytes, data: bytes) -> bytes:
    """One part of a PNG."""
    check = zlib.crc32(kind + data)
    return b"".join((struct.pack(">I", len(data)), kind, data, struct.pack(">I", check)))


if __name__ == "__main__":
    main()
