import re
from pathlib import Path

import laps
from laps.wire.moqt.dialect import BETWEEN_RELAYS, BY_ALPN, BY_SETUP, DIALECTS

SOURCE = Path(laps.__file__).parent
ASKS_WHICH = re.compile(r"\bis (not )?DRAFT\d+|\.draft (==|!=) \d+|\bdraft (==|!=) \d+")


def test_dialect_code_asks_for_capabilities_and_never_which_draft_it_has() -> None:
    asking = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if ASKS_WHICH.search(line)
    ]
    assert asking == []


def test_dialect_one_draft_is_carried_between_relays_and_one_is_agreed_on_in_the_setup() -> None:
    assert [item for item in DIALECTS.values() if item.is_carried] == [BETWEEN_RELAYS]
    assert [item for item in DIALECTS.values() if item.version_in_setup] == [BY_SETUP]
    assert {BY_SETUP, *BY_ALPN} == set(DIALECTS.values())


def test_dialect_alpns_differ() -> None:
    assert len({item.alpn for item in DIALECTS.values()}) == len(DIALECTS)
