"""What a control peer is still to be sent, a little at a time, as its link takes it.

A peer that is new is told everything, which is more than a link takes at once, and a network may
change faster than a slow link carries. What there is no room for waits here, in three queues that
are served in this order:

    urgent pages   advertisements of nodes: a path that is not there any more must not be believed
    words          the last message about each thing that changed while there was no room
    pages          what is told whole, one source after another

A page is an iterator that reads the tables as it goes, so that it sends what holds by then, and
the tables have no second copy here. What changes before a page has come to it may be sent by the
word, by the page, or by both: the sequence number makes it the same. Where it has looked at
something and there is nothing to tell of it, it yields None.

The words are bounded: where too many wait, the source of the next one is told whole instead. Only
withdrawals have to be kept, since no page tells what is not there. Each is of something that the
peer was told before, so there are no more of them than the tables held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from laps.wire.peering import Message

# A megabyte or two: a second of a busy network, so that a short stall has nothing repeated.
MAX_WORDS: Final = 5_000


class Outbox:
    """What waits for one link."""

    __slots__ = ("_page", "_pages", "_urgent", "_words")

    def __init__(self) -> None:
        self._urgent: dict[Hashable, Iterator[Message | None]] = {}
        self._words: dict[Hashable, Message] = {}
        self._pages: dict[Hashable, Iterator[Message | None]] = {}
        "Those that have not begun, by what they are of."
        self._page: Iterator[Message | None] | None = None
        "The one that has begun."

    def __bool__(self) -> bool:
        return bool(self._urgent or self._words or self._pages or self._page is not None)

    @property
    def has_words(self) -> bool:
        """Whether a word that comes now has to wait for others."""
        return bool(self._words)

    def __len__(self) -> int:
        """How many words and pages wait."""
        pages = len(self._urgent) + len(self._pages) + (self._page is not None)
        return len(self._words) + pages

    def clear(self) -> None:
        """Nothing of it is sent: control uses another link."""
        self._urgent.clear()
        self._words.clear()
        self._pages.clear()
        self._page = None

    def keep_word(self, key: Hashable, message: Message, page: Hashable | None) -> bool:
        """Keep a message, in place of the last one about the same thing.

        A `page` tells whole what the message is part of. Where that waits, the message need not;
        where too many messages wait, this one is not kept, and the page has to be.
        """
        if page is not None and page in self._pages:
            return True
        if page is not None and len(self._words) >= MAX_WORDS and key not in self._words:
            return False
        self._words[key] = message
        return True

    def keep_page(
        self, key: Hashable, page: Iterator[Message | None], *, urgent: bool = False
    ) -> None:
        """Keep a page, unless one of the same key waits and has not begun."""
        pages = self._urgent if urgent else self._pages
        pages.setdefault(key, page)

    def drop_page(self, key: Hashable) -> bool:
        """Do not tell a page that waits and has not begun; whether there was one."""
        return self._pages.pop(key, None) is not None

    def take(self) -> Message | None:
        """The next message; None where a page has nothing to tell this time, or has ended."""
        if self._urgent:
            key, page = next(iter(self._urgent.items()))
            for message in page:
                return message
            del self._urgent[key]
        elif self._words:
            key = next(iter(self._words))
            return self._words.pop(key)
        elif self._page is not None or self._pages:
            if self._page is None:
                key = next(iter(self._pages))
                self._page = self._pages.pop(key)
                if not self._pages:
                    self._pages = {}  # a dict keeps the room of all that it ever held
            for message in self._page:
                return message
            self._page = None
        return None
