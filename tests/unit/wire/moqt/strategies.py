"""Messages and objects as Hypothesis makes them up, each as a draft can say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from laps.types import Location, TrackName
from laps.wire.buffer import VARINT_MAX
from laps.wire.moqt import messages as m
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.codes14 import done_code_from_14, request_code_from_14
from laps.wire.moqt.fetch import EndOfRange
from laps.wire.moqt.keyvalues import encode_pairs
from laps.wire.moqt.objects import Object

if TYPE_CHECKING:
    from laps.names import Namespace

varints = st.one_of(st.integers(0, 200), st.integers(0, VARINT_MAX))
# Above the numbers of draft 14 and the codes of draft 16, so that they pass through.
foreign_codes = st.integers(0x100, VARINT_MAX)
few = st.integers(0, 3)
bytes_ = st.binary(max_size=20)
positive = st.integers(1, VARINT_MAX)
priorities = st.integers(0, 255)
orders = st.sampled_from(m.GroupOrder)
decided = st.sampled_from([m.GroupOrder.ASCENDING, m.GroupOrder.DESCENDING])
locations = st.builds(Location, varints, varints)
reasons = st.text(max_size=30)
maybe_location = st.none() | locations


def namespaces(draft: int, least: int = 1) -> st.SearchStrategy[Namespace]:
    fields = st.binary(min_size=0 if draft == 14 else 1, max_size=8)
    return st.lists(fields, min_size=least, max_size=32).map(tuple)


def tracks(draft: int) -> st.SearchStrategy[TrackName]:
    return st.builds(TrackName, namespaces(draft), bytes_)


tokens = st.lists(
    st.one_of(
        st.builds(m.Token, st.just(m.TokenAlias.REGISTER), varints, varints, bytes_),
        st.builds(m.Token, st.sampled_from([m.TokenAlias.DELETE, m.TokenAlias.USE_ALIAS]), varints),
        st.builds(m.Token, st.just(m.TokenAlias.USE_VALUE), st.none(), varints, bytes_),
    ),
    max_size=3,
).map(tuple)
setup_tokens = tokens.map(
    lambda all_: tuple(
        token
        for token in all_
        if token.alias_type in (m.TokenAlias.REGISTER, m.TokenAlias.USE_VALUE)
    )
)


@st.composite
def filters(draw: st.DrawFn, *, absolute: bool = False) -> m.Filter:
    types = list(m.FilterType)[2:] if absolute else list(m.FilterType)
    type_ = draw(st.sampled_from(types))
    if type_ < m.FilterType.ABSOLUTE_START:
        return m.Filter(type_)
    start = draw(locations)
    if type_ is m.FilterType.ABSOLUTE_START:
        return m.Filter(type_, start)
    # Draft 14 writes the end of an update plus 1.
    start = Location(min(start.group, VARINT_MAX - 1), start.object)
    return m.Filter(type_, start, draw(st.integers(start.group, VARINT_MAX - 1)))


pairs = st.one_of(
    st.tuples(st.integers(0, 1 << 30).map(lambda n: 2 * n), varints),
    st.tuples(st.integers(0, 1 << 30).map(lambda n: 2 * n + 1), bytes_),
)
KNOWN_TRACK_EXTENSIONS = (0x02, 0x04, 0x0E, 0x22, 0x30)


def properties(draft: int) -> st.SearchStrategy[m.TrackProperties]:
    timeout, cache = st.none() | positive, st.none() | varints
    if draft == 14:
        return st.builds(m.TrackProperties, timeout, cache, order=decided)
    others = st.lists(pairs.filter(lambda pair: pair[0] not in KNOWN_TRACK_EXTENSIONS), max_size=4)
    return st.builds(
        m.TrackProperties,
        timeout,
        cache,
        st.none() | priorities,
        orders,
        st.booleans(),
        others.map(lambda rows: tuple(sorted(rows, key=lambda row: row[0]))),
    )


ranges = {
    draft: st.one_of(
        st.builds(m.StandaloneFetch, tracks(draft), locations, locations),
        st.builds(m.JoiningFetch, varints, varints, st.booleans()),
    )
    for draft in (14, 16)
}


def request_codes(draft: int, kind: m.RequestKind) -> st.SearchStrategy[int]:
    if draft == 16:
        # Draft 16 has no number for this one, and writes another in its place.
        missing = RequestCode.UNKNOWN_STATUS_IN_RANGE
        return (varints | st.sampled_from(RequestCode)).filter(lambda code: code != missing)
    known = sorted({int(request_code_from_14(number, kind)) for number in range(0x13)})
    return st.sampled_from(known) | foreign_codes


def done_codes(draft: int) -> st.SearchStrategy[int]:
    if draft == 16:
        return varints | st.sampled_from(DoneCode)
    return st.integers(0, 7).map(done_code_from_14) | foreign_codes


def messages(draft: int) -> st.SearchStrategy[m.Message]:  # one row for each
    old = draft == 14
    only_16: dict[str, Any] = {} if old else {"new_group": st.none() | varints}
    timeout, expires = st.none() | positive, st.none() | positive
    name, forward = tracks(draft), st.booleans()
    setup = {
        "path": st.none() | bytes_,
        "authority": st.none() | bytes_,
        "max_request_id": varints,
        "max_token_cache_bytes": varints,
        "tokens": tokens if old else setup_tokens,
        "implementation": st.none() | bytes_,
    }
    versions = st.lists(varints, min_size=1, max_size=3).map(tuple) if old else st.just(())
    server_setup = setup | ({"authority": st.none()} if old else {})
    rows: list[st.SearchStrategy[m.Message]] = [
        st.builds(m.ClientSetup, versions, **setup),
        st.builds(m.ServerSetup, varints if old else st.none(), **server_setup),
        st.builds(m.Goaway, bytes_),
        st.builds(m.MaxRequestId, varints),
        st.builds(m.RequestsBlocked, varints),
        st.builds(
            m.Subscribe,
            varints,
            name,
            filters(),
            priorities,
            orders,
            forward,
            timeout,
            tokens=tokens,
            **only_16,
        ),
        st.builds(m.SubscribeOk, varints, varints, maybe_location, expires, properties(draft)),
        st.builds(
            m.RequestUpdate,
            varints,
            varints,
            filters(absolute=True) if old else st.none() | filters(),
            priorities if old else st.none() | priorities,
            forward if old else st.none() | forward,
            timeout,
            tokens=tokens,
            **only_16,
        ),
        st.builds(m.Unsubscribe, varints),
        st.builds(
            m.Publish,
            varints,
            name,
            varints,
            maybe_location,
            forward,
            st.none() if old else expires,
            tokens,
            properties(draft),
        ),
        st.builds(
            m.PublishOk,
            varints,
            forward,
            filters(),
            priorities,
            decided if old else orders,
            timeout,
            st.none() if old else expires,
            **only_16,
        ),
        st.builds(m.PublishDone, varints, done_codes(draft), varints, reasons),
        st.builds(m.Fetch, varints, ranges[draft], priorities, orders if old else decided, tokens),
        st.builds(
            m.FetchOk,
            varints,
            locations,
            st.booleans(),
            decided if old else st.just(m.GroupOrder.ASCENDING),
            st.builds(m.TrackProperties, max_cache_ms=varints) if old else properties(draft),
        ),
        st.builds(m.FetchCancel, varints),
        st.builds(m.TrackStatus, varints, name, tokens),
        st.builds(m.PublishNamespace, varints, namespaces(draft), tokens),
    ]
    if old:
        kinds = [kind for kind in m.RequestKind if kind is not m.RequestKind.UPDATE]
        rows += [
            st.builds(m.RequestError, varints, request_codes(14, kind), reasons, kind=st.just(kind))
            for kind in kinds
        ]
        namespace_kinds = [m.RequestKind.PUBLISH_NAMESPACE, m.RequestKind.SUBSCRIBE_NAMESPACE]
        rows += [
            st.builds(m.RequestOk, varints, st.sampled_from(namespace_kinds)),
            st.builds(
                m.RequestOk,
                varints,
                st.just(m.RequestKind.TRACK_STATUS),
                maybe_location,
                expires,
                properties(14),
            ),
            st.builds(m.PublishNamespaceDone, namespace=namespaces(14)),
            st.builds(
                m.PublishNamespaceCancel,
                request_codes(14, m.RequestKind.PUBLISH_NAMESPACE),
                reasons,
                namespace=namespaces(14),
            ),
            st.builds(m.SubscribeNamespace, varints, namespaces(14, least=0), tokens=tokens),
            st.builds(m.UnsubscribeNamespace, namespaces(14, least=1)),
        ]
        return st.one_of(rows)
    retry = st.none() | st.integers(0, VARINT_MAX - 1)
    rows += [
        st.builds(m.RequestError, varints, request_codes(16, m.RequestKind.FETCH), reasons, retry),
        st.builds(m.RequestOk, varints, st.none(), maybe_location, expires),
        st.builds(m.PublishNamespaceDone, varints),
        st.builds(m.PublishNamespaceCancel, varints, reasons, varints),
        st.builds(
            m.SubscribeNamespace,
            varints,
            namespaces(16, least=0),
            st.sampled_from(m.NamespaceOptions),
            forward,
            tokens,
        ),
        st.builds(m.NamespaceAdded, namespaces(16, least=0)),
        st.builds(m.NamespaceDone, namespaces(16, least=0)),
    ]
    return st.one_of(rows)


# --- objects ---------------------------------------------------------------------------------


def raw_extensions(draft: int) -> st.SearchStrategy[bytes]:
    return st.lists(pairs, max_size=3).map(lambda rows: encode_pairs(rows, delta=draft != 14))


@st.composite
def subgroups(draw: st.DrawFn, draft: int, has_extensions: bool) -> list[Object]:
    """The objects of subgroup 0 of group 7, of priority 5."""
    objects = []
    object_id = -1
    for _ in range(draw(st.integers(0, 6))):
        object_id += 1 + draw(st.sampled_from([0, 0, 0, 1, 63, 64, 20_000]))
        status = draw(st.sampled_from([0, 0, 0, 1, 3, 4] if draft == 14 else [0, 0, 0, 3, 4]))
        payload = b"" if status else draw(st.binary(max_size=80))
        bare = not has_extensions or (status == 1 if draft == 14 else status)
        raw = b"" if bare else draw(raw_extensions(draft))
        objects.append(Object(7, 0, object_id, 5, status, raw, payload))
    return objects


@st.composite
def fetches(draw: st.DrawFn, draft: int) -> list[Object | EndOfRange]:
    items: list[Object | EndOfRange] = []
    for _ in range(draw(st.integers(0, 8))):
        group, object_id = draw(few), draw(few)
        if draft == 16 and draw(st.sampled_from([False, False, True])):
            items.append(EndOfRange(group, object_id, draw(st.booleans())))
            continue
        status = draw(st.sampled_from([0, 0, 1, 3, 4])) if draft == 14 else 0
        datagram = draft == 16 and draw(st.booleans())
        items.append(
            Object(
                group,
                None if datagram else draw(few),
                object_id,
                draw(priorities),
                status,
                b"" if status == 1 else draw(raw_extensions(draft)),
                b"" if status else draw(st.binary(max_size=70)),
                datagram,
            )
        )
    return items


@st.composite
def cuts(draw: st.DrawFn, size: int) -> list[int]:
    """Where a stream of that size is cut into chunks."""
    return sorted(draw(st.lists(st.integers(0, size), max_size=6)))


def chunked(data: bytes, places: list[int]) -> list[bytes]:
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
