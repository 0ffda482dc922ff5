"""One conversation: bytes in, events out; commands in, bytes out. No sockets and no clock."""
