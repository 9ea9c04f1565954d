"""Speaks to a server with redis-py and prints "ok" if all of its answers are right.

Usage: python redis.py HOST PORT PROTOCOL store|door|listen [PASSWORD]
"""

import sys

sys.path.pop(0)  # this file has the library's name
import redis

host, port, protocol, what, password = (*sys.argv[1:], None)[:5]
client = redis.Redis(
    host=host, port=int(port), protocol=int(protocol), password=password, decode_responses=True, client_name="test"
)


def same(got, want):
    if got != want:
        raise SystemExit(f"got {got!r}, want {want!r}")


def fails(call, *args):
    try:
        call(*args)
    except redis.ResponseError as error:
        return str(error)
    raise SystemExit(f"{call} of {args} did not fail")


def message(subscription, kind):
    """The next message, which must be of that kind. It waits for confirmations too."""
    while True:
        m = subscription.get_message(timeout=100)
        if m is None:
            raise SystemExit(f"there was no {kind}")
        if m["type"] == kind:
            return m
        if not m["type"].endswith("subscribe"):
            raise SystemExit(f"got {m}, want a {kind}")


def store():
    same(client.ping(), True)
    same(client.client_getname(), "test")
    client.flushall()
    same(client.set("k", "v", ex=60), True)
    same(client.get("k"), "v")
    same(client.ttl("k") in (59, 60), True)
    same(client.get("none"), None)
    same(client.set("k", "w", nx=True), None)
    same(client.mset({"a": "1", "b": "2"}), True)
    same(client.mget("a", "none", "b"), ["1", None, "2"])
    same(client.hset("h", mapping={"x": "1", "y": "2"}), 2)
    same(client.hgetall("h"), {"x": "1", "y": "2"})
    same(client.incrby("a", 41), 42)
    same(client.exists("a", "none"), 1)
    same(client.delete("a", "b"), 2)
    same(fails(client.get, "h"), "WRONGTYPE Operation against a key holding the wrong kind of value")
    same(fails(client.incr, "k"), "value is not an integer or out of range")
    same(fails(client.execute_command, "NOPE", "x").startswith("unknown command 'NOPE'"), True)
    pipeline = client.pipeline(transaction=False)
    for i in range(1000):
        pipeline.set(f"p{i}", "x" * i)
        pipeline.get(f"p{i}")
    replies = pipeline.execute()
    same(replies[1::2], ["x" * i for i in range(1000)])
    same(client.info("server")["redis_version"], "7.0.15")
    big = "0123456789abcdef" * 65536
    same(client.set("big", big), True)
    same(client.get("big"), big)
    channels()


def door():
    same(client.ping(), True)
    channels()
    same(fails(client.get, "k").startswith("unknown command 'GET'"), True)
    same(client.pubsub_channels("none*"), [])
    sharded = client.pubsub()
    sharded.ssubscribe("shard")
    same(sharded.get_message(timeout=100)["type"], "ssubscribe")
    same(client.pubsub_shardnumsub("shard"), [("shard", 1)])
    client.spublish("shard", "hello")
    same(sharded.get_sharded_message(timeout=100), dict(type="smessage", pattern=None, channel="shard", data="hello"))
    sharded.close()
    transaction()


def transaction():
    """The library's default pipeline is a transaction."""
    subscription = client.pubsub()
    subscription.subscribe("news")
    same(message(subscription, "subscribe")["channel"], "news")
    pipeline = client.pipeline()
    pipeline.publish("news", "one").publish("news", "two").echo("three")
    same(pipeline.execute(), [1, 1, "three"])
    pipeline.publish("news", "bad").get("k")
    same("unknown command 'GET'" in fails(pipeline.execute), True)
    client.publish("news", "last")
    same([message(subscription, "message")["data"] for _ in range(3)], ["one", "two", "last"])
    subscription.close()


def channels():
    subscription = client.pubsub()
    subscription.subscribe("news", "other")
    subscription.psubscribe("n*")
    for _ in range(3):
        m = subscription.get_message(timeout=100)
        same(m["type"] in ("subscribe", "psubscribe"), True)
    same(client.pubsub_numsub("news"), [("news", 1)])
    same(client.pubsub_numpat(), 1)
    same(client.publish("news", "hello"), 2)
    same({subscription.get_message(timeout=100)["type"] for _ in range(2)}, {"message", "pmessage"})
    subscription.punsubscribe("n*")
    subscription.unsubscribe("other")
    message(subscription, "punsubscribe"), message(subscription, "unsubscribe")
    same(client.publish("other", "nobody"), 0)
    same(client.publish("news", "again"), 1)
    same(message(subscription, "message")["data"], "again")
    subscription.close()


def listen():
    """Prints each message, until it is "end". No connection is made anew meanwhile."""
    subscription = client.pubsub()
    subscription.subscribe("news")
    message(subscription, "subscribe")
    ident = client.client_id()
    print("subscribed", flush=True)
    data = ""
    while data != "end":
        data = message(subscription, "message")["data"]
        same(client.client_id(), ident)
        same(client.client_getname(), "test")
        print("got", data, flush=True)
    subscription.close()


{"store": store, "door": door, "listen": listen}[what]()
print("ok", flush=True)
