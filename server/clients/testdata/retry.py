"""Publishes once. Usage: retry.py HOST PORT"""
import sys

sys.path.pop(0)  # redis.py beside this file is not the library
import redis

client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
try:
    print("published", client.publish("news", "1"))
except redis.RedisError as error:
    print("refused", type(error).__name__)
