"""Calls the service of examples/grpc by grpcio, and prints a line for each call: what has come back."""

import sys
import threading

import grpc
from google.protobuf.wrappers_pb2 import Int64Value

channel = grpc.insecure_channel(sys.argv[1])


def method(kind, name):
    return getattr(channel, kind)(f"/myriad.sums.Sums/{name}", Int64Value.SerializeToString, Int64Value.FromString)


double = method("unary_unary", "Double")
total = method("stream_unary", "Total")
count = method("unary_stream", "Count")
running = method("stream_stream", "Running")


def numbers(n):
    return (Int64Value(value=i) for i in range(n))


def say(name, call):
    try:
        print(f"{name}: {call()}")
    except grpc.RpcError as error:
        print(f"{name}: {error.code().name} {error.details()}")


def cancelled():
    call = count(Int64Value(value=1 << 40))
    next(call)
    call.cancel()
    for _ in call:
        pass


def at_once(n):
    futures = [double.future(Int64Value(value=i)) for i in range(n)]
    return sum(f.result().value for f in futures)


def talking(n):
    """Each number is sent after the answer to the one before."""
    answered = threading.Semaphore(1)

    def questions():
        for i in range(n):
            answered.acquire()
            yield Int64Value(value=i)

    last = None
    for last in running(questions()):
        answered.release()
    return last.value


say("Double", lambda: double(Int64Value(value=21)).value)
say("Double of -1", lambda: double(Int64Value(value=-1)))
say("Total", lambda: total(numbers(1000)).value)
say("Count", lambda: sum(n.value for n in count(Int64Value(value=20_000))))
say("Running", lambda: talking(100))
say("at once", lambda: at_once(1000))
say("deadline", lambda: list(count(Int64Value(value=1 << 40), timeout=0.2)))
say("cancelled", cancelled)
say("unknown", lambda: method("unary_unary", "None")(Int64Value()))
