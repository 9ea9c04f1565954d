package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Connections to --listen from these networks begin with a PROXY header, and no others.
func TestProxyProtocolFrom(t *testing.T) {
	const ask = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
	const header = "PROXY TCP4 203.0.113.9 198.51.100.1 51234 443\r\n"
	log, _ := startOn(t, "admin=http", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--proxy-protocol-from", "10.0.0.0/8", "--proxy-protocol-from", "127.0.0.1", "--console-key", "k")
	public := regexp.MustCompile(`url=http://(\S+)`).FindStringSubmatch(log.String())[1]
	admin := regexp.MustCompile(`admin=http://(\S+)`).FindStringSubmatch(log.String())[1]
	for _, c := range []struct {
		addr, text string
		status     int // 0: the server resets the connection
	}{{public, header + ask, 200}, {public, ask, 0}, {admin, ask, 200}, {admin, header + ask, 400}} {
		nc, err := net.Dial("tcp", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
		io.WriteString(nc, c.text)
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if c.status == 0 && err == nil || c.status != 0 && (err != nil || resp.StatusCode != c.status) {
			t.Errorf("%s on %s: %v, %v; want %d", c.text[:5], c.addr, resp, err, c.status)
		}
		nc.Close()
	}
	if !strings.Contains(log.String(), "does not begin with a PROXY header") {
		t.Errorf("the log does not say why a connection was refused:\n%s", log)
	}
}
