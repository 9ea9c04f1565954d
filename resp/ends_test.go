package resp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// lastCommands are a pipeline, and what is answered to it: a command that is incomplete at the end
// has no answer.
func lastCommands() (commands, answers string) {
	big := strings.Repeat("x", 100_000)
	return "ECHO one\r\nSLEEP 1ms\r\nBIG 100000\r\n*2\r\n$4\r\nECHO\r\n$3\r\ntwo\r\n*2\r\n$4\r\nEC",
		fmt.Sprintf("$3\r\none\r\n+OK\r\n$%d\r\n%s\r\n$3\r\ntwo\r\n", len(big), big)
}

// Commands that have come before the client's FIN are answered, wherever they run and however
// little output may wait. It is so over TLS, too, also without a close_notify.
func TestLastAnswers(t *testing.T) {
	commands, answers := lastCommands()
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		for _, limit := range []int{0, 1 << 10} {
			s := &Server{Dispatch: d, WriteLimit: limit}
			secured := serveTLS(t, s)
			ln, err := s.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			for name, open := range map[string]func() (p *peer, closeWrite func() error){
				"TCP": func() (*peer, func() error) {
					p := dial(t, ln.Addr().String())
					return p, p.Conn.(*net.TCPConn).CloseWrite
				},
				"TLS": func() (*peer, func() error) {
					p := dialTLS(t, secured)
					return p, p.Conn.(*tls.Conn).CloseWrite
				},
				"TLS without close_notify": func() (*peer, func() error) {
					p := dialTLS(t, secured)
					return p, p.Conn.(*tls.Conn).NetConn().(*net.TCPConn).CloseWrite
				},
			} {
				for range soak.Size(t, 10, 100) {
					p, end := open()
					p.send(commands)
					if err := end(); err != nil {
						t.Error(err)
					}
					if got := p.rest(); got != answers {
						t.Fatalf("%s, limit %d: the client got %d bytes of %d: %.40q", name, limit, len(got),
							len(answers), got)
					}
				}
			}
		}
	})
}

// The same on the simulator, with the commands cut anywhere.
func TestLastAnswersSimulation(t *testing.T) {
	commands, answers := lastCommands()
	commands = strings.ReplaceAll(commands, "SLEEP 1ms", "SLEEP")
	for seed := range soak.Size[uint64](t, 20, 500) {
		for _, d := range dispatches {
			w := sim.New(seed, sim.Lossless())
			e, err := myriad.Start(myriad.Config{Loops: 2, System: w, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			s := &Server{Engine: e, Dispatch: d, Logger: quiet(), WriteLimit: 4 << 10,
				Handler: simStore(func() *myriad.Engine { return e })}
			ln, err := s.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p := w.Dial(ln.Addr())
			p.Write([]byte(commands))
			p.CloseWrite()
			w.RunFor(time.Minute)
			if got := string(p.Received()); got != answers || !p.Ended() {
				t.Fatalf("seed %d, %v: the client got %d bytes of %d, end %v", seed, d, len(got), len(answers),
					p.Ended())
			}
			if err := s.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			if err := e.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			w.Run()
			w.Check(t)
		}
	}
}

// Shutdown is bounded by its context, and Close returns at once, while a callback blocks a loop
// whose mailbox is full. When the callback returns, what they have asked for is done.
func TestShutdownBesideABlockedLoop(t *testing.T) {
	e, err := myriad.Start(myriad.Config{Loops: 1, Mailbox: 1, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Engine: e, Logger: quiet(), Handler: store()}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := dial(t, ln.Addr().String()).send("ECHO a\r\n").want("$1\r\na\r\n")
	blocked, free := make(chan bool), make(chan bool)
	l := e.Loops()[0]
	if err := l.Do(func() { blocked <- true; <-free }); err != nil {
		t.Fatal(err)
	}
	<-blocked
	for l.Do(func() {}) == nil {
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err != context.Canceled {
		t.Errorf("Shutdown: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	close(free)
	p.rest()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown when nothing blocks: %v", err)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// A command whose handler ends its goroutine does not run again before the engine, whose loop is
// busy here, has closed the connection.
func TestHandlerEndsItsGoroutine(t *testing.T) {
	var calls atomic.Int32
	p := dial(t, serve(t, &Server{Dispatch: DispatchPool, Handler: HandlerFunc(func(_ *Reply, c *Command) {
		if calls.Add(1) > 1 {
			return
		}
		conn := c.Conn
		conn.nc.Loop().Post(func() { // until the command's task has ended, or runs the command again
			for calls.Load() == 1 && conn.hasWork() {
				runtime.Gosched()
			}
		})
		runtime.Goexit()
	})}))
	p.send("FAIL\r\n")
	if _, err := p.r.ReadByte(); err == nil {
		t.Error("the connection goes on")
	}
	if got := calls.Load(); got != 1 {
		t.Errorf("the command ran %d times", got)
	}
}

// hasWork reports whether commands of the connection run or wait.
func (c *Conn) hasWork() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.work != nil
}
