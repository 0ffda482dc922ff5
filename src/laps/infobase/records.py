"""What is kept of a subscribe, so that millions take little and each is given back as it came.

Subscribes of one application are alike: of the message, only the request id and the name differ
from one to the next in a namespace. What does not differ is a form. It is kept once, for all that
share it, and a record has the rest:

    record    sequence(2) | form number(4) | request_id(i) | name_length(i) name
    form      kind(1) = 0 | namespace_hash(8) | length(2) | namespace fields | what follows the name

The type and the length of the message are not kept, as they follow from the rest; nor is the hash
of the name. Where a peer said another hash than that of the name, it is kept:

    record    sequence(2) | form number(4) | name_hash(8) | request_id(i) | name_length(i) name
    form      kind(1) = 1 | as above

And where the data is no such message, or its name is longer than an entry of a table:

    record    sequence(2) | form number(4) | namespace_hash(8) | name_hash(8)
    form      kind(1) = 2 | data
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING, Final

from laps.packed import MOST_BYTES
from laps.tables import Table
from laps.types import SubscribeInfo, TrackHash, hash_bytes

if TYPE_CHECKING:
    from laps.types import NodeId, TrackKey

_RECORD: Final = Struct(">HI")
_HASH: Final = Struct(">Q")
_HASHES: Final = Struct(">QQ")
_OWN_AT: Final = _RECORD.size
_FORM: Final = Struct(">BQH")

_FITTING, _OWN_HASH, _AS_IT_IS = range(3)

# type(1) | length(2)
_MESSAGE_TYPE: Final = 3
_BEFORE_LENGTH: Final = bytes((_MESSAGE_TYPE,))
_BEFORE_REQUEST_ID: Final = 3
_MOST_FIELDS: Final = 32
_MOST_NAME: Final = MOST_BYTES - _RECORD.size - _HASH.size - 8  # of the request id


class Forms:
    """What many records share, by a number, for as long as one of them is there."""

    def __init__(self) -> None:
        self._numbers: Table[bytes, int] = Table()
        self._forms: Table[int, bytes] = Table()
        self._uses = array("I")
        self._free = array("I")

    def __len__(self) -> int:
        return len(self._forms)

    def __getitem__(self, number: int) -> bytes:
        return self._forms[number]

    def use(self, form: bytes) -> int:
        """The number of a form, which one record more has."""
        number = self._numbers.get(form)
        if number is None:
            if self._free:
                number = self._free.pop()
            else:
                number = len(self._uses)
                self._uses.append(0)
            self._numbers[form] = number
            self._forms[number] = form
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """One record fewer has it."""
        self._uses[number] -= 1
        if self._uses[number]:
            return
        del self._numbers[self._forms.pop(number)]
        self._free.append(number)
        if not self._forms:
            del self._uses[:], self._free[:]


class Records:
    """Makes records of subscribes, and subscribes of records."""

    def __init__(self) -> None:
        self._forms = Forms()

    def pack(self, info: SubscribeInfo) -> bytes:
        """A record of a subscribe; who gives it up has to `release` it."""
        data, hashes = bytes(info.subscribe_data), info.track_hash
        found = _places(data)
        if found is None:
            number = self._forms.use(bytes((_AS_IT_IS,)) + data)
            own = _HASHES.pack(hashes.namespace_hash, hashes.name_hash)
            return _RECORD.pack(info.sequence, number) + own
        namespace_at, name_at, name_end = found
        named = data[name_at:name_end]
        kind, own = _FITTING, b""
        if hash_bytes(_name(named)) != hashes.name_hash:
            kind, own = _OWN_HASH, _HASH.pack(hashes.name_hash)
        head = _FORM.pack(kind, hashes.namespace_hash, name_at - namespace_at)
        number = self._forms.use(head + data[namespace_at:name_at] + data[name_end:])
        request_id = data[_BEFORE_REQUEST_ID:namespace_at]
        return _RECORD.pack(info.sequence, number) + own + request_id + named

    def release(self, record: bytes) -> None:
        """A record is given up."""
        self._forms.release(_RECORD.unpack_from(record)[1])

    def namespace_hash(self, record: bytes) -> int:
        """The hash of the namespace, as it came with a subscribe."""
        form = self._forms[_RECORD.unpack_from(record)[1]]
        own = form[0] == _AS_IT_IS
        hashed: int = (_HASH.unpack_from(record, _OWN_AT) if own else _FORM.unpack_from(form)[1:])[
            0
        ]
        return hashed

    def hashes(self, track: TrackKey, record: bytes) -> TrackHash:
        """The hashes of a track, as they came with a subscribe."""
        return self._unpacked(track, record)[1]

    def unpack(self, source: NodeId, track: TrackKey, record: bytes) -> SubscribeInfo:
        """The subscribe of a record, as it came."""
        sequence, hashes, data = self._unpacked(track, record)
        return SubscribeInfo(sequence, source, hashes, data)

    def _unpacked(self, track: TrackKey, record: bytes) -> tuple[int, TrackHash, bytes]:
        """The sequence, the hashes and the data."""
        sequence, number = _RECORD.unpack_from(record)
        form, at = self._forms[number], _OWN_AT
        if form[0] == _AS_IT_IS:
            namespace_hash, name_hash = _HASHES.unpack_from(record, at)
            return sequence, TrackHash(namespace_hash, name_hash, track), form[1:]
        kind, namespace_hash, length = _FORM.unpack_from(form)
        if kind == _OWN_HASH:
            at += _HASH.size
        name_at, middle = at + (1 << (record[at] >> 6)), _FORM.size + length
        named = record[name_at:]
        if kind == _OWN_HASH:
            (name_hash,) = _HASH.unpack_from(record, _OWN_AT)
        else:
            name_hash = hash_bytes(_name(named))
        rest = record[at:name_at] + form[_FORM.size : middle] + named + form[middle:]
        data = _BEFORE_LENGTH + len(rest).to_bytes(2) + rest
        return sequence, TrackHash(namespace_hash, name_hash, track), data


def sequence_of(record: bytes) -> int:
    """The sequence in a record."""
    return record[0] << 8 | record[1]


def _places(data: bytes) -> tuple[int, int, int] | None:
    """Where the namespace of a SUBSCRIBE begins, its name with the length, and what follows.

    None: it is no SUBSCRIBE, or has a name that is too long for a record.
    """
    try:
        if data[0] != _MESSAGE_TYPE or (data[1] << 8 | data[2]) != len(data) - _BEFORE_REQUEST_ID:
            return None
        at = namespace_at = _BEFORE_REQUEST_ID + (1 << (data[_BEFORE_REQUEST_ID] >> 6))
        fields = data[at]
        if fields > _MOST_FIELDS:
            return None
        at += 1
        for _ in range(fields):
            size = data[at]
            at += size + 1 if size < 64 else _long(data, at)
        size = data[at]
        name_end = at + (size + 1 if size < 64 else _long(data, at))
    except IndexError:  # it ends within
        return None
    return (namespace_at, at, name_end) if name_end <= min(len(data), at + _MOST_NAME) else None


def _long(data: bytes, at: int) -> int:
    """The size of what has a length of several bytes before it, with that."""
    width = 1 << (data[at] >> 6)
    return width + (int.from_bytes(data[at : at + width]) & (1 << 8 * width - 2) - 1)


def _name(named: bytes) -> bytes:
    """The name without its length."""
    return named[1 << (named[0] >> 6) :]
