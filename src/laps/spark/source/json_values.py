"""JSON as the types of Spark: each value either fits its column, or the payload is corrupt."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, DecimalException
from typing import Any, Final

import msgspec
from pyspark.sql import types as t

from laps.errors import ConfigError

Convert = Callable[[Any], Any]

_INTEGERS: Final[dict[type[t.DataType], int]] = {
    t.ByteType: 8,
    t.ShortType: 16,
    t.IntegerType: 32,
    t.LongType: 64,
}
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def converter(wanted: t.DataType) -> Convert:
    """What makes a value of JSON one of a type, or raises ValueError; null stays null."""
    convert = _converter(wanted)
    return lambda value: None if value is None else convert(value)


def _converter(wanted: t.DataType) -> Convert:  # noqa: C901 - a flat table
    if type(wanted) in _INTEGERS:
        return _integer(_INTEGERS[type(wanted)])
    match wanted:
        case t.StringType():
            return _string
        case t.BinaryType():
            return _binary
        case t.BooleanType():
            return _boolean
        case t.FloatType() | t.DoubleType():
            return _number
        case t.DecimalType():
            return _decimal(wanted)
        case t.TimestampType():
            return _timestamp
        case t.TimestampNTZType():
            return _local_timestamp
        case t.DateType():
            return _date
        case t.ArrayType():
            return _array(converter(wanted.elementType))
        case t.MapType() if isinstance(wanted.keyType, t.StringType):
            return _map(converter(wanted.valueType))
        case t.StructType():
            return struct({field.name: converter(field.dataType) for field in wanted.fields})
    raise ConfigError(
        f"option payload_schema: json has no {wanted.simpleString()}: take string, a number, "
        "boolean, binary (base64), timestamp, date, array, struct or a map with string keys"
    )


def struct(fields: dict[str, Convert]) -> Convert:
    """An object of JSON: what it lacks is null, and what nobody asked for is left out."""

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{type(value).__name__} is no JSON object")
        get = value.get
        converted = {}
        for name, of in fields.items():
            try:
                converted[name] = of(get(name))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return converted

    return convert


def _string(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _binary(value: Any) -> bytes:
    return base64.b64decode(_text(value), validate=True)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _integer(bits: int) -> Convert:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> int:
        if type(value) is not int or not -limit <= value < limit:
            raise ValueError(f"{value!r} is no whole number of {bits} bits")
        return value

    return convert


def _number(value: Any) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{value!r} is too large") from None


def _decimal(wanted: t.DecimalType) -> Convert:
    step = Decimal(1).scaleb(-wanted.scale)
    limit = Decimal(10) ** (wanted.precision - wanted.scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"{value!r} is no number")
        try:
            number = Decimal(str(value)).quantize(step)
        except DecimalException:
            raise ValueError(f"{value!r} is no {wanted.simpleString()}") from None
        if not number.is_finite() or abs(number) >= limit:
            raise ValueError(f"{value!r} is no {wanted.simpleString()}")
        return number

    return convert


def _timestamp(value: Any) -> datetime:
    """ISO 8601, UTC where it names no zone; or seconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return _EPOCH + timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise ValueError(f"{value!r} s since 1970 is no time") from None
    at = datetime.fromisoformat(_text(value))
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _local_timestamp(value: Any) -> datetime:
    at = datetime.fromisoformat(_text(value))
    if at.tzinfo is not None:
        raise ValueError(f"{value!r} names a zone")
    return at


def _date(value: Any) -> date:
    return date.fromisoformat(_text(value))


def _array(of: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{type(value).__name__} is no array")
        return [of(item) for item in value]

    return convert


def _map(of: Convert) -> Convert:
    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise ValueError(f"{type(value).__name__} is no JSON object")
        return [(key, of(item)) for key, item in value.items()]

    return convert


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value
