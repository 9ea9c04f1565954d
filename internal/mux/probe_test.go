package mux

import (
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
)

// unanswered is what the connection says.
func (r *rig) unanswered() (d time.Duration) {
	r.t.Helper()
	r.onLoop(func() { d = r.conn.Unanswered() })
	return d
}

// A probe is one PING until something comes, of which its answer is only one kind.
func TestProbe(t *testing.T) {
	for name, sign := range map[string][]byte{
		"its answer":          h2.AppendPing(nil, healthPing, true),
		"a frame":             h2.AppendWindowUpdate(nil, 0, 1),
		"a part of a frame":   h2.AppendHeader(nil, 100, 77, 0, 0)[:3],
		"an interim response": headers(1, block(":status", "103"), false),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Client: true})
			r.greet()
			r.request(true)
			r.want("HEADERS 1")
			if d := r.unanswered(); d != 0 {
				t.Errorf("without a probe: %v", d)
			}
			r.onLoop(func() { r.conn.Probe(); r.conn.Probe() })
			r.onLoop(r.conn.Probe)
			r.want("PING")
			r.wantNothing()
			r.RunFor(10 * time.Second)
			if d := r.unanswered(); d < 10*time.Second || d > 12*time.Second {
				t.Errorf("after ten seconds: %v", d)
			}
			r.write(sign)
			r.settle()
			if d := r.unanswered(); d != 0 {
				t.Errorf("after a sign of life: %v", d)
			}
			r.onLoop(r.conn.Probe)
			r.want("PING")
		})
	}
}

// A connection without streams keeps a probe in mind until it is answered, and dozes then.
func TestProbeOfAnIdleConnection(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	r.onLoop(r.conn.Probe)
	r.want("PING")
	r.RunFor(time.Minute)
	if d := r.unanswered(); d < time.Minute {
		t.Errorf("after a minute: %v", d)
	}
	r.write(h2.AppendPing(nil, healthPing, true))
	r.RunFor(3 * dozeAfter)
	if d := r.unanswered(); d != 0 || r.conn.act != nil {
		t.Errorf("%v unanswered, active %v", d, r.conn.act != nil)
	}
}

// A PING of Config.SendPing is a probe as well.
func TestHealthPingIsAProbe(t *testing.T) {
	r := newRig(t, Config{Client: true, SendPing: time.Minute})
	r.greet()
	r.RunFor(time.Minute)
	r.want("PING")
	r.RunFor(time.Second)
	if d := r.unanswered(); d == 0 {
		t.Error("nothing is unanswered")
	}
	r.onLoop(r.conn.Probe)
	r.wantNothing()
}

// Between two frames that answer requests no more than two probes leave, because gRPC's servers end
// connections with more. A connection that dozes meanwhile does not forget.
func TestProbesAreFew(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	s := r.request(true)
	r.want("HEADERS 1")
	for i := range 5 {
		r.onLoop(r.conn.Probe)
		if i < 2 {
			r.want("PING")
		}
		r.wantNothing()
		r.write(h2.AppendPing(nil, healthPing, true))
		r.RunFor(3 * dozeAfter)
	}
	r.write(headers(1, block(":status", "200"), true))
	r.settle()
	s.Release()
	for i := range 5 {
		r.onLoop(r.conn.Probe)
		if i < 2 {
			r.want("PING")
		}
		r.wantNothing()
		r.write(h2.AppendPing(nil, healthPing, true))
		r.RunFor(3 * dozeAfter)
		if r.conn.act != nil {
			t.Error("the connection is awake")
		}
	}
}

// Probes after the end do nothing.
func TestProbeAfterTheEnd(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.conn.Unanswered()
	r.greet()
	r.onLoop(func() { r.conn.Probe(); r.conn.Abort(h2.InternalError, "enough") })
	r.want("PING")
	r.want("GOAWAY 0 INTERNAL_ERROR")
	r.onLoop(r.conn.Probe)
	r.wantNothing()
	r.peer.Close()
	r.RunFor(time.Minute)
	r.conn.Probe()
	if d := r.conn.Unanswered(); d != 0 || !r.conn.gone {
		t.Errorf("%v unanswered, gone %v", d, r.conn.gone)
	}
}

// free holds Free and GoingAway against Open, which begins as many streams as Free says.
func (r *rig) free(want int) {
	r.t.Helper()
	r.onLoop(func() {
		if n := r.conn.Free(); n != want || r.conn.GoingAway() && n > 0 {
			r.t.Errorf("%d free, going away %v, want %d", n, r.conn.GoingAway(), want)
		}
	})
}

// openAll opens n streams, of which none has a head, and wants the next one to fail.
func (r *rig) openAll(n int, then error) (all []*testStream) {
	r.t.Helper()
	r.onLoop(func() {
		for i := range n + 1 {
			s := &testStream{r: r}
			s.Init(s)
			switch err := r.conn.Open(&s.Stream); {
			case i < n && err != nil, i == n && err != then:
				r.t.Errorf("Open of stream %d of %d: %v", i, n, err)
			case err == nil:
				all = append(all, s)
			}
		}
	})
	return all
}

// Free is exactly what Open allows.
func TestFreeStreams(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet(h2.Setting{ID: h2.MaxConcurrentStreams, Value: 3})
	r.free(3)
	r.RunFor(3 * dozeAfter)
	r.free(3)
	all := r.openAll(3, ErrStreams)
	r.free(0)
	r.onLoop(func() {
		if r.conn.GoingAway() {
			t.Error("the connection is going away")
		}
	})
	all[0].Cancel(h2.Cancel)
	r.settle()
	r.free(1)
	r.write(h2.AppendSettings(nil, h2.Setting{ID: h2.MaxConcurrentStreams, Value: 1}))
	r.settle()
	r.free(0)
	r.write(h2.AppendSettings(nil, h2.Setting{ID: h2.MaxConcurrentStreams, Value: 1<<32 - 1}))
	r.settle()
	r.free(1<<30 - 1 - 2)
	r.write(h2.AppendGoAway(nil, 1<<31-1, h2.NoError, ""))
	r.settle()
	r.free(0)
	r.openAll(0, ErrGoingAway)
}

// Section 6.5.2: a server that does not say how many streams it allows has no limit. Before its
// SETTINGS nothing is known of that. Later ones that do not say leave what was.
func TestFreeStreamsWithoutSetting(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.free(firstStreams)
	r.greet()
	r.free(usualStreams)
	for _, s := range r.openAll(usualStreams, ErrStreams) {
		s.Cancel(h2.Cancel)
		s.Release()
	}
	r.write(h2.AppendSettings(nil, h2.Setting{ID: h2.MaxConcurrentStreams, Value: 5000}))
	r.settle()
	r.free(5000)
	r.write(h2.AppendSettings(nil))
	r.settle()
	r.free(5000)
}

// A client that has no more numbers for streams takes another connection (section 5.1.1).
func TestLastStreamNumbers(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	r.onLoop(func() { r.conn.last = 1<<31 - 7 })
	r.free(3)
	all := r.openAll(3, ErrGoingAway)
	r.free(0)
	head := pairs(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/")
	for i, s := range all {
		s.Put(head, nil, true)
		r.settle()
		if want := uint32(1<<31 - 5 + 2*i); s.ID() != want {
			t.Errorf("stream %d, want %d", s.ID(), want)
		}
	}
}

// A head that was held back while the server's limit fell waits until there is room (section
// 5.1.2). It leaves when another stream ends, or when the limit rises.
func TestHeadWaitsForRoom(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet(h2.Setting{ID: h2.MaxConcurrentStreams, Value: 3})
	all := r.openAll(3, ErrStreams)
	head := pairs(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/")
	put := func(i int) { all[i].Put(head, nil, true); r.settle() }
	put(0)
	r.want("HEADERS 1 :method=GET :scheme=http :authority=h :path=/ END")
	r.write(h2.AppendSettings(nil, h2.Setting{ID: h2.MaxConcurrentStreams, Value: 1}))
	r.settle()
	r.want("SETTINGS ACK")
	put(1)
	put(2)
	r.wantNothing()
	r.write(headers(1, []byte{0x88}, true)) // :status: 200
	r.settle()
	r.want("HEADERS 3 :method=GET :scheme=http :authority=h :path=/ END")
	r.wantNothing()
	r.write(h2.AppendSettings(nil, h2.Setting{ID: h2.MaxConcurrentStreams, Value: 2}))
	r.settle()
	got := strings.Join(r.sent(), "; ")
	if !strings.Contains(got, "HEADERS 5") || !strings.Contains(got, "SETTINGS ACK") {
		t.Errorf("behind a higher limit: %s", got)
	}
	all[1].Cancel(h2.Cancel)
	all[2].Cancel(h2.Cancel)
	r.settle()
}

// Where Probe may not ask any more, Silent says how long nothing has come.
func TestSilentBehindTheLastProbe(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	s := r.request(true)
	r.want("HEADERS 1")
	silent := func() (d time.Duration) { r.onLoop(func() { d = r.conn.Silent() }); return d }
	for range 2 {
		if d := silent(); d != 0 {
			t.Errorf("silent for %v before the last probe", d)
		}
		r.onLoop(r.conn.Probe)
		r.want("PING")
		r.write(h2.AppendPing(nil, healthPing, true))
		r.settle()
	}
	r.RunFor(2 * time.Second)
	if d := silent(); d < 2*time.Second || d > 3*time.Second {
		t.Errorf("silent for %v, want 2 s", d)
	}
	r.write(h2.AppendPing(nil, [8]byte{}, true))
	r.settle()
	if d := silent(); d >= time.Second {
		t.Errorf("silent for %v behind a frame", d)
	}
	r.write(headers(1, block(":status", "200"), true))
	r.settle()
	if d := silent(); d != 0 {
		t.Errorf("silent for %v behind an answer", d)
	}
	s.Release()
}
