"""The only room that opens sockets, reads a clock and runs on asyncio."""
