"""What a configuration file and the command line may say, and how they are refused."""

import re
import tomllib
from ipaddress import ip_network
from pathlib import Path

import msgspec
import pytest

from laps.config import Config, OriginConfig, config_from_mapping, load_config, override
from laps.errors import ConfigError
from laps.types import Address, parse_node_id

SECTIONS = [name for name in Config.__struct_fields__ if name != "origins"]
"Those that there are one of."


def read(text: str) -> Config:
    return config_from_mapping(tomllib.loads(text), "laps.toml")


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_nothing_written_is_a_working_configuration() -> None:
    config = read("")
    assert config == Config()
    assert config.node.id is None
    assert config.node.type == "edge"
    assert config.peering.listen == Address("127.0.0.1", 33434)
    assert config.tls.is_self_signed
    assert config.quic.keepalive_s < config.quic.idle_timeout_s


def test_every_key_can_be_written() -> None:
    config = read("""
        [node]
        id = "1.2:1234"
        type = "via"
        contact = "relay.example"
        latitude = -33.9
        longitude = 151
        region = "oceania"
        tags = ["gold"]
        capacity_bps = 10_000_000_000
        [peering]
        listen = "[::1]:0"
        peers = ["192.0.2.1:33434", "relay.example:1"]
        control = ["192.0.2.2:33434"]
        data = ["192.0.2.3:33434"]
        connections = 4
        direction = "out"
        dead_after_s = 2.5
        authorities = "peers.pem"
fingerprints."192.0.2.3:33434" = "ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB"
        most_nodes = 1
        most_subscribes = 2
        most_namespaces = 3
        most_announces = 4
        most_sets = 5
        nodes = {"192.0.2.3:33434" = "1:100"}
        key = "relay.jwk"
        keys = "peers"
        require_auth = true
        trusted = ["192.0.2.7", "2001:db8::/32"]
        [relay]
        node_advertise_s = 1
        unsubscribe_s = 10
        hold_s = 3
        hold_bytes = 16384
        drain_s = 3
        srtt_change = 0.2
        srtt_change_ms = 5
        srtt_hold_s = 9
        reflect = true
        [demand]
        sessions = 3
        least = 2
        idle_s = 12
        [moving]
        per_minute = 4
        settled_s = 20
        near_ms = 3
        [probing]
        enabled = false
        count = 4
        rate = 0.5
        [tls]
        certificate = "cert.pem"
        key = "key.pem"
        self_signed = false
        [quic]
        idle_timeout_s = 60
        keepalive_s = 0.5
        handshake_timeout_s = 5
        max_streams_bidi = 1
        max_streams_uni = 2
        connection_window_bytes = 1_048_576
        stream_window_bytes = 65536
        udp_payload_bytes = 1200
        datagram_frame_bytes = 0
        socket_buffer_bytes = 16384
        send_buffer_bytes = 16385
        retry = "never"
        half_open_before_retry = 3
        half_open_limit = 4
        connection_limit = 5
        [egress]
        queue_bytes = 20_000
        pressure_bytes = 25_000
        quic_queue_bytes = 30_000
        datagram_queue_bytes = 40_000
        [clients]
        listen = "[::1]:0"
        advertise = "relay.example:443"
        drafts = [14]
        requests = 3
        most_tracks = 9
        join = "group"
        strict = true
        subscribe_wait_s = 0.5
        drain_s = 1
        redirect = "[2001:db8::1]:443"
        [limits]
        exempt = ["192.0.2.0/24"]
        address_sessions = 1
        address_handshakes_per_s = 2
        address_requests_per_s = 3
        address_open_requests = 4
        address_tracks = 5
        address_subscriptions = 6
        address_namespaces = 7
        address_bytes_in_per_s = 8
        address_bytes_out_per_s = 9
        address_time_share = 0.2
        address_cache_share = 0.1
        handshakes_per_s = 10
        namespaces = 11
        name_bytes = 12
        half_message_bytes = 13
        [auth]
        keys = "keys.json"
        revoked = "revoked"
        audience = ["relay.example"]
        public_publish = ["demo"]
        public_subscribe = ["demo", "live/news"]
        needs_token = false
        skew_s = 5
        [[origins]]
        name = "media.example"
        namespaces = ["live", "media.example/room"]
        ids = ["00FF"]
        api = "https://media.example/laps"
        authorities = "ca.pem"
        timeout_s = 2
        concurrent = 4
        queue = 10
        [[origins]]
        name = "other.example"
        keys = "other.pub.json"
        revoked = "gone"
        audience = ["relay.example"]
        [quicr]
        enabled = false
        subscription_s = 0
        datagrams = false
        [cache]
        bytes = 0
        track_bytes = 1
        age_s = 2
        [discovery]
        enabled = false
        [telemetry]
        enabled = false
        interval_s = 5
        history_s = 60
        history_bytes = 65536
        [policy]
        file = "policy.toml"
        key = "ed25519:BBBB"
        kept = "policy.kept"
        [plan]
        key = "ed25519:AAAA"
        file = "relay.router.plan"
        [impairment.peers]
        "127.0.0.1:40001" = {delay_ms = 40, jitter_ms = 5, drop = 0.02}
        [admin]
        enabled = false
        listen = "[::1]:0"
        token = "swordfish"
        read_token = "guppy"
    """)
    assert config.plan.file == Path("relay.router.plan")
    assert config.node.id == parse_node_id("1.2:1234")
    assert (config.node.latitude, config.node.longitude) == (-33.9, 151.0)
    assert isinstance(config.node.longitude, float)
    assert config.peering.listen == Address("::1", 0)
    assert config.peering.peers == (Address("192.0.2.1", 33434), Address("relay.example", 1))
    assert config.peering.fingerprints == ((Address("192.0.2.3", 33434), "ab" * 32),)
    assert config.peering.nodes == ((Address("192.0.2.3", 33434), parse_node_id("1:100")),)
    assert config.peering.trusted == (ip_network("192.0.2.7"), ip_network("2001:db8::/32"))
    assert config.clients.advertise == Address("relay.example", 443)
    assert config.clients.redirect == Address("2001:db8::1", 443)
    assert (config.tls.certificate, config.tls.key) == (Path("cert.pem"), Path("key.pem"))
    assert not config.tls.is_self_signed
    media, other = config.origins
    assert (media.prefixes, media.ids) == (("live", "media.example/room"), ("00ff",))
    assert (media.timeout_s, media.concurrent, media.queue) == (2.0, 4, 10)
    assert (media.api, media.authorities) == ("https://media.example/laps", Path("ca.pem"))
    assert (other.prefixes, other.keys) == (("other.example",), Path("other.pub.json"))
    assert (other.revoked, other.audience) == (Path("gone"), ("relay.example",))
    default = Config()
    for section in SECTIONS:
        written, unwritten = getattr(config, section), getattr(default, section)
        same = [
            key
            for key in written.__struct_fields__
            if getattr(written, key) == getattr(unwritten, key)
        ]
        # There are tokens already.
        assert same == (["token_file", "read_token_file"] if section == "admin" else [])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "quic.idle_timeout_s = -1",
            "quic.idle_timeout_s = -1: must be a number greater than 0, at most 3600",
        ),
        ("quic.idle_timeout_s = 0", "must be a number greater than 0, at most 3600"),
        ("quic.idle_timeout_s = 3601", "must be a number greater than 0, at most 3600"),
        ("quic.idle_timeout_s = nan", "must be a number greater than 0, at most 3600"),
        ("quic.idle_timeout_s = inf", "must be a number greater than 0, at most 3600"),
        ("quic.idle_timeout_s = true", "= true: must be a number greater than 0"),
        ('quic.idle_timeout_s = "30"', '= "30": must be a number greater than 0'),
        ("quicr.subscription_s = -1", "quicr.subscription_s = -1: must be a number from 0 to 3600"),
        ("moving.per_minute = -1", "= -1: must be a whole number from 0 to 10000"),
        ("moving.per_minute = 1.5", "= 1.5: must be a whole number from 0 to 10000"),
        ("moving.settled_s = 0", "must be a number greater than 0, at most 3600"),
        ("moving.near_ms = -1", "moving.near_ms = -1: must be a number from 0 to 1000"),
        ("quic.connection_limit = true", "= true: must be a whole number from 1 to 1000000"),
        ("quic.connection_limit = 1.0", "= 1.0: must be a whole number from 1 to 1000000"),
        ("quic.connection_limit = 0", "must be a whole number from 1 to 1000000"),
        ("quic.udp_payload_bytes = 1199", "must be a whole number from 1200 to 9000"),
        ("quic.udp_payload_bytes = 9001", "must be a whole number from 1200 to 9000"),
        ("quic.datagram_frame_bytes = -1", "must be a whole number from 0 (off) to 65536"),
        ("quic.send_buffer_bytes = 16383", "must be a whole number from 16384 to 1073741824"),
        ('quic.retry = "maybe"', '= "maybe": must be one of "auto", "always", "never"'),
        ("quic.keepalive_s = 30", "must be below quic.idle_timeout_s = 30.0"),
        ("quic.idle_timeout_s = 5", "quic.keepalive_s = 10.0: must be below quic.idle_timeout_s"),
        ('node.type = "Edge"', '= "Edge": must be one of "edge", "via", "stub", "control"'),
        ("node.latitude = 90.1", "must be a number from -90 to 90"),
        ("node.latitude = nan", "must be a number from -90 to 90"),
        ("node.longitude = -180.1", "must be a number from -180 to 180"),
        ("node.contact = 1", "node.contact = 1: must be a string"),
        ('node.id = "1.2"', 'node.id = "1.2": needs a colon: high:low, like 1.2:1234'),
        ("node.id = 1", 'node.id = 1: must be a node id in quotes, like "1.2:1234"'),
        ("node.id = 2026-01-01", "must be a node id in quotes"),
        ('peering.listen = "127.0.0.1"', "needs a port: host:port, like 127.0.0.1:33434"),
        ("peering.listen = 33434", "must be host:port in quotes"),
        ('peering.peers = "a:1"', 'must be a list like ["192.0.2.1:33434"]'),
        ("peering.peers = [1]", 'must be a list like ["192.0.2.1:33434"]'),
        ('peering.peers = ["a:1", "b"]', 'address "b" needs a port'),
        ('peering.peers = ["a:0"]', 'address "a:0" cannot be dialled'),
        (
            "clients.advertise = 1",
            'clients.advertise = 1: must be host:port in quotes, like "relay.example:33435"',
        ),
        ('clients.advertise = ""', 'clients.advertise = "": needs a port: host:port'),
        (
            'clients.advertise = "0.0.0.0:33435"',
            'clients.advertise = "0.0.0.0:33435": cannot be dialled: give the host and the port',
        ),
        ('clients.redirect = "moqt://a:1"', "has a host that is neither a name nor an IP"),
        ('clients.redirect = "a:0"', 'clients.redirect = "a:0": cannot be dialled: give the host'),
        ('clients.redirect = "[::]:1"', "cannot be dialled: give the host and the port"),
        ('clients.redirect = "[fe80::1%eth0]:1"', "cannot be dialled: give the host and the port"),
        (
            'clients.redirect = "127.0.0.1:33435"',
            'clients.redirect = "127.0.0.1:33435": is this relay itself: name another, or leave it',
        ),
        ("tls.certificate = true", "must be the path of a PEM file"),
        ('tls.certificate = ""', "must be the path of a PEM file"),
        ('tls.certificate = "c.pem"', '= "c.pem": needs its private key: set tls.key'),
        ('tls.key = "k.pem"', '= "k.pem": needs its certificate: set tls.certificate'),
        ("tls.self_signed = false", "= false: needs a certificate"),
        ("tls.self_signed = 1", "must be true or false"),
        ('tls = {certificate = "c", key = "k", self_signed = true}', 'tls.certificate = "c"'),
        ("node = 3", "node = 3: must be a section: [node]"),
        ('peering.direction = "in"', '= "in": must be "both" or "out"'),
        ('peering.fingerprints = "ab"', "must be a table like"),
        ('peering.fingerprints."192.0.2.1:1" = "ab"', "is no SHA-256 in hexadecimal"),
        (f'peering.fingerprints."192.0.2.1:1" = "{"ab" * 32}"', "is not dialled: name it as in"),
        ("impairment.peers = 3", "impairment.peers = 3: must be a table like"),
        ('impairment.peers."127.0.0.1:1".drop = 1.1', "drop from 0 to 1"),
        (
            'impairment.peers."127.0.0.1:1".delay = 1',
            "has delay; known: delay_ms, jitter_ms, drop, bandwidth_mbit",
        ),
        ('impairment.peers."host:1".drop = 1', "must be the IP address and port that is dialled"),
    ],
)
def test_a_bad_value_is_refused_with_what_would_be_right(line: str, problem: str) -> None:
    message = refusal(line)
    assert message.startswith("laps.toml: ")
    assert problem in message


def test_an_unknown_key_is_named_with_the_nearest_and_all_known() -> None:
    assert refusal("[egress]\nqueue_byte = 3") == (
        "laps.toml: egress.queue_byte = 3: unknown key, did you mean queue_bytes? "
        "known in [egress]: queue_bytes, pressure_bytes, quic_queue_bytes, datagram_queue_bytes"
    )


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("[qiuc]", "laps.toml: [qiuc]: unknown section, did you mean quic? known: node, peering,"),
        ("[zzzzz]\na = 1", "laps.toml: [zzzzz]: unknown section; known: node, peering,"),
        ("id = 3", "laps.toml: id = 3: unknown section"),
        ('["a\\nb"]', 'laps.toml: ["a\\nb"]: unknown section'),
        ('[node]\n"a.b" = 1', 'laps.toml: node."a.b" = 1: unknown key'),
        ("[node.id]\na = 1", 'laps.toml: node.id = {"a": 1}: must be a node id'),
    ],
)
def test_what_is_unknown_is_never_ignored(text: str, start: str) -> None:
    assert refusal(text).startswith(start)


def test_a_long_value_is_cut() -> None:
    assert len(refusal(f'node.id = "{"1" * 5000}"')) < 200


def test_every_field_says_what_would_be_right() -> None:
    for key in OriginConfig.__struct_fields__:
        with pytest.raises(ConfigError, match=rf"x: origins\[1\]: {key} = \[\[\]\]: must be "):
            config_from_mapping({"origins": [{key: [[]]}]}, "x")
    for section in SECTIONS:
        for key in getattr(Config(), section).__struct_fields__:
            is_token = section == "admin" and key in ("token", "read_token")
            shown = "…" if is_token else r"\[\[\]\]"
            with pytest.raises(ConfigError, match=rf"x: {section}\.{key} = {shown}: must be "):
                config_from_mapping({section: {key: [[]]}}, "x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'listen = "0.0.0.0:33436"',
            'laps.toml: admin.listen = "0.0.0.0:33436": is not loopback and needs a token: set ',
        ),
        ('listen = "[2001:db8::1]:1"', "is not loopback and needs a token"),
        ('listen = "relay.example:1"', "is not loopback and needs a token"),
        ('token = "a"\ntoken_file = "b"', 'admin.token_file = "b": is one token too many'),
        (
            'read_token = "a"\nread_token_file = "b"',
            'admin.read_token_file = "b": is one token too many: remove it, or admin.read_token',
        ),
    ],
)
def test_only_loopback_is_shown_without_a_token(text: str, problem: str) -> None:
    assert problem in refusal(f"[admin]\n{text}")


@pytest.mark.parametrize(
    "text",
    [
        'listen = "0.0.0.0:0"\ntoken = "a"',
        'listen = "0.0.0.0:0"\ntoken_file = "a"',
        'listen = "0.0.0.0:0"\nread_token_file = "a"',
        'listen = "localhost:0"',
        'listen = "[::1]:0"',
        'listen = "0.0.0.0:0"\nenabled = false',
    ],
)
def test_elsewhere_it_needs_one_and_is_shown_then(text: str) -> None:
    assert read(f"[admin]\n{text}").admin.listen is not None


@pytest.mark.parametrize("line", ['token = "sword fish"', 'tokn = "swordfish"', 'toke = ["sword"]'])
def test_no_refusal_repeats_a_token(line: str) -> None:
    assert "sword" not in refusal(f"[admin]\n{line}")


def test_a_configuration_that_is_printed_hides_the_token() -> None:
    config = read('[admin]\ntoken = "swordfish"\nread_token = "guppy"')
    assert config.admin.token == "swordfish"
    assert not any(text in f"{config} {config!r} {config.admin}" for text in ("swordfish", "guppy"))


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Config().quic.retry = "never"  # type: ignore[misc]


def test_the_command_line_lies_over_the_file() -> None:
    config = read('[node]\nid = "1:1"\ncontact = "a"')
    config = override(config, {"node.id": "2:2", "quic.idle_timeout_s": 20}, source="--x")
    assert config.node.id == parse_node_id("2:2")
    assert config.node.contact == "a"
    assert config.quic.idle_timeout_s == 20.0


def test_a_certificate_on_the_command_line_replaces_the_self_signed_one() -> None:
    flags = {"tls.certificate": "c.pem", "tls.key": "k.pem"}
    assert not override(read(""), flags, source="--certificate").tls.is_self_signed


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"node.id": "1"}, '--flag: node.id = "1": needs a colon: high:low, like 1.2:1234'),
        ({"quic.keepalive_s": 40}, "--flag: quic.keepalive_s = 40.0: must be below"),
        ({"quic.keepalive": 4}, "--flag: quic.keepalive = 4: unknown key, did you mean"),
        ({"nodes.id": 4}, "--flag: nodes.id = 4: unknown section, did you mean node?"),
    ],
)
def test_a_bad_flag_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(Config(), values, source="--flag")
    assert str(caught.value).startswith(message)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "laps.toml"
    path.write_text('[node]\nid = "1:1"\n')
    assert load_config(path).node.id == parse_node_id("1:1")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[node]\nid = \n", ":2: not TOML: Invalid value at line 2, column 6"),
        (b'contact = "', ": not TOML: "),
        (b"\xff", ": not TOML: not UTF-8 at byte 0"),
        (b"[node]\nid = 3", ": node.id = 3: must be a node id"),
    ],
)
def test_a_bad_file_is_named_with_the_place(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "laps.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}{words}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "none.toml")
    assert str(caught.value) == f"{tmp_path}/none.toml: cannot be read: No such file or directory"
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path)


def test_defaults_pass_their_own_checks() -> None:
    written = {
        section: {
            key: value
            for key, value in msgspec.structs.asdict(getattr(Config(), section)).items()
            if isinstance(value, (int, float, str))
        }
        for section in SECTIONS
    }
    assert config_from_mapping(written, "defaults") == Config()


@pytest.mark.parametrize(
    ("listen", "contact", "told"),
    [
        ("127.0.0.1:0", "", "127.0.0.1:7"),
        ("relay.example:1", "other.example", "relay.example:7"),
        ("0.0.0.0:0", "", None),
        ("[::]:1", "", None),
        ("0.0.0.0:1", "relay.example", "relay.example:7"),
        ("0.0.0.0:1", "relay.example:33434", "relay.example:7"),
        ("0.0.0.0:1", "192.0.2.1", "192.0.2.1:7"),
        ("[::]:1", "2001:db8::1", "[2001:db8::1]:7"),
        ("[::]:1", "[2001:db8::1]:33434", "[2001:db8::1]:7"),
        ("0.0.0.0:1", "0.0.0.0:33434", None),
        ("0.0.0.0:1", "in the cellar", None),
        ("0.0.0.0:1", "x" * 254, None),
        ("[fe80::1%eth0]:1", "", None),
    ],
)
def test_others_are_told_where_clients_connect_if_they_can_dial_it(
    listen: str, contact: str, told: str | None
) -> None:
    values = {"clients.listen": listen, "node.contact": contact}
    config = override(Config(), values, "test")
    assert config.client_address(7) == (None if told is None else Address.parse(told))
    named = override(config, {"clients.advertise": "front.example:443"}, "test")
    assert named.client_address(7) == Address("front.example", 443)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("connections = 2", "connections = 2: is too many for a stub"),
        ('direction = "out"', '= "out": is not for a stub'),
        ('control = ["192.0.2.1:1"]', "is not for a stub: it dials Edges"),
        ('data = ["192.0.2.1:1"]', "is not for a stub: it dials Edges"),
    ],
)
def test_a_stub_has_one_connection_to_an_edge_for_everything(line: str, problem: str) -> None:
    assert read(f"[peering]\n{line}")
    with pytest.raises(ConfigError, match=re.escape(problem)):
        read(f'[node]\ntype = "stub"\n[peering]\n{line}')


def test_a_peer_is_dialled_for_control_once() -> None:
    for text in (
        '[peering]\npeers = ["192.0.2.1:1", "192.0.2.1:1"]',
        '[peering]\npeers = ["192.0.2.1:1"]\ncontrol = ["192.0.2.1:1"]',
    ):
        with pytest.raises(ConfigError, match="dialled for control more than once"):
            read(text)
    assert read('[peering]\ncontrol = ["192.0.2.1:1"]\ndata = ["192.0.2.1:1"]')


# -- origins ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('name = "a"', 'origins[1]: name = "a": has nobody who decides: set keys or api'),
        ('name = "a"\napi = "https://a"\nkeys = "k"', "has both keys and an api"),
        ('api = "https://a"', "origins[1]: name is missing: give a name like"),
        ('name = "a/b"\nkeys = "k"', "no slash"),
        ('name = "a"\napi = "a.example"', "is no URL of HTTPS"),
        ('name = "a"\napi = "ftp://a"', "is no URL of HTTPS"),
        ('name = "a"\napi = "https://u:p@a"', "must have no user"),
        ('name = "a"\napi = "https://a:x"', "is no URL"),
        ('name = "a"\napi = "http://a.example"', "would send tokens in the clear: write https"),
        ('name = "a"\napi = "http://192.0.2.1/x"', "would send tokens in the clear"),
        ('name = "a"\nkeys = "k"\nauthorities = "ca"', "means nothing without api"),
        ('name = "a"\napi = "https://a"\naudience = ["x"]', "means nothing without keys"),
        ('name = "a"\nkeys = "k"\nnamespaces = ["x//y"]', "is no namespace"),
        ('name = "a"\nkeys = "k"\nnamespaces = ["laps/plan"]', "is what relays publish"),
        ('name = "laps"\nkeys = "k"', "is what relays publish"),
        ('name = "a"\nkeys = "k"\nids = ["0g"]', "must be 1 to 32 hexadecimal digits"),
        ('name = "a"\nkeys = "k"\ntimeout_s = 0', "must be a number from 0.1 to 60"),
        ('name = "a"\nkeys = "k"\nkey = 1', "unknown key, did you mean keys?"),
        (
            'name = "a"\nkeys = "k"\n[[origins]]\nname = "b"\nkeys = "k"\nnamespaces = ["a"]',
            'origins[2]: namespaces = "a": is that of the origin "a" already',
        ),
        (
            'name = "a"\nkeys = "k"\n[[origins]]\nname = "a"\nkeys = "k"\nnamespaces = ["b"]',
            'origins[2]: name = "a": is that of origins[1] already',
        ),
    ],
)
def test_an_origin_is_refused_with_what_would_be_right(lines: str, problem: str) -> None:
    assert problem in refusal(f"[[origins]]\n{lines}")


def test_an_origin_on_this_machine_may_be_asked_in_the_clear() -> None:
    for host in ("127.0.0.1", "[::1]", "localhost"):
        (origin,) = read(f'[[origins]]\nname = "a"\napi = "http://{host}:8/x"').origins
        assert origin.api == f"http://{host}:8/x"


def test_origins_are_tables_and_come_from_a_file() -> None:
    assert "must be tables: [[origins]]" in refusal('[origins]\nname = "a"')
    with pytest.raises(ConfigError, match=r"write them as \[\[origins\]\] in a file"):
        override(Config(), {"origins.name": "a"}, "--set")
    assert override(read('[[origins]]\nname = "a"\nkeys = "k"'), {"node.id": "1:1"}, "x").origins
