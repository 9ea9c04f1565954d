package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file is how a connection leaves HTTP, in fake time.

// A recorder keeps what it receives, to the end of its connection.
type recorder struct {
	got []byte
}

func (k *recorder) Opened(*myriad.Conn)               {}
func (k *recorder) Received(_ *myriad.Conn, p []byte) { k.got = append(k.got, p...) }
func (k *recorder) Closed(*myriad.Conn, error)        {}

// A taker is a handler that takes its connection over, and keeps what it receives.
type taker struct {
	recorder
	t       *testing.T
	st      *stage
	upgrade bool // else it hijacks
	over    bool
}

func (k *taker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.st.wait(10 * time.Millisecond)
	if k.upgrade {
		if err := Upgrade(wrapped{w}, []byte(switching), k); err != nil {
			k.t.Error(err)
		}
	} else {
		k.hijack(w)
	}
	w.WriteHeader(http.StatusOK) // middleware does it to record the status of an upgrade
	if _, err := w.Write([]byte("no")); err != http.ErrHijacked {
		k.t.Errorf("Write: %v", err)
	}
	if n, err := w.Write(nil); n != 0 || err != http.ErrHijacked {
		k.t.Errorf("Write of nothing: %d, %v", n, err)
	}
	if err := Upgrade(w, []byte(switching), k); err != http.ErrHijacked {
		k.t.Errorf("Upgrade: %v", err)
	}
	k.over = true
}

func (k *taker) hijack(w http.ResponseWriter) {
	nc, rw, err := http.NewResponseController(wrapped{w}).Hijack()
	if err != nil {
		k.t.Error(err)
		return
	}
	defer nc.Close()
	if n := exchangeOf(w).Lane.Server.Load.Handlers(); n != 0 {
		k.t.Errorf("%d handlers count when the only one has hijacked its connection", n)
	}
	io.WriteString(nc, switching)
	if rw.Reader.Buffered() == 0 {
		k.t.Error("nothing has been read ahead")
	}
	k.got, _ = io.ReadAll(rw)
}

// Upgrade and Hijack give the connection away with what the client has sent after the request. From
// then on no timeout of the server and no call of the ResponseWriter acts on it, and Shutdown does
// not wait for it.
func TestTakenOver(t *testing.T) {
	const ahead = 3 * exchange.MaxBodyBuffer // more than is read ahead
	for _, d := range []Dispatch{DispatchPool, DispatchInline} {
		for _, upgrade := range []bool{true, false} {
			t.Run(fmt.Sprint(d, ", upgrade ", upgrade), func(t *testing.T) {
				var logs lockedLog
				k := &taker{t: t, upgrade: upgrade}
				s := &Server{Dispatch: d, IdleTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
					Overload: OverloadRefuse, ErrorLog: log.New(&logs, "", 0), Handler: k}
				st := calmStage(t, s)
				k.st = st
				pool := st.widen(s)
				p := st.Dial(st.at)
				rest := bytes.Repeat([]byte("ahead "), ahead/6)
				st.ask(p, 0, "/")
				p.Write(rest)
				st.RunFor(time.Minute)
				p.Write([]byte("more"))
				st.RunFor(time.Second)
				if p.Ended() || string(p.Received()) != switching {
					t.Errorf("the client got %q; the connection has ended: %v", p.Received(), p.Ended())
				}
				if want := "[new active hijacked]"; fmt.Sprint(st.states) != want {
					t.Errorf("states %v, want %s", st.states, want)
				}
				if n := s.state.Conns.Load(); n != 0 {
					t.Errorf("%d connections count", n)
				}
				p.CloseWrite()
				st.RunFor(time.Second)
				if !k.over || string(k.got) != string(rest)+"more" {
					t.Errorf("the new owner got %d bytes, want %d", len(k.got), len(rest)+len("more"))
				}
				writes := strings.Count(logs.String(), "http: response.Write on hijacked connection from ")
				heads := strings.Contains(logs.String(), "http: response.WriteHeader on hijacked connection from ")
				if writes != 1 || heads == upgrade || pool.by != 0 {
					t.Errorf("logged: %q; there is room for %d more handlers", logs.String(), pool.by)
				}
				p.Close()
			})
		}
	}
}

// A connection that the driver cannot give away ends, and Hijack says why. On a loop that is bound
// to its thread an inline task cannot wait for that.
func TestHijackThatFails(t *testing.T) {
	for _, d := range []Dispatch{DispatchPool, DispatchInline} {
		o := sim.Calm()
		o.NoDetach, o.ThreadBound = true, d == DispatchInline
		w := newWorld(1, o)
		var failed error
		st := newStage(t, w, w, &Server{Dispatch: d,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _, failed = http.NewResponseController(w).Hijack()
			})}, myriad.Config{})
		p := st.Dial(st.at)
		st.ask(p, time.Second, "/")
		want := driver.ErrUnsupported
		if d == DispatchInline {
			want = myriad.ErrOnLoop
		}
		if !errors.Is(failed, want) || p.Ended() != (d == DispatchPool) {
			t.Errorf("%v: %v, want %v; the connection has ended: %v", d, failed, want, p.Ended())
		}
		p.Close()
	}
}

// A lifeCounter counts how often its connection is opened and closed.
type lifeCounter struct {
	opened, closed int
	err            error
}

func (e *lifeCounter) Opened(*myriad.Conn)           { e.opened++ }
func (e *lifeCounter) Received(*myriad.Conn, []byte) {}
func (e *lifeCounter) Closed(_ *myriad.Conn, err error) {
	e.closed++
	e.err = err
}

// If Upgrade succeeds, the new protocol is opened and closed once, even if the connection is lost
// before the loop opens it. If Upgrade fails, the protocol is not called.
func TestUpgradeOfALostConnection(t *testing.T) {
	for name, when := range map[string]time.Duration{"before": -time.Millisecond, "behind": 0,
		"later": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			var st *stage
			var peer *sim.Peer
			var failed error
			var ctx context.Context
			e := new(lifeCounter)
			st = calmStage(t, &Server{Dispatch: DispatchPool,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ctx = r.Context()
					if when < 0 {
						peer.Reset()
						st.wait(-when)
					}
					failed = Upgrade(w, []byte(switching), e)
					if when == 0 {
						exchangeOf(w).Conn().Abort(net.ErrClosed)
					}
				})})
			peer = st.Dial(st.at)
			st.ask(peer, time.Second, "/")
			if when > 0 {
				peer.Reset()
				st.RunFor(time.Second)
			}
			want := 1
			if when < 0 {
				want = 0
			}
			if (failed != nil) != (when < 0) || e.opened != want || e.closed != want || ctx.Err() == nil {
				t.Errorf("Upgrade: %v; opened %d times, closed %d times with %v", failed, e.opened, e.closed, e.err)
			}
			peer.Close()
		})
	}
}
