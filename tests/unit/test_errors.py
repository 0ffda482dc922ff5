"""The exception tree: whose fault, which code, and words for a person."""

import pickle

import pytest

from laps import errors
from laps.errors import CloseCode, ConnectionClosed, InvalidText, LapsError, ProtocolError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.LimitExceeded, 1),
        (errors.NotAuthorized, 8),
        (errors.ConnectNotReceived, 32),
        (errors.ConnectResponseNotReceived, 33),
        (errors.InvalidMessageType, 34),
        (errors.InvalidEncoding, 35),
        (errors.InvalidStartOfStream, 36),
    ],
)
def test_what_a_peer_breaks_carries_its_wire_code(error: type[ProtocolError], code: int) -> None:
    raised = error("because")
    assert isinstance(raised, errors.RemoteProtocolError)
    assert (raised.code, str(raised)) == (code, "because")


def test_close_codes_are_the_documents() -> None:
    assert [int(code) for code in CloseCode] == [1, 2, 8, 32, 33, 34, 35, 36, 128]


def test_every_close_code_has_words_of_its_own() -> None:
    words = {code.describe() for code in CloseCode}
    assert len(words) == len(CloseCode)


def test_our_own_faults_and_the_peers_are_two_types() -> None:
    assert not issubclass(errors.LocalProtocolError, errors.RemoteProtocolError)
    assert not issubclass(errors.RemoteProtocolError, errors.LocalProtocolError)


def test_everything_is_a_laps_error_and_stands_in_the_tree_on_top() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, Exception)]
    assert all(issubclass(error, LapsError) for error in classes)
    assert errors.__doc__ is not None
    drawn = [line.split()[0] for line in errors.__doc__.splitlines()[2:] if line]
    assert sorted(drawn) == sorted(error.__name__ for error in classes)


def test_invalid_text_is_one_line_whatever_the_text() -> None:
    error = InvalidText("node id", "1\n2", "needs a colon")
    assert str(error) == 'node id "1\\n2" needs a colon'
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("closed", "words"),
    [
        (
            ConnectionClosed(34, "type 99", by_peer=True, application=True),
            "connection closed by the peer: application error 34: type 99",
        ),
        (
            ConnectionClosed(10, "", by_peer=False, application=False),
            "connection closed by us: QUIC error 10",
        ),
    ],
)
def test_a_closed_connection_says_who_and_why(closed: ConnectionClosed, words: str) -> None:
    assert str(closed) == words


@pytest.mark.parametrize(
    "error",
    [
        ConnectionClosed(1, "bye", by_peer=True, application=True),
        InvalidText("node id", "1.2", "needs a colon"),
        errors.InvalidEncoding("because"),
    ],
)
def test_errors_survive_the_way_to_another_process(error: LapsError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
