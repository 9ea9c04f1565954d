package websocket

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A server that speaks h2 is not offered it, and the user's Config stays as it is.
func TestDialOffersHTTP1(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	own := &Options{Engine: e, Workers: startPool(t), OnMessage: echoBack}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := Accept(w, r, own); err != nil {
			t.Error(err)
		}
	}))
	s.EnableHTTP2 = true
	var offered []string
	s.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1", "chat"},
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			offered = h.SupportedProtos
			return nil, nil
		}}
	s.StartTLS()
	defer s.Close()
	for _, tt := range []struct{ given, offered []string }{
		{nil, nil},
		{[]string{"h2", "http/1.1"}, []string{"http/1.1"}},
		{[]string{"http/1.1", "h2"}, []string{"http/1.1"}},
		{[]string{"h2"}, []string{"http/1.1"}},
		{[]string{"http/1.1"}, []string{"http/1.1"}},
		{[]string{"h2", "chat", "http/1.1"}, []string{"chat", "http/1.1"}},
	} {
		heard := make(chan string, 1)
		o := dialer(t, e, heard)
		o.TLSConfig.NextProtos = slices.Clone(tt.given)
		wantEcho(t, "wss"+strings.TrimPrefix(s.URL, "https")+"/echo", o, heard)
		if !slices.Equal(offered, tt.offered) || !slices.Equal(o.TLSConfig.NextProtos, tt.given) {
			t.Errorf("%q: offered %q; the Config has %q then", tt.given, offered, o.TLSConfig.NextProtos)
		}
	}
}

// HandshakeTimeout ends each part of Dial in time, although the peer does not close.
func TestHandshakeTimeoutIsExact(t *testing.T) {
	const timeout, tick = 300 * time.Millisecond, 10 * time.Millisecond
	for _, tt := range []struct {
		address, proxy string
		connects       bool // the proxy does its part
	}{
		{"ws", "", false}, {"wss", "", false}, {"ws", "http", false}, {"wss", "http", false}, {"ws", "https", false},
		{"wss", "https", false}, {"wss", "socks5", false}, {"ws", "http", true}, {"wss", "http", true},
	} {
		w := sim.New(1, sim.Calm())
		e, err := myriad.Start(myriad.Config{Loops: 1, System: w})
		must(t, err)
		ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) {
			if tt.connects {
				p.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
			}
		})
		must(t, err)
		o := &DialOptions{Options: Options{Engine: e, HandshakeTimeout: timeout}, Random: seeded(1)}
		if tt.proxy != "" {
			proxy := &url.URL{Scheme: tt.proxy, Host: ln.Addr().String()}
			o.Proxy = func(*http.Request) (*url.URL, error) { return proxy, nil }
		}
		began, took := w.Now(), time.Duration(-1)
		w.Go(func() {
			_, _, err = Dial(context.Background(), tt.address+"://"+ln.Addr().String(), o)
			took = w.Now().Sub(began)
		})
		w.RunFor(time.Minute)
		if !errors.Is(err, os.ErrDeadlineExceeded) || took < timeout || took > timeout+tick {
			t.Errorf("%+v: after %v: %v", tt, took, err)
		}
		noError(t, errors.Join(ln.Close(), e.Shutdown(context.Background())))
		w.Run()
		w.Check(t)
	}
}
