"""`laps token`: keys and tokens, for people."""

from __future__ import annotations

import dataclasses
import json
import secrets
import sys
import time
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laps.auth import cat, cose, issue, jwt
from laps.auth.grants import Action, Limits, MatchType
from laps.auth.judge import MAX_TOKEN_BYTES, OUT_OF_BAND, Verifier, as_cat
from laps.auth.key_files import PUBLIC, KeyFiles, read_keys, write_keys
from laps.auth.keys import KeySet, generate, public_half, read_jwk, write_jwk
from laps.auth.refusals import AuthError
from laps.auth.tokens import Algorithm, write_base64url
from laps.errors import ConfigError, LapsError, quote
from laps.files import suggest
from laps.names import bytes_text, namespace_of, namespace_text, visible
from laps.units import duration, read_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from laps.auth.grants import Grant, Match, Namespace, Scope
    from laps.auth.tokens import Claims

token = typer.Typer(
    name="token",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Make keys, and sign, show and check the tokens that say what a client may do.",
    epilog="Example: laps token key issuer.jwk\n\n"
    "Example: laps token sign --key issuer.jwk --publish live/cam --subscribe live --expires 1h\n\n"
    "Example: laps token check --keys issuer.pub.json --may publish --namespace live/cam TOKEN",
)

# A token that somebody forgot about ends by itself before long.
EXPIRES: str = "1h"
NEVER = "never"
NOBODY = "none"

ACTIONS = {action.text: action for action in Action}
LIMITS = tuple(limit.name for limit in dataclasses.fields(Limits))


class Format(StrEnum):
    """How a token is written."""

    JWT = "jwt"
    CAT = "cat"


Token = Annotated[
    str | None,
    typer.Argument(
        metavar="TOKEN",
        envvar="LAPS_TOKEN",
        show_default=False,
        help="The token; - or left out: standard input.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Publish = Annotated[
    list[str] | None,
    typer.Option(metavar="PREFIX", help="May publish in and below it; '': all. Repeatable."),
]
Subscribe = Annotated[
    list[str] | None,
    typer.Option(metavar="PREFIX", help="May subscribe in and below it; '': all. Repeatable."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(token)


# -- laps token key --------------------------------------------------------------------------------


@token.command(
    "key",
    epilog="Example: laps token key issuer.jwk\n\n"
    "Example: laps token key studio.jwk --publish studio --id studio-2026",
)
def make_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the private key.")],
    algorithm: Annotated[
        Algorithm, typer.Option(help="EdDSA and ES256 have a public half, HS256 is a secret.")
    ] = Algorithm.EDDSA,
    key_id: Annotated[
        str, typer.Option("--id", metavar="KID", help="Its key id; left out: random.")
    ] = "",
    publish: Publish = None,
    subscribe: Subscribe = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over files that are there.")
    ] = False,
) -> None:
    """Make a key: FILE to sign with, and beside it what relays check with.

    FILE.pub.json (without the ending of FILE) holds the public half as a JSON Web Key set. With
    --publish or --subscribe, tokens of this key can grant nothing beyond.
    """
    made = write_jwk(generate(algorithm, key_id), private=True)
    if publish or subscribe:
        made["scope"] = {"put": publish or [], "get": subscribe or []}
    key = read_jwk(made, "")
    if algorithm is Algorithm.HS256:
        write_keys({file: made}, force=force)
        _say(f"{file}: the secret {key.id}. A relay needs this file itself: keep it from others.")
        return
    public = file.with_name(f"{file.stem}{PUBLIC}")
    write_keys({file: made, public: {"keys": [public_half(made)]}}, force=force)
    _say(f"{file}: the private half of {key.id}, to sign with. Nobody else should read it.")
    _say(f"{public}: the public half, for relays.")


# -- laps token bound ------------------------------------------------------------------------------


@token.command(
    epilog="Example: laps token bound alpha.pub.json --node '1:*' --namespace alpha --carries none "
    "> peers/alpha.json\n\n"
    "Example: laps token bound via.pub.json --node 7:1 --role via > peers/via.json",
)
def bound(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The public key of a relay.")],
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="It may be this node: 1:100, 1:* or *. Repeatable."),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help="edge, via, stub or control. Repeatable."),
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="It may be there. Repeatable.")
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="PREFIX", help="It may offer what is in and below it. Repeatable."),
    ] = None,
    carries: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help=f"It may tell of this node: 1:100, 1:*, * or {NOBODY}. Repeatable."
        ),
    ] = None,
) -> None:
    """Print the public key of a peer with what its relay may be and say, for `peering.keys`.

    What is left out is not bounded.
    """
    carried = [] if carries == [NOBODY] else carries
    given = {"nodes": node, "roles": role, "regions": region}
    given |= {"namespaces": namespace, "carries": carried}
    bounds = {name: said for name, said in given.items() if said is not None}
    found = read_keys(file)
    if not bounds:
        raise ConfigError("nothing would be bounded: give --node, --namespace, --carries or others")
    made = [{**write_jwk(key, private=False), "laps": bounds} for key in found]
    for jwk in made:
        read_jwk(jwk, "")  # what is wrong in the bounds is said here, not when a relay starts
    typer.echo(json.dumps({"keys": made}, indent=2))


# -- laps token sign -------------------------------------------------------------------------------


@token.command(
    epilog="Example: laps token sign --key issuer.jwk --publish live/cam --expires 8h\n\n"
    "Example: laps token sign --key issuer.jwk --subscribe '' --limit subscriptions=10\n\n"
    "Example: laps token sign --key issuer.jwk --subscribe live --format cat",
)
def sign(
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="The private key, of `laps token key`.")
    ],
    publish: Publish = None,
    subscribe: Subscribe = None,
    expires: Annotated[
        str, typer.Option(metavar="TIME", help="How long it is valid: 90s, 15m, 8h, 30d or never.")
    ] = EXPIRES,
    subject: Annotated[str, typer.Option(metavar="WHO", help="Whom it is for, for logs.")] = "",
    audience: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Relays that take it; left out: all. Repeatable."),
    ] = None,
    token_id: Annotated[
        str, typer.Option("--id", metavar="ID", help="To revoke it by; left out: random.")
    ] = "",
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N", help=f"One of {', '.join(LIMITS)}. Repeatable."),
    ] = None,
    written: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.JWT,
) -> None:
    """Sign a token and print it. A token that grants neither is refused: give one or both."""
    if not publish and not subscribe:
        raise ConfigError("the token would allow nothing: give --publish PREFIX or --subscribe ...")
    now = int(time.time())
    terms = issue.Terms(
        publish=tuple(namespace_of(prefix, prefix=True) for prefix in publish or ()),
        subscribe=tuple(namespace_of(prefix, prefix=True) for prefix in subscribe or ()),
        subject=subject,
        audience=tuple(audience or ()),
        id=token_id or secrets.token_hex(8),
        issued=now,
        expires=_expires(expires, now),
        limits=_limits(limit or ()),
    )
    by = read_keys(key).signer()
    if written is Format.CAT:
        made = write_base64url(issue.issue_cat(terms, by))
    else:
        made = issue.issue_jwt(terms, by)
    # What relays would refuse, as it is too long or beyond its key, is refused here.
    Verifier(KeySet([by]), audience=terms.audience).verify(OUT_OF_BAND, made.encode(), now)
    typer.echo(made)


def _expires(text: str, now: int) -> int | None:
    if text == NEVER:
        return None
    seconds = read_duration(text)
    if not seconds:
        raise ConfigError(f"--expires {quote(text)}: write it like 90s, 15m, 8h, 30d, or {NEVER}")
    return now + max(1, int(seconds))


def _limits(given: Iterable[str]) -> Limits:
    limits: dict[str, int] = {}
    for text in given:
        name, _, number = text.partition("=")
        if name not in LIMITS:
            raise ConfigError(f"--limit {quote(text)}: no such limit{suggest(name, LIMITS)}")
        if not (number.isascii() and number.isdigit() and len(number) <= 15):
            raise ConfigError(f"--limit {quote(text)}: write it like {name}=10")
        limits[name] = int(number)
    return Limits(**limits)


# -- laps token show -------------------------------------------------------------------------------


@token.command(epilog="Example: laps token show < token.txt\n\nExample: laps token show --json")
def show(text: Token = None, as_json: AsJson = False) -> None:
    """Print what a token says, without checking it: anybody can write one that says the same."""
    given = _read(text)
    binary = as_cat(given)
    kind = Format.JWT if binary is None else Format.CAT
    header: Any
    header, claims = jwt.peek(given) if binary is None else cat.peek(binary)
    if as_json:
        said = {"checked": False, "format": kind, "header": header, "claims": claims}
        typer.echo(json.dumps(said, indent=2, default=_json))
        return
    _print(f"not checked: a {kind.upper()} that anybody could have written")
    for name, value in {**header, **claims}.items():
        _print(f"  {name:<10}  {_value(name, value)}")
    try:
        _print_allowed(_claims(given).scopes)
    except AuthError as error:
        _print(f"relays would refuse it: {error}")


def _claims(given: bytes) -> Claims:
    binary = as_cat(given)
    if binary is None:
        return jwt.read_claims(jwt.read_sealed(given).payload)
    return cat.read_claims(cose.read_sealed(binary).payload)


def _value(name: str, value: object) -> str:
    if name in ("exp", "nbf", "iat") and type(value) is int and 0 <= value < 1e11:
        return f"{value}, {_time(value)}"
    return json.dumps(value, default=_json) if not isinstance(value, str) else value


def _json(value: object) -> str:
    """Bytes of a CAT for JSON."""
    return bytes_text(value) if isinstance(value, bytes) else str(value)


# -- laps token check ------------------------------------------------------------------------------


@token.command(
    epilog="Example: laps token check --keys keys < token.txt\n\n"
    "Example: laps token check --keys issuer.pub.json --may publish --namespace live/cam TOKEN",
)
def check(
    keys: Annotated[
        Path, typer.Option(metavar="PATH", help="The keys of the relay: a file or a folder.")
    ],
    text: Token = None,
    revoked: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What is revoked; left out: the file beside the keys."),
    ] = None,
    audience: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Names of the relay. Repeatable.")
    ] = None,
    may: Annotated[
        str | None,
        typer.Option(metavar="ACTION", help=f"Ask for one of {', '.join(ACTIONS)}."),
    ] = None,
    namespace: Annotated[
        str, typer.Option(metavar="NAMESPACE", help="What the action is on, like live/cam.")
    ] = "",
    track: Annotated[
        str | None, typer.Option(metavar="TRACK", help="The name; left out: any name in there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a token as a relay with these keys would. Exit status 1 if it is refused.

    With --may it is asked for one action too: exit status 1 if the token does not allow it.
    """
    action = None if may is None else _action(may)
    verifier = Verifier(*KeyFiles(keys, revoked).read(), audience=audience or ())
    given = _read(text)
    now = time.time()
    try:
        grant = verifier.verify(OUT_OF_BAND, given, now)
    except AuthError as error:
        if not as_json:
            raise
        said = {"ok": False, "reason": error.reason, "words": str(error)}
        typer.echo(json.dumps(said, indent=2))
        raise typer.Exit(1) from None
    parts = namespace_of(namespace, prefix=True)
    allowed = action is None or _allows(grant, action, parts, track)
    if as_json:
        typer.echo(json.dumps(_as_mapping(grant, allowed), indent=2))
    else:
        _print(_summary(grant, now))
        _print_allowed(grant.scopes)
    if allowed:
        return
    if as_json:
        raise typer.Exit(1)
    what = " ".join(filter(None, (namespace_text(parts), track)))
    raise LapsError(f"the token does not allow {may} {what}".rstrip())


def _allows(grant: Grant, action: Action, namespace: Namespace, track: str | None) -> bool:
    """As a relay asks a grant: a watcher may name a prefix of what it may see."""
    if action is Action.SUBSCRIBE_NAMESPACE:
        return grant.may_watch(namespace)
    return grant.allows(action, namespace, None if track is None else track.encode())


def _action(name: str) -> Action:
    wanted = name.lower().replace("_", "-")
    if wanted not in ACTIONS:
        raise ConfigError(f"--may {quote(name)}: no such action{suggest(wanted, ACTIONS)}")
    return ACTIONS[wanted]


def _summary(grant: Grant, now: float) -> str:
    until = "for ever"
    if grant.until is not None:
        until = f"until {_time(grant.until)}, {duration(grant.until - now)} from now"
    name = f", token {grant.id}" if grant.id else ""
    return f"ok: {grant.subject or 'nobody by name'}, key {grant.key_id}{name}, {until}"


def _as_mapping(grant: Grant, allowed: bool) -> dict[str, object]:
    """A grant for a program; null stands for what it does not limit."""
    return {
        "ok": allowed,
        "reason": None if allowed else "not_allowed",
        "subject": grant.subject,
        "id": grant.id,
        "key": grant.key_id,
        "until": grant.until,
        "revalidate_s": grant.revalidate_s,
        "limits": dataclasses.asdict(grant.limits),
        "allows": list(_described(grant.scopes)),
    }


# -- words -----------------------------------------------------------------------------------------


def _print_allowed(scopes: Sequence[Scope]) -> None:
    _print("allows" if scopes else "allows nothing")
    for line in _described(scopes):
        _print(f"  {line}")


def _described(scopes: Iterable[Scope]) -> Iterator[str]:
    """Each scope in a line: what, where, which tracks."""
    for scope in scopes:
        actions = ", ".join(action.text for action in sorted(scope.actions))
        if scope.actions <= {Action.CLIENT_SETUP, Action.SERVER_SETUP}:
            yield actions
            continue
        fields = [*map(_match, scope.namespace), *([] if scope.ends else ["…"])]
        track = "any track" if scope.track is None else f"track {_match(scope.track)}"
        yield f"{actions}: {'/'.join(fields)} {track}"


def _match(match: Match) -> str:
    text = bytes_text(match.value)
    if match.type is MatchType.PREFIX:
        return f"{text}*"
    return f"*{text}" if match.type is MatchType.SUFFIX else text


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _read(text: str | None) -> bytes:
    """The token of the argument, of LAPS_TOKEN or of standard input."""
    if text is not None and text != "-":
        return text.strip().encode(errors="surrogateescape")
    if sys.stdin.isatty():
        raise ConfigError("give a token: as an argument, in LAPS_TOKEN or on standard input")
    # One byte more than is taken shows that it is too much; a line has an end besides.
    given = sys.stdin.buffer.read(MAX_TOKEN_BYTES + 3)
    given = given.strip() if given.isascii() else given  # a CAT may be binary
    if not given:
        raise ConfigError("there is no token on standard input, in LAPS_TOKEN or as an argument")
    return given


def _print(line: str) -> None:
    typer.echo(visible(line))


def _say(line: str) -> None:
    typer.echo(visible(line), err=True)
