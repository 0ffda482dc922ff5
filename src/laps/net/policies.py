"""The policy of a relay: that of its file, and the signed one that takes the place of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.policy import load_policy

if TYPE_CHECKING:
    from laps.config import PolicyConfig
    from laps.policy import Policy


class Policies:
    """What a relay has been told to keep to."""

    def __init__(self, config: PolicyConfig, before: Policies | None = None) -> None:
        """ConfigError if there is no policy in the file.

        `before` is what was told until now: a signed policy outlasts what the file says next.
        """
        self._file = config.file
        self._by_file = None if config.file is None else load_policy(config.file)
        self._signed: Policy | None = None if before is None else before.signed
        self.sequence: int = 0 if before is None else before.sequence
        "Of the signed policy; 0: none has been heard of."

    @property
    def signed(self) -> Policy | None:
        """The policy that the key has signed, once it has been heard of."""
        return self._signed

    @property
    def in_force(self) -> Policy | None:
        """What counts; None: everything is allowed."""
        return self._by_file if self._signed is None else self._signed

    @property
    def source(self) -> str:
        """Where it comes from, for people."""
        if self._signed is not None:
            return f"the signed policy number {self.sequence}"
        return "" if self._file is None else str(self._file)

    def take(self, policy: Policy, sequence: int) -> bool:
        """A signed policy; whether it is newer than what was heard before."""
        if sequence <= self.sequence:
            return False
        self._signed, self.sequence = policy, sequence
        return True
