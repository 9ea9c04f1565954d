// Package servertest has two servers for tests: one with fake time and recorded streams, and one on
// real sockets. Both speak all protocols. A test of package push, or of a door, uses them from
// outside of its package.
package servertest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/doors/mercure"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

// A Server is a push.Server with fake time and recorded streams.
type Server struct {
	*push.Server
	Hub     *hub.Hub
	Handler http.Handler // what ServeHTTP calls: the push.Server, or what the test has put around it
	T       *testing.T
	Clock   *pushtest.Clock
	Log     *pushtest.Log
	// Detach begins a stream. A test may replace it.
	Detach  func(w http.ResponseWriter) (hub.ResponseStream, error)
	mu      sync.Mutex
	Streams []*Stream // in the order in which they began; guarded by mu while the server runs
}

// New returns a server, which ends with the test. It sets the clock, the randomness and the logger
// of c, and its doors if there are none.
func New(t *testing.T, c push.Config) *Server {
	t.Helper()
	buf.CheckLeaks(t)
	clock, log := pushtest.NewClock(), new(pushtest.Log)
	if c.Doors == nil {
		c.Doors = Doors(mercure.Config{})
	}
	c.Clock, c.Random, c.Logger = clock, pushtest.Seeded(), slog.New(slog.NewTextHandler(log, nil))
	seam := new(Seam)
	c.Doors = append(c.Doors, seam)
	ts := &Server{T: t, Clock: clock, Log: log}
	ts.Detach = func(http.ResponseWriter) (hub.ResponseStream, error) {
		stream := new(Stream)
		ts.mu.Lock()
		ts.Streams = append(ts.Streams, stream)
		ts.mu.Unlock()
		return stream, nil
	}
	c.OpenStream = func(w http.ResponseWriter) (hub.ResponseStream, error) { return ts.Detach(w) }
	s, err := push.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ts.Server, ts.Hub, ts.Handler = s, seam.Hub, s
	t.Cleanup(func() {
		for _, stream := range ts.Streams {
			stream.Close(push.Disconnect{Code: 3000, Reason: "connection closed"})
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if c.Bus != nil {
			if err := c.Bus.Close(); err != nil {
				t.Errorf("the bus: %v", err)
			}
		}
	})
	return ts
}

// ServeHTTP calls ts.Handler.
func (ts *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { ts.Handler.ServeHTTP(w, r) }

// Do sends a request; fields are header names and values in turn.
func (ts *Server) Do(method, target, body string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	ts.ServeHTTP(w, r)
	return w
}

// Call returns the answer to a request to the API.
func (ts *Server) Call(method, body string) string {
	ts.T.Helper()
	w := ts.Do("POST", "/api/"+method, body)
	if w.Code != 200 {
		ts.T.Errorf("%s %s: status %d, %s", method, body, w.Code, w.Body)
	}
	return w.Body.String()
}

// Events opens a stream of Server-Sent Events.
func (ts *Server) Events(query string, fields ...string) *Stream {
	ts.T.Helper()
	w := ts.Do("GET", "/events?"+query, "", fields...)
	if w.Code != 200 {
		ts.T.Fatalf("/events?%s: %d %s", query, w.Code, w.Body)
	}
	return ts.Streams[len(ts.Streams)-1]
}

// Open sends a request that is answered with a stream.
func (ts *Server) Open(method, target, body string, fields ...string) *Stream {
	ts.T.Helper()
	before := len(ts.Streams)
	if w := ts.Do(method, target, body, fields...); w.Code != 200 || len(ts.Streams) == before {
		ts.T.Fatalf("%s %s: %d %s", method, target, w.Code, w.Body)
	}
	return ts.Streams[len(ts.Streams)-1]
}

// Heads returns how many streams have begun.
func (ts *Server) Heads() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.Streams)
}

// Client connects a client with a token that has claims, and records what it receives.
func (ts *Server) Client(claims jwt.MapClaims) *Transport {
	ts.T.Helper()
	claims["exp"] = ts.Clock.Now().Add(time.Hour).Unix()
	f := new(Transport)
	f.Session = ts.Hub.Start(f, JSONForm, nil)
	ts.T.Cleanup(f.Leave)
	token := tokentest.Sign(ts.T, jwt.SigningMethodHS256, []byte(tokentest.Secret), claims)
	f.Frame([]byte(`{"id":1,"connect":{"token":"` + token + `"}}`))
	f.Take()
	return f
}

// PublishAs publishes p, whose fields a program cannot all set.
func (ts *Server) PublishAs(ctx context.Context, channel string, p push.Publication) (push.Position, error) {
	return ts.Hub.Publish(ctx, channel, p, false, false)
}

// A Seam is a door that serves no client, and gives a test the Hub, as any door gets it.
type Seam struct{ *hub.Hub }

// Forms implements push.Door.
func (d *Seam) Forms() []hub.Form { return nil }

// Open implements push.Door.
func (d *Seam) Open(s *hub.Hub) (clients, admin func(*http.ServeMux)) {
	d.Hub = s
	return nil, nil
}

// Doors returns all doors there are, with that Mercure hub.
func Doors(m mercure.Config) []push.Door { return doors.All(doors.Config{Mercure: m}) }

// Forms of Centrifuge in a WebSocket, and of /events.
var (
	JSONForm, ProtobufForm = formOf("websocket", "json"), formOf("websocket", "protobuf")
	UniForm, EventForm     = formOf("uni_websocket", "json"), formOf("events", "json")
)

// formOf returns the first form of that kind.
func formOf(transport, protocol string) hub.Form {
	for _, f := range hub.FormsOf(Doors(mercure.Config{})) {
		if t, p := f.Kind(); t == transport && p == protocol {
			return f
		}
	}
	panic("no form of " + transport + " in " + protocol)
}
