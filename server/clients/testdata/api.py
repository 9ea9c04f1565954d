"""Calls the API by cent, Centrifugo's client for Python, and prints a line for each call: what cent has made of the answer."""

import sys

from cent import (
    BatchRequest,
    BroadcastRequest,
    CentApiResponseError,
    CentTransportError,
    CentUnauthorizedError,
    ChannelsRequest,
    Client,
    Disconnect,
    DisconnectRequest,
    HistoryRemoveRequest,
    HistoryRequest,
    InfoRequest,
    PresenceRequest,
    PresenceStatsRequest,
    PublishRequest,
    RefreshRequest,
    SubscribeRequest,
    UnsubscribeRequest,
)

url, key = sys.argv[1:]
client = Client(url, key, timeout=60)


def say(name, call, show=lambda result: ""):
    try:
        print(f"{name}: ok {show(call())}".rstrip())
    except CentApiResponseError as error:
        print(f"{name}: error {error.code} {error.message}")
    except CentUnauthorizedError:
        print(f"{name}: unauthorized")
    except CentTransportError as error:
        print(f"{name}: status {error.status_code}")


once = PublishRequest(channel="kept:1", data={"n": 1}, idempotency_key="a", tags={"k": "v"})
say("publish", lambda: client.publish(once), lambda r: f"{r.offset} {r.epoch != ''}")
say("publish again", lambda: client.publish(once), lambda r: r.offset)
say("skip_history", lambda: client.publish(PublishRequest(channel="kept:1", data=2, skip_history=True)), lambda r: r.offset)
say("b64data", lambda: client.publish(PublishRequest(channel="news", data=None, b64data="eHg=")))
say("publish to none", lambda: client.publish(PublishRequest(channel="", data=1)))
say("broadcast", lambda: client.broadcast(BroadcastRequest(channels=["kept:1", "news", "\n"], data=3)),
    lambda r: [one.error.code if one.error else one.result.offset for one in r.responses])
say("history", lambda: client.history(HistoryRequest(channel="kept:1", limit=10)),
    lambda r: [(p.offset, p.data, p.tags) for p in r.publications])
say("history of none", lambda: client.history(HistoryRequest(channel="news")))
say("history_remove", lambda: client.history_remove(HistoryRemoveRequest(channel="kept:1")))
say("presence", lambda: client.presence(PresenceRequest(channel="kept:1")), lambda r: r.presence)
say("presence_stats", lambda: client.presence_stats(PresenceStatsRequest(channel="kept:1")), lambda r: r.num_clients)
say("channels", lambda: client.channels(ChannelsRequest(pattern="kept:*")), lambda r: r.channels)
say("info", lambda: client.info(InfoRequest()), lambda r: r.nodes[0].name)
say("subscribe", lambda: client.subscribe(SubscribeRequest(channel="news", user="ann")))
say("refresh", lambda: client.refresh(RefreshRequest(user="ann")))
say("unsubscribe", lambda: client.unsubscribe(UnsubscribeRequest(channel="kept:1", user="nobody")))
say("disconnect", lambda: client.disconnect(
    DisconnectRequest(user="nobody", whitelist=["a"], disconnect=Disconnect(code=4000, reason="enough"))))
for parallel in (False, True):
    batch = BatchRequest(requests=[PublishRequest(channel="news", data=1), InfoRequest()], parallel=parallel)
    say("batch", lambda: client.batch(batch), lambda r: (len(r.replies), r.replies[1].nodes[0].name))
client = Client(url, "wrong", timeout=60)
say("wrong key", lambda: client.info(InfoRequest()))
