"""Bytes to messages and back. No state beyond an unfinished message, no sockets, no clock."""
