package sim_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// Each fault happens in a world where it is on, and never in one where it is off.
func TestFaultsHappen(t *testing.T) {
	for _, f := range []struct {
		name, trace string
		o           sim.Options
	}{
		{"Reset", "broken", sim.Options{Reset: 0.5}},
		{"Accept", "acceptfailed", sim.Options{Accept: 0.5}},
		{"Dial", "peer           closed       0 n=0 err=connect", sim.Options{Dial: 0.5}},
	} {
		t.Run(f.name, func(t *testing.T) {
			count := 0
			for seed := range uint64(10) {
				_, trace := runEcho(t, seed, f.o, false)
				count += strings.Count(trace, f.trace)
				if _, calm := runEcho(t, seed, sim.Calm(), true); strings.Contains(calm, f.trace) {
					t.Errorf("seed %d: %q in a calm world", seed, f.trace)
				}
			}
			if count == 0 {
				t.Errorf("%q is in none of ten traces", f.trace)
			}
		})
	}
}

// talk sends n bytes from the driver to a peer and back, and counts in how many pieces they moved.
func talk(t *testing.T, seed uint64, o sim.Options, n int) (sent, received int, took time.Duration) {
	t.Helper()
	r := newSeededRig(t, seed, o)
	want := pattern(n, 1)
	var got []byte
	r.on = func(event string, _ driver.ID) {
		if p, ok := strings.CutPrefix(event, "Received "); ok {
			received++
			got = append(got, p...)
		} else if event == "Sent" {
			sent++
		}
	}
	begin := r.w.Now()
	r.p.Write(want)
	if r.send(want) > 0 {
		r.poll(func() bool { return sent > 0 })
	}
	r.poll(func() bool { return len(got) == n && r.p.Count() == n })
	if !bytes.Equal(got, want) || !bytes.Equal(r.p.Received(), want) {
		t.Error("other bytes arrived than were sent")
	}
	took = r.w.Now().Sub(begin)
	r.done()
	return sent, received, took
}

func TestCalmIsWhole(t *testing.T) {
	sent, received, took := talk(t, 1, sim.Calm(), 1000)
	if sent != 0 || received != 1 || took > 2*time.Second {
		t.Errorf("1000 bytes: %d Sent, %d Received, %v", sent, received, took)
	}
}

func TestBytesAreCut(t *testing.T) {
	o := sim.Calm()
	o.Split, o.ShortSend = 0.9, 0.9
	sent, received := 0, 0
	for seed := range uint64(5) {
		s, r, _ := talk(t, seed, o, 60_000) // as much as the socket could take at once
		sent += s
		received += r
	}
	if sent < 5 || received < 5*65 {
		t.Errorf("60,000 bytes five times: %d Sent, %d Received", sent, received)
	}
}

func TestTinyBuffers(t *testing.T) {
	o := sim.Calm()
	o.SmallBuffers, o.MaxBuffer = 1, 3
	sent, received, _ := talk(t, 1, o, 1000)
	if sent < 100 || received < 100 {
		t.Errorf("1000 bytes through buffers of 3: %d Sent, %d Received", sent, received)
	}
}

func TestDelay(t *testing.T) {
	o := sim.Calm()
	o.MaxDelay = time.Second
	longest := time.Duration(0)
	for seed := range uint64(5) {
		o.SmallBuffers = 1
		o.MaxBuffer = 100
		_, _, took := talk(t, seed, o, 2000)
		longest = max(longest, took)
	}
	if longest < 10*time.Millisecond {
		t.Errorf("the longest of five talks took %v", longest)
	}
}

// A receive that was under way when Pause was called may still be delivered, once, and not more
// than one buffer.
func TestInFlightAfterPause(t *testing.T) {
	late := 0
	for seed := range 20 {
		o := sim.Calm()
		o.InFlight = 0.5
		r := newSeededRig(t, uint64(seed), o)
		paused, after := false, 0
		r.on = func(event string, id driver.ID) {
			if p, ok := strings.CutPrefix(event, "Received "); ok && paused {
				after += len(p)
			}
			r.d.Pause(id)
			paused = true
		}
		r.p.Write(pattern(10_000, 1))
		r.poll(func() bool { return paused })
		for range 20 {
			if _, err := r.d.Poll(time.Second, r); err != nil {
				t.Fatal(err)
			}
		}
		if after > 1000 {
			t.Errorf("seed %d: %d bytes after Pause", seed, after)
		}
		if after > 0 {
			late++
		}
		r.done()
	}
	if late == 0 || late == 20 {
		t.Errorf("%d of 20 seeds delivered something after Pause", late)
	}
}

// Two loops of the world talk to each other through a listener, with no goroutine outside taking
// part.
func TestDriverToDriver(t *testing.T) {
	for seed := range uint64(50) {
		w := sim.New(seed, sim.Lossless())
		l, stop := serveEcho(t, w)
		c := &client{w: w, want: pattern(30_000, byte(seed))}
		var err error
		if c.d, err = w.Open(2, driver.Options{ReadBuffer: 700}); err != nil {
			t.Fatal(err)
		}
		w.Go(func() { c.run(t, l) })
		w.Run()
		if !bytes.Equal(c.got, c.want) || !c.ended {
			t.Fatalf("seed %d: %d of %d bytes came back, ended %v", seed, len(c.got), len(c.want), c.ended)
		}
		stop()
		w.Check(t)
	}
}

// client dials, sends, ends its side and collects what comes back.
type client struct {
	driver.Events
	w     *sim.World
	d     driver.Driver
	want  []byte
	got   []byte
	ended bool
	over  bool
}

func (c *client) run(t *testing.T, l driver.Listener) {
	if _, err := c.d.Dial(l.Addr()); err != nil {
		t.Error(err)
	}
	for !c.over {
		if _, err := c.d.Poll(-1, c); err != nil {
			t.Error(err)
		}
	}
	if err := c.d.Shutdown(); err != nil {
		t.Error(err)
	}
}

func (c *client) Dialed(id driver.ID, _ driver.Addr) {
	var out buf.Chain
	out.Append(c.want)
	c.d.Send(id, &out)
	c.d.CloseWrite(id)
}
func (c *client) Received(_ driver.ID, p []byte) { c.got = append(c.got, p...) }
func (c *client) Sent(driver.ID, int64)          {}
func (c *client) Ended(id driver.ID)             { c.ended = true; c.d.Close(id) }
func (c *client) Closed(driver.ID, error)        { c.over = true }
