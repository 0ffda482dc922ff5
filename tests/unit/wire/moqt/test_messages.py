"""Control messages both ways, and what is refused on our own side."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.errors import LocalProtocolError
from laps.types import Location, TrackName
from laps.wire.buffer import Incomplete
from laps.wire.moqt import messages as m
from laps.wire.moqt.codes import DoneCode, MoqtViolation, RequestCode, SessionCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16, Dialect
from unit.wire.moqt.strategies import messages
from unit.wire.moqt.vectors import Case, with_key

BOTH = pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=repr)
TRACK = TrackName((b"a",), b"b")


def read(dialect: Dialect, data: bytes) -> m.Message:
    type_, payload, end = dialect.split(data)
    assert end == len(data)
    return dialect.decode(type_, payload)


@settings(max_examples=300)
@given(messages(14))
def test_draft_14_reads_what_it_writes(message: m.Message) -> None:
    assert read(DRAFT14, DRAFT14.encode(message)) == message


@settings(max_examples=300)
@given(messages(16))
def test_draft_16_reads_what_it_writes(message: m.Message) -> None:
    assert read(DRAFT16, DRAFT16.encode(message)) == message


@given(st.lists(messages(16), min_size=1, max_size=3), st.data())
def test_the_control_stream_is_split_into_messages(
    said: list[m.Message], data: st.DataObject
) -> None:
    stream = b"".join(map(DRAFT16.encode, said))
    cut = data.draw(st.integers(0, len(stream)))
    offset, heard = 0, []
    for buffer in (stream[:cut], stream):
        try:
            while True:
                type_, payload, offset = DRAFT16.split(buffer, offset)
                heard.append(DRAFT16.decode(type_, payload))
        except Incomplete:
            pass
    assert heard == said
    assert offset == len(stream)


@pytest.mark.parametrize("case", with_key("message"), ids=lambda case: case.name)
def test_a_message_that_is_cut_short_is_refused(case: Case) -> None:
    type_, payload, _ = case.dialect.split(case.data)
    for size in range(len(payload)):
        try:
            message = case.dialect.decode(type_, payload[:size])
        except MoqtViolation as error:
            refused_with = error.code
        else:
            if isinstance(message, m.UnsubscribeNamespace):
                continue  # a number alone reads as an id
            # Only extensions, which run to the end, leave a shorter message that reads.
            assert isinstance(message, m.SubscribeOk | m.Publish | m.FetchOk)
            assert case.dialect is DRAFT16
            continue
        assert refused_with == SessionCode.PROTOCOL_VIOLATION


def test_the_version_names_the_draft() -> None:
    assert (DRAFT14.draft, DRAFT14.version) == (14, 0xFF00000E)
    assert (DRAFT16.draft, DRAFT16.version) == (16, 0xFF000010)


# --- limits ----------------------------------------------------------------------------------


def lengths(parts: tuple[bytes, ...]) -> bytes:
    return bytes([len(parts)]) + b"".join((0x4000 | len(part)).to_bytes(2) + part for part in parts)


@BOTH
def test_a_namespace_holds_4096_bytes(dialect: Dialect) -> None:
    longest = (b"x" * 4000, b"y" * 96)
    assert read(dialect, dialect.encode(m.PublishNamespace(0, longest))) == m.PublishNamespace(
        0, longest
    )
    too_long = (b"x" * 4000, b"y" * 97)
    with pytest.raises(LocalProtocolError, match="4097 bytes"):
        dialect.encode(m.PublishNamespace(0, too_long))
    with pytest.raises(MoqtViolation, match="4097 bytes"):
        dialect.decode(0x06, b"\0" + lengths(too_long) + b"\0")


@BOTH
def test_a_full_name_holds_4096_bytes(dialect: Dialect) -> None:
    message = m.TrackStatus(0, TrackName((b"x" * 4000,), b"y" * 96))
    assert read(dialect, dialect.encode(message)) == message
    with pytest.raises(LocalProtocolError, match="4097 bytes"):
        dialect.encode(m.TrackStatus(0, TrackName((b"x" * 4000,), b"y" * 97)))
    payload = b"\0" + lengths((b"x" * 4000,)) + (0x4000 | 97).to_bytes(2) + b"y" * 97
    with pytest.raises(MoqtViolation, match="4097 bytes") as caught:
        dialect.decode(0x0D, payload)
    assert caught.value.code == SessionCode.PROTOCOL_VIOLATION


@BOTH
def test_a_namespace_holds_32_fields(dialect: Dialect) -> None:
    full = m.PublishNamespace(0, (b"x",) * 32)
    assert read(dialect, dialect.encode(full)) == full
    with pytest.raises(LocalProtocolError, match="33 fields"):
        dialect.encode(m.PublishNamespace(0, (b"x",) * 33))
    with pytest.raises(LocalProtocolError, match="0 fields"):
        dialect.encode(m.PublishNamespace(0, ()))


def test_only_draft_14_lets_a_field_be_empty() -> None:
    message = m.PublishNamespace(0, (b"a", b""))
    assert read(DRAFT14, DRAFT14.encode(message)) == message
    with pytest.raises(LocalProtocolError, match="empty"):
        DRAFT16.encode(message)


@BOTH
@pytest.mark.parametrize(
    ("text", "kept"),
    [("x" * 1024, 1024), ("x" * 1025, 1024), ("x" * 1023 + "é", 1023), ("\ud800", 1)],
)
def test_a_reason_is_cut_between_characters(dialect: Dialect, text: str, kept: int) -> None:
    message = read(dialect, dialect.encode(m.PublishDone(0, 0, 0, text)))
    assert isinstance(message, m.PublishDone)
    assert message.reason == text[:kept].replace("\ud800", "?")


@BOTH
def test_a_reason_that_is_no_text_is_read(dialect: Dialect) -> None:
    message = dialect.decode(0x0B, b"\0\0\0\2\xff!")
    assert message == m.PublishDone(0, 0, 0, "�!")


@BOTH
def test_a_payload_is_16_bits_long(dialect: Dialect) -> None:
    token = m.Token(m.TokenAlias.USE_VALUE, None, 0, bytes(40_000))
    with pytest.raises(LocalProtocolError, match="more than the 65535"):
        dialect.encode(m.TrackStatus(0, TRACK, (token, token)))
    one = m.TrackStatus(0, TRACK, (token,))
    assert read(dialect, dialect.encode(one)) == one


@BOTH
def test_a_uri_is_8192_bytes_long(dialect: Dialect) -> None:
    assert read(dialect, dialect.encode(m.Goaway(bytes(8192)))) == m.Goaway(bytes(8192))
    with pytest.raises(LocalProtocolError, match="8193 bytes"):
        dialect.encode(m.Goaway(bytes(8193)))


# --- what we may not say ---------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (m.Subscribe(0, TRACK, priority=256), "priority 256"),
        (m.Subscribe(1 << 62, TRACK), "too large"),
        (m.Subscribe(0, TRACK, m.Filter(m.FilterType.ABSOLUTE_RANGE)), "end group"),
        (
            m.Subscribe(0, TRACK, m.Filter(m.FilterType.ABSOLUTE_RANGE, Location(5, 0), 4)),
            "end group",
        ),
        (m.TrackStatus(0, TRACK, (m.Token(m.TokenAlias.DELETE),)), "alias"),
        (m.TrackStatus(0, TRACK, (m.Token(m.TokenAlias.USE_VALUE, 1, 2, b""),)), "alias"),
        (m.TrackStatus(0, TRACK, (m.Token(m.TokenAlias.REGISTER, 1),)), "value"),
        (m.TrackStatus(0, TRACK, (m.Token(m.TokenAlias.USE_VALUE, None, None, b""),)), "type"),
        (
            m.TrackStatus(0, TRACK, (m.Token(m.TokenAlias.USE_VALUE, None, 0, bytes(65_536)),)),
            "65538 bytes",
        ),
    ],
)
def test_what_no_draft_can_say_is_refused(
    dialect: Dialect, message: m.Message, problem: str
) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        dialect.encode(message)


RANGE = m.Filter(m.FilterType.ABSOLUTE_START)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (m.NamespaceAdded(()), "draft 14 has no NamespaceAdded"),
        (m.NamespaceDone(()), "draft 14 has no NamespaceDone"),
        (m.RequestOk(0), "draft 14 has no RequestOk"),
        (m.RequestOk(0, m.RequestKind.UPDATE), "draft 14 has no RequestOk to update"),
        (m.RequestOk(0, m.RequestKind.SUBSCRIBE), "draft 14 has no RequestOk to subscribe"),
        (m.RequestError(0, 0), "draft 14 has no RequestError"),
        (m.PublishNamespaceDone(4), "namespace"),
        (m.PublishNamespaceCancel(0, request_id=4), "namespace"),
        (m.ClientSetup(), "version"),
        (m.ServerSetup(), "version"),
        (m.RequestUpdate(0, 2, priority=1, forward=True), "filter"),
        (m.RequestUpdate(0, 2, RANGE, forward=True), "priority"),
        (m.RequestUpdate(0, 2, RANGE, 1), "forward"),
        (m.RequestUpdate(0, 2, m.Filter(m.FilterType.NEXT_GROUP), 1, True), "NEXT_GROUP"),
    ],
)
def test_what_draft_14_cannot_say_is_refused(message: m.Message, problem: str) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        DRAFT14.encode(message)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (m.UnsubscribeNamespace(()), "draft 16 has no UnsubscribeNamespace"),
        (m.PublishNamespaceDone(namespace=(b"a",)), "id"),
        (m.PublishNamespaceCancel(0, namespace=(b"a",)), "id"),
        (m.Subscribe(0, TRACK, delivery_timeout_ms=0), "timeout is 0"),
        (m.SubscribeOk(0, 0, properties=m.TrackProperties(delivery_timeout_ms=0)), "timeout is 0"),
        (m.SubscribeOk(0, 0, properties=m.TrackProperties(priority=256)), "priority 256"),
        (m.SubscribeOk(0, 0, properties=m.TrackProperties(extensions=((1, 5),))), "odd"),
        (m.SubscribeOk(0, 0, properties=m.TrackProperties(extensions=((6, b"5"),))), "even"),
    ],
)
def test_what_draft_16_cannot_say_is_refused(message: m.Message, problem: str) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        DRAFT16.encode(message)


# --- between the drafts ----------------------------------------------------------------------


def test_draft_14_leaves_out_what_is_advice() -> None:
    properties = m.TrackProperties(5, 6, 7, m.GroupOrder.DESCENDING, True, ((0x41, b"x"),))
    publish = m.Publish(1, TRACK, 2, expires_ms=9, properties=properties)
    kept = m.TrackProperties(5, 6, order=m.GroupOrder.DESCENDING)
    assert read(DRAFT14, DRAFT14.encode(publish)) == m.Publish(1, TRACK, 2, properties=kept)
    subscribe = m.Subscribe(1, TRACK, new_group=4)
    assert read(DRAFT14, DRAFT14.encode(subscribe)) == m.Subscribe(1, TRACK)
    options = m.NamespaceOptions.PUBLISH
    asked = m.SubscribeNamespace(1, (b"a",), options, forward=False)
    assert read(DRAFT14, DRAFT14.encode(asked)) == m.SubscribeNamespace(1, (b"a",))


def test_a_publisher_without_a_wish_has_ascending_groups_in_draft_14() -> None:
    message = read(DRAFT14, DRAFT14.encode(m.SubscribeOk(0, 1)))
    assert isinstance(message, m.SubscribeOk)
    assert message.properties.order is m.GroupOrder.ASCENDING


def test_a_delivery_timeout_of_0_is_none_in_draft_14() -> None:
    data = DRAFT14.encode(m.SubscribeOk(0, 1, properties=m.TrackProperties(63)))
    message = read(DRAFT14, data.replace(b"\x02\x3f", b"\x02\x00"))
    assert isinstance(message, m.SubscribeOk)
    assert message.properties.delivery_timeout_ms is None


def test_what_draft_16_marks_in_a_range_is_no_reason_of_its_refusals() -> None:
    message = m.RequestError(3, RequestCode.UNKNOWN_STATUS_IN_RANGE, kind=m.RequestKind.FETCH)
    sent = read(DRAFT16, DRAFT16.encode(message))
    assert sent == m.RequestError(3, RequestCode.INTERNAL_ERROR)


def test_a_kind_goes_without_saying_in_draft_16() -> None:
    message = m.RequestError(3, RequestCode.TIMEOUT, "late", kind=m.RequestKind.FETCH)
    assert read(DRAFT16, DRAFT16.encode(message)) == m.RequestError(3, RequestCode.TIMEOUT, "late")


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (m.RequestKind.SUBSCRIBE, {0: 0, 1: 1, 2: 2, 3: 3, 4: 0x10, 5: 0x11, 0x10: 4, 0x12: 5}),
        (m.RequestKind.TRACK_STATUS, {4: 0x10, 5: 0x11, 0x10: 4, 0x12: 5}),
        (m.RequestKind.PUBLISH, {3: 3, 4: 0x20}),
        (m.RequestKind.FETCH, {4: 0x10, 5: 0x11, 7: 0x32, 8: 8, 9: 0x12, 0x10: 4, 0x12: 5}),
        (m.RequestKind.PUBLISH_NAMESPACE, {4: 0x20, 0x10: 4, 0x12: 5}),
        (m.RequestKind.SUBSCRIBE_NAMESPACE, {4: 0x10, 5: 0x30, 0x10: 4, 0x12: 5}),
    ],
)
def test_the_codes_of_draft_14_follow_the_request(
    kind: m.RequestKind, numbers: dict[int, int]
) -> None:
    for number, code in numbers.items():
        data = DRAFT14.encode(m.RequestError(0, code, kind=kind))
        assert data[4:5] == bytes([number])
        assert read(DRAFT14, data) == m.RequestError(0, code, kind=kind)


@pytest.mark.parametrize(
    ("kind", "code", "number"),
    [
        # Known to draft 16, and not to this answer of draft 14's.
        (m.RequestKind.SUBSCRIBE, RequestCode.DUPLICATE_SUBSCRIPTION, 0),
        (m.RequestKind.PUBLISH_NAMESPACE, RequestCode.DOES_NOT_EXIST, 0),
        (m.RequestKind.PUBLISH, RequestCode.MALFORMED_AUTH_TOKEN, 1),
        (m.RequestKind.PUBLISH, RequestCode.EXPIRED_AUTH_TOKEN, 1),
        # Unknown to draft 16; draft 14 would read something into the second.
        (m.RequestKind.SUBSCRIBE, 0x3F, 0x3F),
        (m.RequestKind.FETCH, 0x7, 0),
    ],
)
def test_a_code_that_draft_14_lacks(kind: m.RequestKind, code: int, number: int) -> None:
    assert DRAFT14.encode(m.RequestError(0, code, kind=kind))[4:5] == bytes([number])


@pytest.mark.parametrize(
    ("type_", "number", "code"),
    [
        (0x05, 0x3F, 0x3F),  # unknown everywhere
        (0x05, 0x20, RequestCode.INTERNAL_ERROR),  # draft 16 would read UNINTERESTED
        (0x19, 0x06, RequestCode.INVALID_RANGE),  # NO_OBJECTS
    ],
)
def test_a_code_that_draft_16_lacks(type_: int, number: int, code: int) -> None:
    message = DRAFT14.decode(type_, bytes([0, number, 0]))
    assert isinstance(message, m.RequestError)
    assert message.code == code


@pytest.mark.parametrize(
    ("code", "number", "back"),
    [
        (DoneCode.TOO_FAR_BEHIND, 6, DoneCode.TOO_FAR_BEHIND),
        (DoneCode.MALFORMED_TRACK, 7, DoneCode.MALFORMED_TRACK),
        (DoneCode.UPDATE_FAILED, 0, DoneCode.INTERNAL_ERROR),
        (0x3F, 0x3F, 0x3F),
        (0x07, 0, DoneCode.INTERNAL_ERROR),
    ],
)
def test_why_a_subscription_ended(code: int, number: int, back: int) -> None:
    data = DRAFT14.encode(m.PublishDone(0, code))
    assert data[4:5] == bytes([number])
    assert read(DRAFT14, data) == m.PublishDone(0, back)
    assert read(DRAFT16, DRAFT16.encode(m.PublishDone(0, code))) == m.PublishDone(0, code)


def test_extensions_of_a_track_keep_their_order() -> None:
    extensions = ((0x0B, b"\xff\xff"), (0x0B, b""), (0x40, 1), (0x40, 0))
    message = m.FetchOk(0, Location(1, 2), properties=m.TrackProperties(extensions=extensions))
    assert read(DRAFT16, DRAFT16.encode(message)) == message
