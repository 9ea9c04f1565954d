//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every address with the API has the gRPC API, too: without TLS and with it, on --admin-listen, and
// on a unix socket. An address without the API speaks no HTTP/2 in the clear.
func TestServeRPC(t *testing.T) {
	cert, key := pairNames(t)
	writePair(t, cert, key, 1)
	socket := filepath.Join(t.TempDir(), "s")
	for _, tt := range []struct {
		name, log string // log is a line's part with the address of the API
		args      []string
	}{
		{"clear", `url=http://(\S+)`, []string{"--listen", "127.0.0.1:0"}},
		{"TLS", `url=https://(\S+)`, []string{"--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key}},
		{"admin", `admin=http://(\S+)`, []string{"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}},
		{"unix", `url=unix:(\S+)`, []string{"--listen", "unix:" + socket}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("MYRIAD_API_KEY", "k")
			found, log, stop := beginUntil(t, tt.log, func(ctx context.Context, log io.Writer) error {
				return run(ctx, append([]string{"myriad", "serve"}, tt.args...), log, log)
			})
			network := "tcp"
			if tt.name == "unix" {
				network = "unix"
			}
			client := http2Client(t, tt.name == "TLS", network, found[1])
			status, message, body := callInfo(t, client, tt.name == "TLS", "k")
			if status != "0" || message != "" || !bytes.Contains(body, []byte("myriad")) {
				t.Errorf("status %q %q, body %q", status, message, body)
			}
			status, message, _ = callInfo(t, client, tt.name == "TLS", "other")
			if status != "16" || !strings.HasPrefix(message, "the key is missing or wrong") {
				t.Errorf("with a wrong key: status %q %q", status, message)
			}
			if tt.name == "admin" {
				public := regexp.MustCompile(`url=http://(\S+)`).FindStringSubmatch(log.String())
				if _, err := http2Client(t, false, "tcp", public[1]).Get("http://server/health"); err == nil {
					t.Error("the address for clients speaks HTTP/2 in the clear")
				}
			}
			client.CloseIdleConnections()
			if err := stop(); err != nil {
				t.Errorf("serve ended with %v", err)
			}
		})
	}
}

// http2Client returns a client that speaks HTTP/2 alone, to one address.
func http2Client(t *testing.T, secure bool, network, address string) *http.Client {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	tr.Protocols.SetHTTP2(secure)
	tr.Protocols.SetUnencryptedHTTP2(!secure)
	tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// callInfo calls the method Info.
func callInfo(t *testing.T, client *http.Client, secure bool, key string) (status, message string, body []byte) {
	t.Helper()
	scheme := "http"
	if secure {
		scheme = "https"
	}
	r, err := http.NewRequest("POST", scheme+"://localhost/centrifugal.centrifugo.api.CentrifugoApi/Info",
		bytes.NewReader(make([]byte, 5)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	r.Header.Set("Authorization", "apikey "+key)
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err = io.ReadAll(answer.Body); err != nil || answer.StatusCode != 200 {
		t.Errorf("status %d, %v", answer.StatusCode, err)
	}
	end := answer.Trailer
	if answer.Header.Get("Grpc-Status") != "" { // an error is an answer of headers alone
		end = answer.Header
	}
	return end.Get("Grpc-Status"), end.Get("Grpc-Message"), body
}
