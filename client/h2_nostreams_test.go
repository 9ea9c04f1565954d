package client

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A server that allows no stream on its first connection does not hold up its host. Another
// connection takes the requests, although the first one is dead. Where there may be only one, it is
// left after a second.
func TestHTTP2ServerAllowsNoStream(t *testing.T) {
	for name, tr := range map[string]*Transport{
		"any number of connections": {},
		"one connection":            {MaxConnsPerHost: 1},
		"strict":                    {HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conns atomic.Int32
			url := scripted(t, func(c net.Conn, r *bufio.Reader) {
				io.ReadFull(r, make([]byte, len(http2.ClientPreface)))
				fr := http2.NewFramer(c, r)
				first := conns.Add(1) == 1
				fr.WriteSettings()
				for acks := 0; ; {
					f, err := fr.ReadFrame()
					if err != nil {
						return
					}
					switch f := f.(type) {
					case *http2.SettingsFrame:
						if !f.IsAck() {
							fr.WriteSettingsAck()
						} else if acks++; first && acks == 2 {
							io.Copy(io.Discard, r) // it is dead from here on
						}
					case *http2.HeadersFrame:
						if first { // the client knows this when it has the answer
							fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
						}
						answer(fr, f.StreamID, "204", true)
					}
				}
			})
			overClearH2(t, tr)
			get(t, tr, url)
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				r, err := tr.RoundTrip(request(t, "GET", url, nil).WithContext(ctx))
				cancel()
				if err != nil {
					t.Fatalf("%v; %d connections: %v", err, conns.Load(), PoolOf(tr))
				}
				r.Body.Close()
			}
		})
	}
}

// A request whose head waits for its body, when the server takes back all streams, is sent on
// another connection.
func TestHTTP2HeadWaitsForAStream(t *testing.T) {
	var conns atomic.Int32
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		io.ReadFull(r, make([]byte, len(http2.ClientPreface)))
		fr := http2.NewFramer(c, r)
		if conns.Add(1) == 1 {
			fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
			io.Copy(io.Discard, r)
			return
		}
		fr.WriteSettings()
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					fr.WriteSettingsAck()
				}
			case *http2.DataFrame:
				if f.StreamEnded() {
					answer(fr, f.StreamID, "204", true)
				}
			}
		}
	})
	tr := overClearH2(t, &Transport{MaxConnsPerHost: 1})
	late := func() io.ReadCloser {
		read, write := io.Pipe()
		go func() {
			time.Sleep(50 * time.Millisecond) // the head waits for the first byte
			io.WriteString(write, "text")
			write.Close()
		}()
		return read
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req := request(t, "GET", url, late()).WithContext(ctx)
	req.GetBody = func() (io.ReadCloser, error) { return late(), nil }
	r, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatalf("%v; %d connections: %v", err, conns.Load(), PoolOf(tr))
	}
	r.Body.Close()
}

// A server that begins with no stream, and allows some a moment later, keeps its connection.
func TestHTTP2ServerAllowsStreamsLater(t *testing.T) {
	var conns atomic.Int32
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		io.ReadFull(r, make([]byte, len(http2.ClientPreface)))
		fr := http2.NewFramer(c, r)
		conns.Add(1)
		fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
		for acks := 0; ; {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					fr.WriteSettingsAck()
				} else if acks++; acks == 1 {
					time.Sleep(20 * time.Millisecond)
					fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 10})
				}
			case *http2.HeadersFrame:
				if acks < 2 {
					fr.WriteRSTStream(f.StreamID, http2.ErrCodeRefusedStream)
				} else {
					answer(fr, f.StreamID, "204", true)
				}
			}
		}
	})
	tr := overClearH2(t, &Transport{HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true}})
	for range 3 {
		get(t, tr, url)
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
