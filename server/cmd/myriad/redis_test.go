package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The command serves clients of Redis, which publish to all others.
func TestServeRedis(t *testing.T) {
	_, log, stop := beginUntil(t, "clients of Redis", func(ctx context.Context, log io.Writer) error {
		return run(ctx, []string{"myriad", "serve", "--listen", "127.0.0.1:0", "--redis-listen", "127.0.0.1:0"}, log,
			log)
	})
	found := regexp.MustCompile(`redis=(\S+)`).FindStringSubmatch(log.String())
	if found == nil {
		t.Fatalf("no address in %s", log)
	}
	nc, err := net.Dial("tcp", found[1])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprint(nc, "PUBLISH news hello\r\nPING\r\n")
	r := bufio.NewReader(nc)
	for _, want := range []string{":0\r\n", "+PONG\r\n"} {
		if got, err := r.ReadString('\n'); got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

// An address that others can reach needs a key and a secret.
func TestRedisExposure(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:6380": "", "unix:/tmp/s": "", "0.0.0.0:6380": "can be reached from other machines",
		"fd:3":     "cannot be inherited",
		"nonsense": "write HOST:PORT",
	} {
		all, err := settings{listen: "127.0.0.1:8000", redisListen: text}.addresses()
		if err == nil {
			_, err = all.checkExposure("", true)
		}
		if want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("--redis-listen %s: %v, want %q", text, err, want)
		}
	}
}
