package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/resp"
)

// start runs the program until the test ends, or stop is called.
func start(t *testing.T, c config) (addr string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	listening, done := make(chan string, 1), make(chan error, 1)
	c.listen = "127.0.0.1:0"
	go func() { done <- run(ctx, c, func(addr string) { listening <- addr }) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	select {
	case addr = <-listening:
	case err := <-done:
		t.Fatal(err)
	}
	return addr, stop
}

func client(t *testing.T, addr string) func(args ...string) string {
	c := &resp.Client{Addr: addr}
	t.Cleanup(func() { c.Close() })
	return func(args ...string) string {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		v, err := c.Do(ctx, args...)
		if err != nil {
			return "error: " + err.Error()
		}
		return v.String()
	}
}

func TestCommands(t *testing.T) {
	addr, _ := start(t, config{})
	do := client(t, addr)
	for _, tt := range [][2]string{
		{"SET a 1", "OK"}, {"GET a", "1"}, {"GET none", "null"}, {"INCR a", "2"}, {"INCRBY a 40", "42"}, {"DECR a",
			"41"},
		{"INCR n", "1"}, {"SET s x", "OK"}, {"INCR s", "error: ERR value is not an integer or out of range"},
		{"MSET x 1 y 2", "OK"}, {"MGET x y none", "[1 2 null]"}, {"MSET x",
			"error: ERR wrong number of arguments for 'mset' command"},
		{"HSET h f 1 g 2", "2"}, {"HSET h f 3", "0"}, {"HGET h f", "3"}, {"HGET h none", "null"}, {"HLEN h", "2"},
		{"HINCRBY h f 2", "5"}, {"HDEL h g none", "1"}, {"HGETALL h", "[f 5]"}, {"TYPE h", "hash"}, {"TYPE a",
			"string"},
		{"TYPE none", "none"}, {"GET h", "error: " + wrongType}, {"HGET a f", "error: " + wrongType}, {"HGETALL none",
			"[]"},
		{"DEL x y none", "2"}, {"EXISTS a a none", "2"}, {"TTL a", "-1"}, {"TTL none", "-2"}, {"EXPIRE a 100", "1"},
		{"TTL a", "100"}, {"PERSIST a", "1"}, {"TTL a", "-1"}, {"SET a 2 NX", "null"}, {"SET b 2 XX", "null"},
		{"SET b 2 NX EX 50", "OK"}, {"TTL b", "50"}, {"SET b 3", "OK"}, {"TTL b", "-1"}, {"SET b 3 EX",
			"error: ERR syntax error"},
		{"SET b 3 EX 0", "error: ERR invalid expire time in 'set' command"}, {"KEYS a*", "[a]"}, {"HDEL h f", "1"},
		{"EXISTS h", "0"}, {"EXPIRE a 0", "1"}, {"GET a", "null"}, {"FLUSHALL", "OK"}, {"DBSIZE", "0"}, {"SELECT 0",
			"OK"},
		{"SELECT 1", "error: ERR DB index is out of range"}, {"SAVE", "error: ERR start with --file to save"},
		{"PUBLISH c m", "0"},
	} {
		if got := do(strings.Fields(tt[0])...); got != tt[1] {
			t.Errorf("%s: %q, want %q", tt[0], got, tt[1])
		}
	}
	if got := do("INFO"); !strings.Contains(got, "redis_version:") {
		t.Errorf("INFO: %q", got)
	}
}

// Keys go at their time, whether they are asked for or not.
func TestExpiry(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newStore(func() time.Time { return now })
	for i := range 1000 {
		s.set(fmt.Append(nil, i), []byte("v"), now.Add(time.Duration(i+1)*time.Second).UnixNano())
	}
	now = now.Add(500 * time.Second)
	if s.exists([]byte("499")) || !s.exists([]byte("500")) {
		t.Error("a key is there for too long, or not long enough")
	}
	for range 16 {
		s.sweep()
	}
	if s.size() != 500 || s.expiry.Load() != 500 {
		t.Errorf("%d keys are left, %d of them with a time", s.size(), s.expiry.Load())
	}
}

func TestSnapshot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snapshot")
	addr, stop := start(t, config{file: file})
	do := client(t, addr)
	for i := range 500 {
		do("SET", fmt.Sprint("k", i), strings.Repeat("v", i*20))
	}
	do("HSET", "h", "a", "1", "b", "\r\n\x00")
	do("SET", "t", "x", "EX", "100")
	if got := do("SAVE"); got != "OK" {
		t.Fatal(got)
	}
	do("SET", "late", "x")
	stop()
	addr, stop = start(t, config{file: file})
	do = client(t, addr)
	if got := do("DBSIZE"); got != "503" {
		t.Errorf("%s keys", got)
	}
	if got := do("GET", "k499"); got != strings.Repeat("v", 9980) {
		t.Errorf("k499 is %.20q", got)
	}
	if got := do("HGET", "h", "b") + do("TTL", "t"); got != "\r\n\x00100" && got != "\r\n\x0099" {
		t.Errorf("%q", got)
	}
	stop()
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, whole[:len(whole)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newStore(time.Now).load(file); err == nil || !strings.Contains(err.Error(), "ends in the middle") {
		t.Errorf("a file without its end: %v", err)
	}
}

// tool is a program of the package redis-tools.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("MYRIAD_REQUIRE_CLIENTS") != "" {
			t.Fatal(err)
		}
		t.Skip(name + " is not installed")
	}
	return path
}

func TestRedisBenchmark(t *testing.T) {
	path := tool(t, "redis-benchmark")
	addr, _ := start(t, config{slow: 1, delay: time.Millisecond})
	port := addr[strings.LastIndexByte(addr, ':')+1:]
	for _, pipeline := range []string{"1", "16"} {
		out, err := exec.Command(path, "-p", port, "-t", "set,get,incr,hset,mset", "-n", "2000", "-c", "20", "-P",
			pipeline,
			"--csv").CombinedOutput()
		for _, want := range []string{`"SET"`, `"GET"`, `"INCR"`, `"HSET"`, `"MSET (10 keys)"`} {
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("redis-benchmark -P %s: %v, without %s: %s", pipeline, err, want, out)
			}
		}
		if strings.Contains(strings.ToLower(string(out)), "error") {
			t.Errorf("redis-benchmark -P %s: %s", pipeline, out)
		}
	}
}

func TestRedisCLI(t *testing.T) {
	path := tool(t, "redis-cli")
	addr, _ := start(t, config{password: "pw"})
	port := addr[strings.LastIndexByte(addr, ':')+1:]
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"set", "k", "v"}, "OK\n"}, {[]string{"get", "k"}, "v\n"}, {[]string{"-3", "hset", "h", "a", "1"},
			"1\n"},
		{[]string{"-3", "hgetall", "h"}, "a 1\n"}, {[]string{"--no-raw", "get", "none"}, "(nil)\n"},
		{[]string{"nope"}, "ERR unknown command 'nope', with args beginning with: \n\n"}, {[]string{"client", "id"},
			""},
		{[]string{"info"}, "# Server"}, {[]string{"command", "docs", "get"},
			"get\nsummary\nGet the string value of a key.\n"},
	} {
		cmd := exec.Command(path, append([]string{"-p", port, "-a", "pw", "--no-auth-warning"}, tt.args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), tt.want) {
			t.Errorf("redis-cli %q: %q, %v; want %q", tt.args, out, err, tt.want)
		}
	}
}
