package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web/internal/http1"
)

// largeOnes is clients of one loop whose heads or trailers are large and not complete.
type largeOnes struct {
	*testing.T
	*lane
	f       *fixture
	clients []net.Conn
}

const mostWaiting = 8

func sendLarge(t *testing.T, begin string) *largeOnes {
	f := serveOn(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, len(r.Header.Get("X-Long"))+len(r.Trailer.Get("X-Long")))
	})}, myriad.Config{Loops: 1})
	m := &largeOnes{t, f.state.lanes[0], f, make([]net.Conn, http1.MostLarge+mostWaiting)}
	for i := range m.clients {
		m.clients[i] = dial(t, f)
		go io.WriteString(m.clients[i], begin+"X-Long: "+strings.Repeat("x", largeField))
	}
	m.until(http1.MostLarge, mostWaiting)
	return m
}

const largeField = 200 << 10

// until waits until so many heads grow, and so many wait for their turn.
func (m *largeOnes) until(growing, waiting int) {
	m.Helper()
	within(m.T, fmt.Sprintf("%d large heads grow and %d wait", growing, waiting), func() (yes bool) {
		m.look(func() { yes = m.h1.Large.Growing == growing && len(m.h1.Large.Waiting) == waiting })
		return yes
	})
}

func (m *largeOnes) look(f func()) {
	looked := make(chan struct{})
	m.lane.Loop.Post(func() { defer close(looked); f() })
	<-looked
}

// kept is how many bytes are kept of the heads that wait.
func (m *largeOnes) kept() (n int) {
	m.look(func() {
		for _, h := range m.h1.Large.Waiting {
			n += h.Ahead.Block.Len()
		}
	})
	return n
}

var largeBegins = map[string]string{"heads": get, "trailers": post + "Transfer-Encoding: chunked\r\n\r\n0\r\n"}

// However many large heads come at once, few grow: of the others little is kept until it is their
// turn, and then all are answered.
func TestLargeHeadsTakeTurns(t *testing.T) {
	for name, begin := range largeBegins {
		t.Run(name, func(t *testing.T) {
			m := sendLarge(t, begin)
			if n, most := m.kept(), mostWaiting*(http1.FreeHead+64<<10); n > most { // which is the read buffer
				t.Errorf("%d bytes are kept of heads that wait, want %d at most", n, most)
			}
			for _, c := range m.clients {
				go io.WriteString(c, "\r\n\r\n")
			}
			for i, c := range m.clients {
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatalf("client %d: %v", i, err)
				}
				if body, _ := io.ReadAll(resp.Body); string(body) != fmt.Sprint(largeField) {
					t.Errorf("client %d: %s %q", i, resp.Status, body)
				}
			}
			m.until(0, 0)
		})
	}
}

// Small requests are answered beside them, and a client that goes gives up its turn, or its place
// in the queue.
func TestLargeHeadsLeave(t *testing.T) {
	for name, begin := range largeBegins {
		t.Run(name, func(t *testing.T) {
			m := sendLarge(t, begin)
			if got := raw(t, m.f, get+"Connection: close\r\n\r\n", false); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Errorf("a small request beside them: %q", got)
			}
			for waiting := mostWaiting - 1; waiting >= 0; waiting-- {
				resetConn(m.clients[len(m.clients)-1])
				m.clients = m.clients[:len(m.clients)-1]
				m.until(http1.MostLarge, waiting)
			}
			for _, c := range m.clients {
				resetConn(c)
			}
			m.until(0, 0)
		})
	}
}

func resetConn(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}
