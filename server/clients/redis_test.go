package clients

import (
	"net"
	"strconv"
	"testing"
)

// redisLibraries are client libraries for Redis, unmodified, and the scripts that use them.
var redisLibraries = []library{
	{"redis-py", func(t *testing.T, args ...string) *process {
		return python(t, "redis", "testdata/redis.py",
			args...)
	}},
	{"ioredis", func(t *testing.T, args ...string) *process {
		return node(t, "ioredis", "testdata/redis.mjs",
			args...)
	}},
}

// eachRedisLibrary runs the scripts in both protocols against the server at addr.
func eachRedisLibrary(t *testing.T, addr, what string, password ...string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, lib := range redisLibraries {
		for protocol := 2; protocol <= 3; protocol++ {
			t.Run(lib.name+" RESP"+strconv.Itoa(protocol), func(t *testing.T) {
				args := append([]string{host, port, strconv.Itoa(protocol), what}, password...)
				lib.run(t, args...).want(`^ok$`)
			})
		}
	}
}

// A store on package resp is one of Redis to client libraries.
func TestRedisLibrariesAndStore(t *testing.T) {
	t.Parallel()
	p := example(t, "kv", "--password", "pw")
	eachRedisLibrary(t, p.want(`serving on (\S+)$`)[1], "store", "pw")
}

// The push server's door serves what those libraries do with channels.
func TestRedisLibrariesAndDoor(t *testing.T) {
	t.Parallel()
	s := serve(t, "--redis-listen", "127.0.0.1:0")
	eachRedisLibrary(t, s.redis(), "door")
}

// redis is the address of the door for Redis.
func (s server) redis() string {
	s.t.Helper()
	return s.want(`redis=(\S+)`)[1]
}
