package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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

// Publications that come while the server ends are published, or not answered: each one that is
// answered reaches subscribers of other doors, and none is answered with an error.
func TestRedisPublicationsAtTheEnd(t *testing.T) {
	found, log, stop := beginUntil(t, `redis=(\S+)`, func(ctx context.Context, log io.Writer) error {
		return run(ctx, []string{"myriad", "serve", "--listen", "127.0.0.1:0", "--redis-listen", "127.0.0.1:0"}, log,
			log)
	})
	url := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(log.String())
	if url == nil {
		t.Fatalf("no address in %s", log)
	}
	events, err := http.Get(url[1] + "/events?channel=news")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	nc, err := net.Dial("tcp", found[1])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(30 * time.Second))
	go func() {
		for i := 1; ; i++ {
			if _, err := fmt.Fprintf(nc, "PUBLISH news %d\r\n", i); err != nil {
				return // the server has closed the connection
			}
		}
	}()
	received := make(chan []string, 1)
	go func() {
		var list []string
		for lines := bufio.NewScanner(events.Body); lines.Scan(); {
			if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
				list = append(list, data)
			}
		}
		received <- list
	}()
	answered := 0
	ended := make(chan error, 1)
	for r := bufio.NewReader(nc); ; answered++ {
		line, err := r.ReadString('\n')
		if err != nil {
			break
		}
		if line != ":1\r\n" {
			t.Fatalf("publication %d was answered %q", answered+1, line)
		}
		if answered == 1000 {
			go func() { ended <- stop() }()
		}
	}
	nc.Close()
	if answered < 1000 {
		t.Fatalf("%d publications were answered before the server ended; log:\n%s", answered, log)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve ended with %v", err)
	}
	list := <-received
	for i, data := range list {
		if data != fmt.Sprint(i+1) {
			t.Fatalf("received publication %s in the place of %d", data, i+1)
		}
	}
	if len(list) < answered {
		t.Errorf("%d publications were answered, and %d received", answered, len(list))
	}
}
