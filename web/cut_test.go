package web

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// cuts are handlers whose answers end too soon, except the first. The flags say whether the answer
// still looks complete: to HTTP/1.0, over TLS, and from net/http's server over TLS.
var cuts = []struct {
	name                    string
	answer                  func(w http.ResponseWriter, c *http.ResponseController)
	plain, secure, standard bool
}{
	{"whole", func(w http.ResponseWriter, c *http.ResponseController) { c.SetWriteDeadline(time.Unix(1, 0)) }, true,
		true, true},
	{"late", func(w http.ResponseWriter, c *http.ResponseController) {
		c.SetWriteDeadline(time.Unix(1, 0))
		io.WriteString(w, "rest")
	}, true, false, false},
	{"aborted", func(http.ResponseWriter, *http.ResponseController) { panic(http.ErrAbortHandler) }, true, false, true},
}

// An answer whose end is that of its connection and that is cut short does not look whole over TLS;
// from net/http it does after a panic. Without TLS no client can tell, with both servers.
func TestCutAnswers(t *testing.T) {
	for _, tt := range cuts {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			io.WriteString(w, "part")
			c.Flush()
			tt.answer(w, c)
		})
		for name, begin := range eachSecured(h) {
			for _, version := range []uint16{0, tls.VersionTLS12, tls.VersionTLS13} {
				want := tt.secure
				switch {
				case version == 0:
					want = tt.plain
				case name == "net/http":
					want = tt.standard
				}
				t.Run(fmt.Sprint(tt.name, " ", name, " ", version), func(t *testing.T) {
					got, err := cutAnswer(t, begin(t, version), version)
					if got != "part" || (err == nil) != want {
						t.Errorf("got %q, %v; whole %t is wanted", got, err, want)
					}
				})
			}
		}
	}
}

// cutAnswer is the body of an answer to HTTP/1.0, and how it ends.
func cutAnswer(t *testing.T, addr string, version uint16) (body string, err error) {
	t.Helper()
	nc := dial(t, &fixture{addr: addr})
	defer nc.Close()
	if version != 0 {
		nc = tls.Client(nc, trusting())
	}
	io.WriteString(nc, "GET / HTTP/1.0\r\n\r\n")
	all, err := io.ReadAll(nc)
	_, body, _ = strings.Cut(string(all), "\r\n\r\n")
	return body, err
}

// eachSecured are ways to serve h with a version of TLS, or without for 0; each gives its address.
func eachSecured(h http.Handler) map[string]func(t *testing.T, version uint16) string {
	config := func(version uint16) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{pair()}, MinVersion: version, MaxVersion: version}
	}
	accepting := func(s serves) func(t *testing.T, version uint16) string {
		return func(t *testing.T, version uint16) string {
			return begin(t, s, func(l net.Listener) net.Listener {
				if version == 0 {
					return l
				}
				return tls.NewListener(l, config(version))
			})
		}
	}
	ours := func(driver string, run func(s *Server, t *testing.T,
		version uint16) string) func(t *testing.T, version uint16) string {
		return func(t *testing.T, version uint16) string {
			s := &Server{Handler: h}
			prepare(t, s, myriad.Config{Loops: 1, Driver: driver})
			return run(s, t, version)
		}
	}
	foreign := func(s *Server, t *testing.T, version uint16) string { return accepting(s)(t, version) }
	own := func(s *Server, t *testing.T, version uint16) string {
		listen := func() (*Listener, error) { return s.Listen("tcp", "127.0.0.1:0") }
		if s.TLSConfig = config(version); version != 0 {
			listen = func() (*Listener, error) { return s.ListenTLS("tcp", "127.0.0.1:0", "", "") }
		}
		ln, err := listen()
		if err != nil {
			t.Fatal(err)
		}
		return ln.Addr().String()
	}
	return map[string]func(t *testing.T, version uint16) string{
		"net/http": func(t *testing.T, version uint16) string {
			return accepting(&http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)})(t, version)
		},
		"here": ours("", own), "std": ours("std", own), "listener": ours("", foreign),
		"listener, std": ours("std", foreign),
	}
}
