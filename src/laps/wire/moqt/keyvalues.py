"""Key-value pairs: the parameters of messages, the extensions of tracks and objects, and tokens.

Draft 14 writes types as they are, in any order; draft 16 writes what each adds to the one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from laps.errors import InvalidEncoding, LocalProtocolError
from laps.wire.buffer import Cursor, encode_varint
from laps.wire.moqt.codes import MoqtViolation, SessionCode, violation
from laps.wire.moqt.messages import KeyValue, Token, TokenAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MAX_VALUE_BYTES: Final = 0xFFFF
MAX_TYPE: Final = (1 << 64) - 1

# key-value pair
# type(var-int), draft 16: minus the type before | value(var-int), of an even type
#                                                | length(var-int) | value(length), of an odd one


def decode_pairs(cursor: Cursor, *, delta: bool, count: int | None = None) -> list[KeyValue]:
    """`count` pairs, or all up to the end of the message, under their own types."""
    pairs: list[KeyValue] = []
    type_ = 0
    while cursor.remaining if count is None else len(pairs) < count:
        step = cursor.varint("the type of a key-value pair")
        type_ = type_ + step if delta else step
        if type_ > MAX_TYPE:
            raise violation(f"type {type_:#x} of a key-value pair is above 2^64-1")
        field = f"the value of type {type_:#x}"
        if type_ % 2 == 0:
            pairs.append((type_, cursor.varint(field)))
            continue
        length = cursor.varint(f"the length of type {type_:#x}")
        if length > MAX_VALUE_BYTES:
            raise violation(f"{field} has {length} bytes, more than {MAX_VALUE_BYTES}")
        pairs.append((type_, bytes(cursor.take(length, field))))
    return pairs


def encode_pairs(pairs: Iterable[KeyValue], *, delta: bool) -> bytes:
    """The pairs one after the other; where types are deltas, in ascending order."""
    parts: list[bytes] = []
    previous = 0
    for type_, value in sorted(pairs, key=_type_of) if delta else pairs:
        parts.append(encode_varint(type_ - previous))
        if delta:
            previous = type_
        if isinstance(value, int):
            if type_ % 2:
                raise LocalProtocolError(f"type {type_:#x} is odd: its value is bytes")
            parts.append(encode_varint(value))
            continue
        if type_ % 2 == 0:
            raise LocalProtocolError(f"type {type_:#x} is even: its value is a number")
        if len(value) > MAX_VALUE_BYTES:
            problem = f"has {len(value)} bytes, more than {MAX_VALUE_BYTES}"
            raise LocalProtocolError(f"the value of type {type_:#x} {problem}")
        parts += (encode_varint(len(value)), value)
    return b"".join(parts)


def _type_of(pair: KeyValue) -> int:
    return pair[0]


# --- parameters ------------------------------------------------------------------------------

# parameters
# count(var-int) | key-value pairs

TOKEN: Final = 0x03
"The one parameter that may come more than once; the same number in setup and in other messages."


class Parameters(NamedTuple):
    """The parameters that belong in a message."""

    values: dict[int, int | bytes]
    tokens: tuple[Token, ...] = ()

    def number(self, type_: int) -> int | None:
        """The value of an even type."""
        value = self.values.get(type_)
        return value if isinstance(value, int) else None

    def data(self, type_: int) -> bytes | None:
        """The value of an odd type."""
        value = self.values.get(type_)
        return value if isinstance(value, bytes) else None


def decode_parameters(
    cursor: Cursor,
    belonging: Collection[int],
    known: Collection[int],
    *,
    delta: bool,
    refuse_unknown: bool = False,
) -> Parameters:
    """The parameters of a message.

    One that is known and does not belong in the message is ignored, as both drafts have it, yet
    not twice.
    """
    count = cursor.varint("the number of parameters")
    values: dict[int, int | bytes] = {}
    tokens: list[Token] = []
    seen = set()
    for type_, value in decode_pairs(cursor, delta=delta, count=count):
        if type_ not in known:
            if refuse_unknown:
                raise violation(f"parameter {type_:#x} is unknown")
            continue
        if type_ == TOKEN and isinstance(value, bytes):
            if type_ in belonging:
                tokens.append(decode_token(value))
            continue
        if type_ in seen:
            raise violation(f"parameter {type_:#x} comes twice")
        seen.add(type_)
        if type_ in belonging:
            values[type_] = value
    return Parameters(values, tuple(tokens))


def encode_parameters(
    pairs: Iterable[tuple[int, int | bytes | None]], tokens: Iterable[Token] = (), *, delta: bool
) -> bytes:
    """The parameters of a message, in ascending order; those of None are left out."""
    said = [(type_, value) for type_, value in pairs if value is not None]
    said += [(TOKEN, encode_token(token)) for token in tokens]
    said.sort(key=_type_of)
    return encode_varint(len(said)) + encode_pairs(said, delta=delta)


# --- tokens ----------------------------------------------------------------------------------

# token
# alias type(var-int) | alias(var-int), unless USE_VALUE
# | type(var-int) | value, to the end of the parameter: REGISTER and USE_VALUE

_WITH_ALIAS = frozenset({TokenAlias.DELETE, TokenAlias.REGISTER, TokenAlias.USE_ALIAS})
_WITH_VALUE = frozenset({TokenAlias.REGISTER, TokenAlias.USE_VALUE})


def decode_token(data: bytes) -> Token:
    """The token in the value of a parameter."""
    cursor = Cursor(memoryview(data), whole=True)
    try:
        alias_type = cursor.varint("the alias type")
        if alias_type not in set(TokenAlias):
            raise InvalidEncoding(f"alias type {alias_type} is unknown")
        alias = type_ = value = None
        if alias_type in _WITH_ALIAS:
            alias = cursor.varint("the alias")
        if alias_type in _WITH_VALUE:
            type_ = cursor.varint("the token type")
            value = bytes(cursor.rest())
        if cursor.remaining:
            raise InvalidEncoding(f"{cursor.remaining} bytes are left over")
    except InvalidEncoding as error:
        problem = f"authorization token: {error}"
        raise MoqtViolation(SessionCode.KEY_VALUE_FORMATTING_ERROR, problem) from None
    return Token(TokenAlias(alias_type), alias, type_, value)


def encode_token(token: Token) -> bytes:
    """The value of a token's parameter."""
    parts = [encode_varint(token.alias_type)]
    name = token.alias_type.name
    if (token.alias is not None) != (token.alias_type in _WITH_ALIAS):
        raise LocalProtocolError(f"alias {token.alias} does not suit a token to {name}")
    if (token.value is not None) != (token.alias_type in _WITH_VALUE):
        raise LocalProtocolError(f"a token to {name} goes with a value or not: it is the other way")
    if (token.type is None) != (token.value is None):
        raise LocalProtocolError("a token has a type and a value, or neither")
    if token.alias is not None:
        parts.append(encode_varint(token.alias))
    if token.type is not None and token.value is not None:
        parts += (encode_varint(token.type), token.value)
    return b"".join(parts)
