"""Connects with centrifuge-python, subscribes, and prints one line for everything that happens.

Usage: python client.py URL CHANNEL [TOKEN [SUBSCRIPTION-TOKEN NEXT-SUBSCRIPTION-TOKEN]]. A line on standard input is published to the channel.
"""

import asyncio
import json
import sys

from centrifuge import Client, ClientEventHandler, ReplyError, SubscriptionEventHandler


def say(*words):
    print(*words, flush=True)


class ClientEvents(ClientEventHandler):
    async def on_connected(self, ctx):
        say("connected")

    async def on_connecting(self, ctx):
        say("connecting", ctx.code, ctx.reason)

    async def on_disconnected(self, ctx):
        say("disconnected", ctx.code, ctx.reason)

    async def on_error(self, ctx):
        say("error", "connect", ctx.code, ctx.error)

    async def on_subscribed(self, ctx):
        say("server-subscribed", ctx.channel)

    async def on_publication(self, ctx):
        say("server-publication", ctx.channel, json.dumps(ctx.pub.data, separators=(",", ":")))


class SubscriptionEvents(SubscriptionEventHandler):
    async def on_subscribed(self, ctx):
        say("subscribed")

    async def on_publication(self, ctx):
        say("publication", json.dumps(ctx.pub.data, separators=(",", ":")))

    async def on_unsubscribed(self, ctx):
        say("unsubscribed", ctx.code, ctx.reason)

    async def on_error(self, ctx):
        say("subscription-error", ctx.code, ctx.error)


async def main():
    url, channel = sys.argv[1:3]
    options = {"token": sys.argv[3]} if len(sys.argv) > 3 else {}
    client = Client(url, events=ClientEvents(), min_reconnect_delay=0.1, **options)

    async def renew(_):
        say("renewed")
        return sys.argv[5]

    own = {"token": sys.argv[4], "get_token": renew} if len(sys.argv) > 5 else {}
    subscription = client.new_subscription(channel, events=SubscriptionEvents(), **own)
    await client.connect()
    await subscription.subscribe()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            await subscription.publish(json.loads(line))
            say("published")
        except ReplyError as error:
            say("publish-error", error.code)


asyncio.run(main())
