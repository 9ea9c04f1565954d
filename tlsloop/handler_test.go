package tlsloop_test

import (
	"crypto/tls"
	"io"
	"testing"

	"github.com/myriad-go/myriad"
)

func TestEcho(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		h := echo()
		addr := listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(h)))
		cfg := clientConfig()
		cfg.MaxVersion = version
		tc := dial(t, addr, cfg)
		for _, n := range []int{1, 100, 16 << 10, 200_000} {
			msg := pattern(n)
			go io.WriteString(tc, msg)
			expect(t, tc, msg)
		}
		if err := tc.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if n, err := tc.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after our close_notify: %d bytes, %v, want io.EOF for the peer's", n, err)
		}
		tc.NetConn().Close()
		if err := await(t, "Closed", h.closes); err != nil {
			t.Errorf("Closed(%v)", err)
		}
		if v := tc.ConnectionState().Version; v != version {
			t.Errorf("version %s", tls.VersionName(v))
		}
	})
}

// The engine's own client and server, with a Write before the handshake has begun.
func TestClient(t *testing.T) {
	e := start(t, myriad.Config{})
	addr := listen(t, e, patient.Handler(serverConfig(), always(echo())))
	h, nc := myriad.Stream(0)
	c, err := e.Dial(t.Context(), "tcp", addr, patient.Client(clientConfig(), h))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("early ")); err != nil {
		t.Error(err)
	}
	msg := pattern(3_000_000)
	go func() {
		io.WriteString(nc, msg)
		nc.(interface{ CloseWrite() error }).CloseWrite()
	}()
	expect(t, nc, "early "+msg)
	if n, err := nc.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	nc.Close()
}
