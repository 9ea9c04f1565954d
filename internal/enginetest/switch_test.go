package enginetest

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
)

// A diary records the callbacks of a conversation's stages, in order; what one stage gets in pieces
// is one entry.
type diary struct {
	text strings.Builder
	last string
	done chan string // the text, at Closed
}

func (d *diary) note(kind, text string) {
	if d.last != kind {
		d.text.WriteString(" " + kind)
		d.last = kind
	}
	d.text.WriteString(text)
}

// A stage speaks one part of a conversation and then names its successor.
type stage struct {
	name     string
	d        *diary
	got      []byte
	opened   func(c *myriad.Conn)
	received func(c *myriad.Conn, got []byte) // with all it has had
}

func (s *stage) Opened(c *myriad.Conn) {
	s.d.note("("+s.name+")", "")
	call(s.opened, c)
}

func (s *stage) Received(c *myriad.Conn, p []byte) {
	s.got = append(s.got, p...)
	s.d.note(s.name+":", string(p))
	if s.received != nil {
		s.received(c, s.got)
	}
}

func (s *stage) Closed(*myriad.Conn, error) {
	s.d.note("."+s.name, "")
	s.d.done <- s.d.text.String()
}

// after gives what follows a mark in p, if it is there.
func after(p []byte, mark string) ([]byte, bool) {
	_, rest, ok := bytes.Cut(p, []byte(mark))
	return rest, ok
}

func TestSetHandler(t *testing.T) {
	cases := []struct {
		name, want string
		prepare    func(a, b, c *stage)
	}{
		{"in Received", "(b) b:rest more .b", func(a, b, _ *stage) {}},
		{"in a chain", "(c) c:st more .c", func(_, b, c *stage) {
			b.received = func(mc *myriad.Conn, got []byte) { mc.SetHandler(c, got[2:]) }
		}},
		{"in Opened", "(c) c:first rest more .c", func(_, b, c *stage) {
			b.opened = func(mc *myriad.Conn) { mc.SetHandler(c, []byte("first ")) }
		}},
		{"while paused", "(b) b:rest more .b", func(_, b, _ *stage) {
			b.opened = func(mc *myriad.Conn) { mc.Pause(); mc.Notify(); _ = mc.Loop().Do(mc.Resume) }
		}},
		{"twice", "(c) c:rest more .c", func(a, b, c *stage) {
			a.received = func(mc *myriad.Conn, got []byte) {
				if rest, ok := after(got, "|"); ok {
					mc.SetHandler(b, rest)
					mc.SetHandler(c, rest)
				}
			}
		}},
		{"then Close", "(a)", func(a, b, _ *stage) {
			a.received = func(mc *myriad.Conn, got []byte) {
				if rest, ok := after(got, "|"); ok {
					mc.SetHandler(b, rest)
					mc.Close()
				}
			}
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			eachLayer(t, func(t *testing.T, s setting) {
				d := &diary{done: make(chan string, 1)}
				a, b, c := &stage{name: "a", d: d}, &stage{name: "b", d: d}, &stage{name: "c", d: d}
				a.received = func(mc *myriad.Conn, got []byte) {
					if rest, ok := after(got, "|"); ok {
						mc.SetHandler(b, rest)
					}
				}
				tc.prepare(a, b, c)
				nc := s.one(t, myriad.Config{}, a)
				converse(t, nc)
				heard := await(t, "Closed", d.done)
				if last := heard[strings.LastIndexByte(heard, '('):]; !strings.HasPrefix(last, tc.want) {
					t.Errorf("heard %q, want %q in the end", heard, tc.want)
				}
			})
		})
	}
}

// converse sends both parts and ends. The conn may be closed before the second.
func converse(t *testing.T, nc net.Conn) {
	send(t, nc, []byte("head|rest"))
	_, _ = nc.Write([]byte(" more"))
	_ = nc.(interface{ CloseWrite() error }).CloseWrite()
}

// What a former handler left is older than what is held.
func TestRestComesBeforeWhatIsHeld(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		d := &diary{done: make(chan string, 1)}
		b := &stage{name: "b", d: d}
		paused := make(chan *myriad.Conn, 1)
		a := &stage{name: "a", d: d}
		a.received = func(mc *myriad.Conn, _ []byte) {
			mc.Pause() // under the layer, the second piece is held
			paused <- mc
		}
		nc := s.one(t, myriad.Config{}, a)
		send(t, nc, []byte("head, tail"))
		c := await(t, "the pause", paused)
		onLoop(t, c, func() {
			c.SetHandler(b, bytes.Clone(a.got[2:]))
			_ = c.Loop().Do(c.Resume)
		})
		closeWrite(t, nc)
		got := await(t, "Closed", d.done)
		if _, heard, _ := strings.Cut(got, "(b) "); heard != "b:ad, tail .b" {
			t.Errorf("heard %q", got)
		}
	})
}

// One conn's handler may exchange what another one speaks.
func TestSetHandlerOfAnotherConn(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		e := start(t, myriad.Config{Loops: 1})
		victim := newProbe()
		other := s.dial(t, s.listen(t, e, victim))
		c := await(t, "Opened", victim.opens)
		h := newProbe()
		h.received = func(*myriad.Conn, []byte) { c.SetHandler(echo{}, []byte("hello ")) }
		send(t, s.dial(t, s.listen(t, e, h)), []byte("x"))
		expect(t, other, []byte("hello "))
		send(t, other, []byte("echo"))
		expect(t, other, []byte("echo"))
	})
}

// Other pending calls of the same turn go to the new handler.
func TestSwitchBetweenCalls(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		first, second := newProbe(), newProbe()
		first.notified = func(c *myriad.Conn) { c.SetHandler(second, nil) }
		drained := make(chan string, 1)
		first.drained = func(*myriad.Conn) { drained <- "the first" }
		second.drained = func(*myriad.Conn) { drained <- "the second" }
		s.one(t, myriad.Config{WriteLimit: 10}, first)
		c := await(t, "Opened", first.opens)
		onLoop(t, c, func() {
			c.Write(pattern(10))
			if _, err := c.Write(pattern(10)); err != myriad.ErrFull {
				t.Errorf("Write: %v", err)
			}
			c.Notify()
		})
		if who := await(t, "Drained", drained); who != "the second" || second.openings.Load() != 1 {
			t.Errorf("%s handler hears Drained; the second was opened %d times", who, second.openings.Load())
		}
	})
}

// A handler that comes after its peer's FIN gets Ended, after what its predecessor has left.
func TestSwitchBehindTheEnd(t *testing.T) {
	for name, opened := range map[string]func(c *myriad.Conn){
		"at once":      nil,
		"while paused": func(c *myriad.Conn) { c.Pause(); _ = c.Loop().Do(c.Resume) },
	} {
		t.Run(name, func(t *testing.T) {
			eachLayer(t, func(t *testing.T, s setting) {
				first, second := newProbe(), newProbe()
				ends := make(chan *myriad.Conn, 1)
				first.ended = func(c *myriad.Conn) { ends <- c }
				heard := make(chan string, 3)
				second.opened = opened
				second.received = func(_ *myriad.Conn, p []byte) { heard <- string(p) }
				second.ended = func(c *myriad.Conn) { heard <- "the end"; _ = c.Close() }
				nc := s.one(t, myriad.Config{}, first)
				closeWrite(t, nc)
				c := await(t, "Ended", ends)
				onLoop(t, c, func() { c.SetHandler(second, []byte("rest")) })
				await(t, "Closed", second.closes)
				if got := await(t, "Received", heard) + ", " + await(t, "Ended", heard); got != "rest, the end" ||
					len(heard) > 0 || first.endings.Load() != 1 {
					t.Errorf("heard %s, and %d more; the first heard of %d ends", got, len(heard), first.endings.Load())
				}
			})
		})
	}
}
