package enginetest

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// staysOnThread reports whether the drivers are bound to their threads.
func staysOnThread() bool { return os.Getenv(driverEnv) == "bound" || os.Getenv(driverEnv) == "uring" }

// needsHandoff skips a test of handed-off loops where drivers are bound to their threads:
// TestBoundLoops has what happens there.
func needsHandoff(t *testing.T) {
	t.Helper()
	if staysOnThread() {
		t.Skip("a loop that is bound to its thread is not handed off")
	}
}

// boundWorld is a world without faults whose drivers panic unless one goroutine, locked to its
// thread, makes all calls.
func boundWorld() sim.Options {
	o := sim.Lossless()
	o.ThreadBound = true
	return o
}

// leaver ends the goroutine of its loop at the first byte.
type leaver struct{ closed int }

func (h *leaver) Opened(*myriad.Conn)           {}
func (h *leaver) Received(*myriad.Conn, []byte) { runtime.Goexit() }
func (h *leaver) Closed(*myriad.Conn, error)    { h.closed++ }

// A hundred callbacks may end the goroutine of a thread-bound loop. With one more the loop fails.
func TestExitsOfBoundLoop(t *testing.T) {
	const most = 100
	s := simulate(t, 1, boundWorld(), myriad.Config{Loops: 1})
	h := &leaver{}
	ln, err := s.e.Listen("tcp", "127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	idle := s.Dial(ln.Addr())
	for i := range most + 1 {
		s.Dial(ln.Addr()).Write([]byte("x"))
		s.RunFor(time.Minute)
		if h.closed != i+1 && i < most {
			t.Fatalf("%d peers have written, %d conns were closed", i+1, h.closed)
		}
		if i < most && (idle.Ended() || idle.Err() != nil) {
			t.Fatalf("the loop has failed after %d", i+1)
		}
	}
	if idle.Err() == nil && !idle.Ended() {
		t.Errorf("the loop has not failed after %d callbacks ended its goroutine", most+1)
	}
	if h.closed != most+2 {
		t.Errorf("%d conns were closed, want %d", h.closed, most+2)
	}
	s.finish()
}

// The engine keeps the loops of a thread-bound driver on their threads: through accepting,
// adoption, inline tasks, a callback that ends its goroutine, detaching and the end.
func TestBoundLoops(t *testing.T) {
	e := start(t, myriad.Config{Driver: "bound", Logger: quiet})
	s := setting{wrap: bare, client: keep}
	ln := s.listen(t, e, echo{})
	msg := pattern(10_000)
	echoes := func(ln *myriad.Listener) {
		t.Helper()
		nc := s.dial(t, ln)
		send(t, nc, msg)
		expect(t, nc, msg)
	}
	for range 4 {
		echoes(ln)
	}
	leaving := s.dial(t, s.listen(t, e, &leaver{}))
	send(t, leaving, []byte("x"))
	if _, err := leaving.Read(make([]byte, 1)); err == nil {
		t.Error("a conn whose handler has ended the goroutine sends")
	}
	for range 4 {
		echoes(ln)
	}
	tasks := &taskHost{run: func(v *echoTask) {
		if v.handoff.HandOff() {
			t.Error("a loop that is bound to its thread was handed off")
		}
	}}
	echoes(s.listen(t, e, tasks))
	if st := e.Stats(); st.Handoffs > 0 || st.Overstays > 0 || tasks.runs.Load() == 0 {
		t.Errorf("%d handoffs and %d overstays in %d tasks", st.Handoffs, st.Overstays, tasks.runs.Load())
	}
}
