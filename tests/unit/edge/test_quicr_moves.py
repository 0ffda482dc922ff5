"""The relay of a QUICR publisher dies, and it goes on at another one that has some of its track."""

from __future__ import annotations

from support.moqt import MoqtNet
from support.quicr import QuicrApp


def test_a_subscriber_that_has_less_than_the_next_relay_misses_nothing() -> None:
    """What the next relay had before the first one died, others may not have."""
    net = MoqtNet()
    first, following, far = net.relay("1:1"), net.relay("1:2"), net.relay("1:3")
    for relay in (first, following, far):
        net.edge(relay)
    ways = [net.wire(other, first, 10, extended=True) for other in (following, far)]
    net.wire(far, following, 10, extended=True)
    net.settle()
    post = QuicrApp(net, first).publish("demo/t")
    near, sub = net.app(following), net.app(far)
    for app in (near, sub):
        app.subscribe("demo/t")
    net.run(0.5)
    post.start(7, 0)
    post.object(7, 0, b"zero")
    net.run(0.1)
    ways[1].cut(noticed_by=())
    post.object(7, 1, b"one")
    net.run(0.1)
    assert near.places == [(7, 0), (7, 1)]
    ways[0].cut(noticed_by=())
    net.run(0.5)
    for way in ways:
        way.here.relay.link_closed(way.here, net.now)
    net.run(0.5)
    again = QuicrApp(net, following).publish("demo/t")
    net.run(0.2)
    again.start(7, 0)
    for number, payload in enumerate((b"zero", b"one", b"two")):
        again.object(7, number, payload)
    again.object(8, 0, b"next")
    net.run(10.0)
    for app in (near, sub):
        got = [(it.group, it.object_id) for s in app.subgroups for it in s.objects if not it.status]
        assert sorted(got) == [(7, 0), (7, 1), (7, 2), (8, 0)]
