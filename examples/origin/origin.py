"""An origin that decides itself: relays ask this server about every action on its names.

    python origin.py members.toml --certificate origin.pem --key origin.key
    laps relay --config relay.toml        # with [[origins]] api = "https://127.0.0.1:8443/laps"

`members.toml` says who may do what; it is read for each question, so that a change counts at once
for whoever asks next. docs/security.md specifies the question and the answer.
"""

from __future__ import annotations

import argparse
import hmac
import json
import ssl
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# What each action needs: to publish below a namespace, or to subscribe below it.
NEEDS = {
    "publish": "publish",
    "publish-namespace": "publish",
    "subscribe": "subscribe",
    "fetch": "subscribe",
    "track-status": "subscribe",
    "subscribe-namespace": "subscribe",
}

# A relay asks again before this has passed. Who is taken off the list is out by then.
KEEP_S = 60
# Nobody asks with more than a name and a few tokens.
MAX_BYTES = 64 * 1024


def decide(question: dict[str, Any], members: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer to a question."""
    tokens = [it["token"] for it in question["tokens"] if isinstance(it["token"], str)]
    member = next((it for it in members if any(same(it["token"], one) for one in tokens)), None)
    if member is None:
        return {"allow": False, "reason": "no token of a member", "keep_s": 5}
    right = NEEDS.get(question["action"])
    below = [path.split("/") for path in member.get(right, [])]
    # A part that is no text is an object: it equals no part of a path, and so is refused.
    if not any(question["namespace"][: len(parts)] == parts for parts in below):
        return {"allow": False, "reason": f"not allowed to {question['action']} that", "keep_s": 5}
    return {"allow": True, "keep_s": KEEP_S}


def same(one: str, other: str) -> bool:
    """Whether two tokens are the same, in a time that does not tell where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


class Handler(BaseHTTPRequestHandler):
    """Answers one relay."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    members: Path

    def do_POST(self) -> None:
        """A question."""
        length = int(self.headers.get("content-length") or 0)
        if not 0 < length <= MAX_BYTES:
            self.send_error(413)
            self.close_connection = True
            return
        try:
            question = json.loads(self.rfile.read(length))
            members = tomllib.loads(self.members.read_text()).get("members", [])
            answer = decide(question, members)
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            # The relay refuses whoever it asked for, and says so: the reason is for the log here.
            self.log_error("%s: %r", type(error).__name__, error)
            self.send_error(500)
            return
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("members", type=Path, help="who may do what, as TOML")
    parser.add_argument("--listen", default="127.0.0.1:8443", help="HOST:PORT; port 0: any free")
    parser.add_argument("--certificate", type=Path, help="PEM; without it: plain HTTP, on loopback")
    parser.add_argument("--key", type=Path, help="the private key of the certificate")
    options = parser.parse_args()
    host, _, port = options.listen.rpartition(":")
    Handler.members = options.members
    with ThreadingHTTPServer((host, int(port)), Handler) as server:
        scheme = "http"
        if options.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options.certificate, options.key)
            # The handshake is the handler's: a client that says nothing holds up nobody else.
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
            scheme = "https"
        print(f"ready {scheme}://{host}:{server.server_address[1]}/laps", flush=True)  # noqa: T201
        server.serve_forever()


if __name__ == "__main__":
    main()
