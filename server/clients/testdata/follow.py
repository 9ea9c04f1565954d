"""Follows a channel with centrifuge-python and prints one line for everything that happens.

Usage: python follow.py URL CHANNEL. On standard input: presence, stats, history.
"""

import asyncio
import json
import os
import sys

from centrifuge import Client, ClientEventHandler, SubscriptionEventHandler


def say(*words):
    print(*words, flush=True)


def truth(value):
    return "true" if value else "false"


class ClientEvents(ClientEventHandler):
    async def on_disconnected(self, ctx):
        say("disconnected", ctx.code, ctx.reason)


class SubscriptionEvents(SubscriptionEventHandler):
    async def on_subscribed(self, ctx):
        say("subscribed", truth(ctx.was_recovering), truth(ctx.recovered))

    async def on_publication(self, ctx):
        say("publication", json.dumps(ctx.pub.data, separators=(",", ":")))

    async def on_join(self, ctx):
        say("join", ctx.info.client)

    async def on_leave(self, ctx):
        say("leave", ctx.info.client)

    async def on_error(self, ctx):
        say("subscription-error", ctx.code, ctx.error)


async def answer(subscription, line):
    if line == "presence":
        say("presence", len((await subscription.presence()).clients))
    elif line == "stats":
        stats = await subscription.presence_stats()
        say("stats", stats.num_clients, stats.num_users)
    elif line == "history":
        history = await subscription.history(limit=10)
        say("history", len(history.publications), history.offset)


async def main():
    url, channel = sys.argv[1:3]
    client = Client(url, events=ClientEvents(), min_reconnect_delay=0.02, max_reconnect_delay=0.2)
    subscription = client.new_subscription(channel, events=SubscriptionEvents(), join_leave=True)
    await client.connect()
    await subscription.subscribe()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await answer(subscription, line.strip())
    os._exit(0)


asyncio.run(main())
