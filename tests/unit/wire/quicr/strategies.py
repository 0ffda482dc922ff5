"""Messages, datagrams and fragments as Hypothesis makes them up."""

from __future__ import annotations

from hypothesis import strategies as st

from laps.types import Location
from laps.wire.buffer import VARINT_MAX
from laps.wire.quicr import messages as m
from laps.wire.quicr.fragments import cut

# Where a var-int takes more bytes than the one before.
EDGES = [0, 1, 63, 64, (1 << 14) - 1, 1 << 14, (1 << 30) - 1, 1 << 30, VARINT_MAX - 1, VARINT_MAX]

varints = st.one_of(st.integers(0, 200), st.sampled_from(EDGES), st.integers(0, VARINT_MAX))
offsets = varints.map(lambda number: number >> 1)
names = st.one_of(st.binary(max_size=20), st.binary(min_size=16, max_size=16))
locations = st.builds(Location, varints, varints)
words = st.text(max_size=30)
payloads = st.binary(max_size=40)
stream_ids = st.none() | varints

fragments = st.builds(m.Fragment, varints, varints, offsets, payloads, st.booleans())

messages: st.SearchStrategy[m.Message] = st.one_of(
    st.builds(m.Subscribe, names, st.integers(0, 255), st.sampled_from(list(m.Intent)), stream_ids),
    st.builds(m.SubscribeReply, st.sampled_from(list(m.Response)), words),
    st.builds(m.PublishIntent, names, st.booleans()),
    st.builds(m.PublishIntentOk, stream_ids),
    st.builds(m.StartPoint, locations),
    fragments,
    st.builds(m.Fin, locations),
    st.builds(m.SubscribeCancel, names, words),
    st.builds(m.RelayRedirect, words),
    st.builds(m.Authorization, payloads, varints, st.sampled_from(list(m.Holds))),
)

terms = st.builds(m.Terms, varints, st.integers(0, 7), st.booleans(), varints)


@st.composite
def datagrams(draw: st.DrawFn) -> m.Datagram:
    fragment = draw(fragments)
    # The end of a fragment is an offset too.
    fragment.offset = min(fragment.offset, (VARINT_MAX >> 1) - len(fragment.data))
    said = draw(terms)
    if fragment.object_id or fragment.offset:
        said.objects_before = 0
    return m.Datagram(draw(varints), fragment, said)


@st.composite
def pieces(draw: st.DrawFn, payload: bytes) -> list[m.Fragment]:
    """An object in one or more cuts of it, and others, any number of times, in any order."""
    found: list[m.Fragment] = []
    places = st.integers(0, len(payload))
    for span in draw(st.lists(st.tuples(places, places), max_size=3)):
        start, end = sorted(span)
        # Who sends as it reads may know of the end behind the last byte only.
        last = end == len(payload) and draw(st.booleans())
        found.append(m.Fragment(3, 5, start, payload[start:end], last))
    for size in draw(st.lists(st.integers(1, len(payload) + 1), min_size=1, max_size=3)):
        found += cut(3, 5, payload, size)
    found += draw(st.lists(st.sampled_from(found), max_size=4))
    return draw(st.permutations(found))


@st.composite
def cuts(draw: st.DrawFn, size: int) -> list[int]:
    """Where a stream of that size is cut into chunks."""
    return sorted(draw(st.lists(st.integers(0, size), max_size=8)))


def chunked(data: bytes, places: list[int]) -> list[bytes]:
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
