package web

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// asked is a request for another protocol, answered with 101.
func asked(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\n\r\n"
}

const switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"

// switcher speaks "echo" after a 101: lines come back, "bye" ends the connection, "reset" resets
// it. Before a client's FIN goes back it is told.
func switcher(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/refused":
		http.Error(w, "not here", http.StatusForbidden)
		return
	case "/other":
		take(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n", nil)
		return
	case "/broken":
		take(w, "HTTP/1.1 101 Swit", nil)
		return
	}
	take(w, switched+"hello\n", speak)
}

// take hijacks the connection, and has it speak behind a head.
func take(w http.ResponseWriter, head string, speak func(net.Conn, *bufio.Reader)) {
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer nc.Close()
	io.WriteString(nc, head)
	if speak != nil {
		speak(nc, rw.Reader)
	}
}

func speak(nc net.Conn, r *bufio.Reader) {
	for {
		line, err := r.ReadString('\n')
		switch {
		case err != nil:
			fmt.Fprintf(nc, "end %v\n", err)
			return
		case line == "bye\n":
			io.WriteString(nc, line)
			return
		case line == "reset\n":
			nc.(interface{ SetLinger(int) error }).SetLinger(0)
			return
		}
		io.WriteString(nc, line)
	}
}

// upgraders are switcher on the loop, for this server only: net/http's hijacks instead.
func upgraders(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" || errors.Is(Upgrade(w, []byte(switched+"hello\n"), new(speaker)), ErrNotMyriad) {
		switcher(w, r)
	}
}

// A speaker is speak as the handler of a conn.
type speaker struct{ line []byte }

func (*speaker) Opened(*myriad.Conn)        {}
func (*speaker) Closed(*myriad.Conn, error) {}

func (s *speaker) Received(c *myriad.Conn, p []byte) {
	s.line = append(s.line, p...)
	for {
		line, rest, ok := bytes.Cut(s.line, []byte("\n"))
		if !ok {
			return
		}
		switch string(line) {
		case "reset":
			c.Abort(nil)
			return
		case "bye":
			c.Write([]byte("bye\n"))
			c.Close()
			return
		}
		fmt.Fprintf(c, "%s\n", line)
		s.line = append([]byte(nil), rest...)
	}
}

func (s *speaker) Ended(c *myriad.Conn) {
	fmt.Fprintf(c, "end EOF\n")
	c.Close()
}

// askSwitched speaks through a proxy in all the ways that end: answered by either side, with FIN or
// reset, or refused.
func askSwitched(t *testing.T, f *fixture, r *record) {
	for _, c := range []struct {
		path, says string
		fin        bool
	}{
		{"/", "bye\n", false}, {"/", "", true}, {"/", "a\nb\n", true}, {"/", "reset\n", false},
		{"/", strings.Repeat("x", 100<<10) + "\n", true},
		{"/refused", "", true}, {"/other", "", true}, {"/broken", "", true},
	} {
		conn := dial(t, f)
		in := bufio.NewReader(conn)
		io.WriteString(conn, asked(c.path))
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			r.add("%s: %v", c.path, err)
			continue
		}
		delete(resp.Header, "Date")
		r.add("%s: %s %s", c.path, resp.Status, sorted(resp.Header))
		if resp.StatusCode != http.StatusSwitchingProtocols {
			body, err := io.ReadAll(resp.Body)
			r.add("%q %v", body, err)
			continue
		}
		greeting, err := in.ReadString('\n')
		r.add("%q %v", greeting, err)
		io.WriteString(conn, c.says)
		if c.fin {
			conn.(*net.TCPConn).CloseWrite()
		}
		said, err := io.ReadAll(in)
		r.add("%d bytes %.100q %v", len(said), said, err != nil && !strings.Contains(c.says, "reset"))
	}
	r.add("log: %s", firstLines(f.log.String()))
}

// A 101 goes through httputil.ReverseProxy, and then bytes both ways until either side ends.
func TestReverseProxySwitchesAsHandler(t *testing.T) {
	b := httptest.NewServer(http.HandlerFunc(switcher))
	defer b.Close()
	sameOnBoth(t, func(s *Server) { s.Handler = quietProxy(b.URL) }, askSwitched)
}

// And in front of us, where the handler has hijacked, or gone on with another protocol on the loop.
func TestReverseProxySwitchesInFront(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{"Hijack": switcher, "Upgrade": upgraders} {
		t.Run(name, func(t *testing.T) {
			sameOnBoth(t, func(s *Server) { s.Handler = handler }, func(t *testing.T, f *fixture, r *record) {
				front := serveStandard(t, &Server{Handler: quietProxy("http://" + f.addr)})
				askSwitched(t, front, r)
			})
		})
	}
}

// And on both sides, so that nothing but this server carries it.
func TestReverseProxySwitchesBetween(t *testing.T) {
	back := serve(t, &Server{Handler: http.HandlerFunc(upgraders)})
	sameOnBoth(t, func(s *Server) { s.Handler = quietProxy("http://" + back.addr) }, askSwitched)
}

// Deadlines that a handler sets are those of the connection also when it has hijacked that.
func TestDeadlinesOfWhatIsHijackedLikeNetHTTP(t *testing.T) {
	sameOnBoth(t, func(s *Server) {
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			nc, _, err := rc.Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			past := time.Now().Add(-time.Second)
			set := errors.Join(rc.SetReadDeadline(past), rc.SetWriteDeadline(past))
			_, writes := nc.Write(make([]byte, 1))
			_, reads := nc.Read(make([]byte, 1))
			set = errors.Join(set, rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Time{}))
			fmt.Fprintf(nc, "%t %t %v", errors.Is(reads, os.ErrDeadlineExceeded),
				errors.Is(writes, os.ErrDeadlineExceeded), set)
		})
	}, func(t *testing.T, f *fixture, r *record) {
		c := dial(t, f)
		io.WriteString(c, get+end)
		got := make([]byte, len("true true <nil>"))
		n, err := io.ReadFull(c, got)
		r.add("%s %v", got[:n], err)
	})
}
