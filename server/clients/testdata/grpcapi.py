"""Calls the gRPC API with stubs of Centrifugo's api.proto, and prints a line for each call: what has come back."""

import os
import sys

import grpc

proto, addr, key, cert = sys.argv[1:]
sys.path.insert(0, os.path.dirname(proto))  # where the compiler looks for definitions
messages, services = grpc.protos_and_services(os.path.basename(proto))
options = [("grpc.max_send_message_length", 64 << 20)]
if cert:
    with open(cert, "rb") as file:
        channel = grpc.secure_channel(addr, grpc.ssl_channel_credentials(file.read()), options)
else:
    channel = grpc.insecure_channel(addr, options)
stub = services.CentrifugoApiStub(channel)
authorized = [("authorization", f"apikey {key}")]


def say(call, show=lambda result: "", name=None, metadata=authorized, compression=None, **fields):
    """Makes the call with a request that has the fields."""
    request = getattr(messages, call + "Request")(**fields)
    try:
        reply = getattr(stub, call)(request, metadata=metadata, compression=compression, timeout=60)
    except grpc.RpcError as error:
        details = {d.key: d.value for d in error.trailing_metadata()}.get("grpc-status-details-bin")
        print(f"{name or call}: {error.code().name} {error.details()}", "detailed" if details else "")
        return
    if call != "Batch" and reply.HasField("error"):
        print(f"{name or call}: error {reply.error.code} {reply.error.message}")
    elif call == "Batch":
        print(f"{name or call}: ok", [[f.name for f, _ in r.ListFields()] for r in reply.replies])
    else:
        print(f"{name or call}: ok {reply.HasField('result')} {show(reply.result)}".rstrip())


news = dict(channel="kept:1")
say("Publish", lambda r: (r.offset, r.epoch != ""), data=b'{"n": 1}', tags={"k": "v"}, idempotency_key="i", **news)
say("Publish", lambda r: r.offset, "again", data=b"other", idempotency_key="i", **news)
say("Publish", lambda r: r.offset, "bytes", data=b"\x00\xff", **news)
say("Publish", lambda r: r.offset, "gzip", data=b'"' + b"x" * 10000 + b'"', compression=grpc.Compression.Gzip, **news)
say("Publish", lambda r: r.offset, "deflate", data=b"1", compression=grpc.Compression.Deflate, **news)
say("Publish", lambda r: r.offset, "skip_history", data=b"1", skip_history=True, **news)
say("Publish", name="to none", data=b"1")
say("Publish", name="large", data=b"1" * (1 << 20), **news)
say("Broadcast", lambda r: [one.error.code or one.result.offset for one in r.responses], data=b"3",
    channels=["kept:1", "news", "\n"])
say("History", lambda r: [(p.offset, p.data[:8], dict(p.tags)) for p in r.publications], limit=-1, **news)
say("History", lambda r: [p.offset for p in r.publications], "since", limit=1,
    since=messages.StreamPosition(offset=2), **news)
say("History", name="of none", channel="news")
say("History", name="as status", channel="news", metadata=authorized + [("x-centrifugo-error-mode", "transport")])
say("Presence", lambda r: [(i.client == c, i.user) for c, i in r.presence.items()], **news)
say("PresenceStats", lambda r: (r.num_clients, r.num_users), **news)
say("Channels", lambda r: {name: c.num_clients for name, c in r.channels.items()}, pattern="kept:*")
say("Info", lambda r: [(n.name, n.num_clients, n.num_subs) for n in r.nodes])
say("Connections", lambda r: [(c.transport, list(c.state.channels)) for c in r.connections.values()])
say("Subscribe", user="ann", info=b'{"i": 1}', override=messages.SubscribeOptionOverride(
    presence=messages.BoolValue(value=False)), **news)
say("Subscribe", name="not JSON", user="ann", info=b"{", **news)
say("Subscribe", name="all_users", all_users=True, **news)
say("Disconnect", name="label_filter", user="ann", label_filter=messages.FilterNode(op="not"))
say("Unsubscribe", user="nobody", **news)
say("Disconnect", user="nobody", disconnect=messages.Disconnect(code=4000, reason="enough"), whitelist=["a"])
say("Refresh", user="nobody", expired=True)
say("Batch", parallel=True, commands=[
    messages.Command(publish=messages.PublishRequest(data=b"1", **news)), messages.Command(info={}),
    messages.Command(rpc={}), messages.Command(block_user={}), messages.Command()])
say("Batch", name="many", commands=[messages.Command()] * 300)
say("HistoryRemove", **news)
say("RPC", method="m", params=b"{}")
say("MapPublish", key="k", **news)
say("BlockUser", user="ann")
say("Info", name="wrong key", metadata=[("authorization", "apikey other")])
say("Info", name="no key", metadata=[])

futures = [stub.Publish.future(messages.PublishRequest(data=b"%d" % i, channel="many:1"), metadata=authorized)
           for i in range(1000)]
print("at once:", sum(f.result().result.offset for f in futures))
