"""Uses the server by httpx over one HTTP/2 connection, and prints a line for each thing: what has come back."""

import asyncio
import json
import ssl
import sys

import httpx

url, certificate = sys.argv[1:]


async def listen(client, n):
    """Reads n publications of an event stream. The first line says that it has begun."""
    connect = json.dumps({"subs": {"news": {}}})
    got = []
    async with client.stream("GET", "/connection/uni_sse", params={"cf_connect": connect}) as answer:
        async for line in answer.aiter_lines():
            if '"connect"' in line:
                yield answer.http_version
            elif '"pub"' in line:
                got.append(json.loads(line.removeprefix("data: "))["pub"]["data"])
            if len(got) == n:
                break
    yield got


async def main():
    limits = httpx.Limits(max_connections=1)
    context = ssl.create_default_context(cafile=certificate)
    async with httpx.AsyncClient(http1=False, http2=True, verify=context, base_url=url, limits=limits, timeout=120) as client:
        async def publish(data):
            answer = await client.post("/api/publish", json={"channel": "news", "data": data})
            return answer.http_version, answer.status_code, answer.json()

        print("publish", *await publish(-1))
        listeners = [listen(client, 100) for _ in range(20)]
        print("listening", *{await anext(one) for one in listeners})
        answers = await asyncio.gather(*(publish(i) for i in range(100)))
        print("at once", sum(a == ("HTTP/2", 200, {"result": {}}) for a in answers))
        print("received", sum([sorted(await anext(one)) == list(range(100)) for one in listeners]))
        large = await client.post("/api/publish", content=b"x" * 300_000)
        print("large", large.status_code)
        head = await client.head("/")
        print("head", head.status_code, len(head.content))
        print("missing", (await client.get("/none")).status_code)


asyncio.run(main())
