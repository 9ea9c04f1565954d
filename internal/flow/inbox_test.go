package flow

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// An inboxModel is what an Inbox does, said in another way.
type inboxModel struct {
	credits, full, told, discarded bool
	high, owed                     int
	data                           []byte
	err, late                      error
}

func (m *inboxModel) put(p []byte, last bool) bool {
	if m.err != nil || m.discarded {
		m.owed += len(p)
	} else {
		m.data = append(m.data, p...)
	}
	if last && m.err == nil {
		m.err = io.EOF
	}
	m.full = m.full || !m.credits && len(m.data) >= m.high
	return !m.credits && len(m.data) >= m.high
}

func (m *inboxModel) read(p []byte) (int, bool, error) {
	if m.discarded {
		return 0, false, ErrDiscarded
	}
	n := copy(p, m.data)
	m.data = m.data[n:]
	m.owed += n
	var err error
	if len(m.data) == 0 {
		if err = m.err; err == nil && n == 0 {
			err = m.late
		}
		if n > 0 && err != io.EOF {
			err = nil
		}
	}
	return n, m.tell(), err
}

func (m *inboxModel) tell() bool {
	if m.full && len(m.data) <= m.high/2 {
		m.full = false
		return true
	}
	due := m.owed >= m.high/creditShare || m.err != nil && len(m.data) == 0
	if m.credits && !m.told && m.owed > 0 && due {
		m.told = true
		return true
	}
	return false
}

func TestInboxModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var in Inbox
		m := &inboxModel{credits: seed%2 == 1, high: r.IntN(100)}
		in.Reset(m.high, m.credits)
		put, got, credited := 0, 0, 0
		for range 200 {
			switch r.IntN(20) {
			default:
				p, last := bytes.Repeat([]byte{byte(put)}, r.IntN(40)), r.IntN(100) == 0
				put += len(p)
				if a, b := in.Put(p, last), m.put(p, last); a != b {
					t.Fatalf("seed %d: Put: full %v, want %v", seed, a, b)
				}
			case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
				a, b := make([]byte, r.IntN(60)), make([]byte, 60)
				n, tell, err := in.Read(a)
				wantN, wantTell, wantErr := m.read(b[:len(a)])
				if n != wantN || tell != wantTell || err != wantErr || !bytes.Equal(a[:n], b[:n]) {
					t.Fatalf("seed %d: Read: %d %v %v, want %d %v %v", seed, n, tell, err, wantN, wantTell, wantErr)
				}
				got += n
			case 10:
				n := in.Credit()
				if n != m.owed {
					t.Fatalf("seed %d: Credit %d, want %d", seed, n, m.owed)
				}
				credited += n
				m.owed, m.told = 0, false
			case 11:
				m.late = []error{nil, os.ErrDeadlineExceeded}[r.IntN(2)]
				in.Interrupt(m.late)
			case 12:
				if r.IntN(20) == 0 {
					in.Fail(io.ErrUnexpectedEOF)
					if m.err == nil {
						m.err = io.ErrUnexpectedEOF
					}
				}
			case 13:
				if r.IntN(20) == 0 {
					m.owed += len(m.data)
					m.data, m.discarded = nil, true
					if a, b := in.Discard(), m.tell(); a != b {
						t.Fatalf("seed %d: Discard: tell %v, want %v", seed, a, b)
					}
				}
			}
			want := State{Unread: len(m.data), Err: m.err, Late: m.late != nil, Full: m.full}
			if got := in.State(); got != want || in.Complete() != (m.err == io.EOF) {
				t.Fatalf("seed %d: %+v, complete %v; want %+v", seed, got, in.Complete(), want)
			}
		}
		in.Discard()
		if credited += in.Credit(); credited != put {
			t.Fatalf("seed %d: %d of %d bytes were credited", seed, credited, put)
		}
	}
}

// A loop and a goroutine work with one Inbox: no byte is lost, the loop never holds more than it
// may, and neither waits for ever.
func TestInboxBetweenGoroutines(t *testing.T) {
	for _, credits := range []bool{false, true} {
		var in Inbox
		const high, total = 1 << 10, 1 << 20
		in.Reset(high, credits)
		loop := driver.Process{}.NewParker()
		read := make(chan []byte)
		go func() {
			var got []byte
			p := driver.Process{}.NewParker()
			scratch := make([]byte, 700)
			for {
				n, tell, err := in.Read(scratch)
				got = append(got, scratch[:n]...)
				if tell {
					loop.Unpark()
				}
				if err != nil {
					read <- got
					return
				}
				if n == 0 {
					in.Wait(p, nil)
				}
			}
		}()
		var sent []byte
		for window := high; len(sent) < total; {
			p := bytes.Repeat([]byte{byte(len(sent) >> 8)}, min(300, window))
			sent = append(sent, p...)
			full := in.Put(p, len(sent) >= total)
			if credits {
				window += in.Credit() - len(p)
				full = window == 0
			}
			for full && len(sent) < total {
				loop.Park()
				if !credits {
					break
				}
				window += in.Credit()
				full = window == 0
			}
			if n := in.State().Unread; n > high+300 {
				t.Fatalf("%d bytes are held", n)
			}
		}
		if got := <-read; !bytes.Equal(got, sent) {
			t.Errorf("credits %v: read %d bytes, sent %d", credits, len(got), len(sent))
		}
	}
}

// Each thing that a waiting goroutine may be there for wakes it, and one that has happened before
// keeps it from waiting.
func TestInboxWaitEnds(t *testing.T) {
	for name, happen := range map[string]func(in *Inbox){
		"bytes":     func(in *Inbox) { in.Put([]byte("a"), false) },
		"end":       func(in *Inbox) { in.Put(nil, true) },
		"failure":   func(in *Inbox) { in.Fail(io.ErrUnexpectedEOF) },
		"interrupt": func(in *Inbox) { in.Interrupt(os.ErrDeadlineExceeded) },
		"discard":   func(in *Inbox) { in.Discard() },
		"move":      func(in *Inbox) { var c buf.Chain; in.Move(&c); c.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			var in Inbox
			in.Reset(10, false)
			const readers = 3
			parked, woken := make(chan bool), make(chan bool)
			for range readers {
				go func() {
					in.Wait(driver.Process{}.NewParker(), func(p driver.Parker) { parked <- true; p.Park() })
					woken <- true
				}()
			}
			for range readers {
				<-parked
			}
			happen(&in)
			for range readers {
				<-woken
			}
			in.Wait(driver.Process{}.NewParker(), func(driver.Parker) { t.Error("it waits for what has happened") })
			if len(in.readers) != 0 {
				t.Errorf("%d readers are still known", len(in.readers))
			}
			in.Discard()
		})
	}
}

// WaitEnd goes on waiting when bytes come that are not read, and Wake ends it for now.
func TestInboxWaitEnd(t *testing.T) {
	var in Inbox
	in.Reset(10, false)
	in.Discard()
	p, parked, woken := driver.Process{}.NewParker(), make(chan bool), make(chan bool)
	wait := func() {
		in.WaitEnd(p, func(p driver.Parker) { parked <- true; p.Park() })
		woken <- true
	}
	for _, happen := range []func(){func() { in.Put([]byte("a"), false) }, in.Wake,
		func() { in.Interrupt(os.ErrDeadlineExceeded) }} {
		go wait()
		<-parked
		happen()
		<-woken
	}
	in.WaitEnd(p, func(driver.Parker) { t.Error("it waits in spite of an interruption") })
	in.Interrupt(nil)
	in.Put(nil, true)
	in.WaitEnd(p, func(driver.Parker) { t.Error("it waits for an end that has come") })
}

// A permit that was left from before ends Wait, and leaves no reader behind.
func TestInboxWaitWithAPermit(t *testing.T) {
	var in Inbox
	in.Reset(10, false)
	p := driver.Process{}.NewParker()
	p.Unpark()
	in.Wait(p, nil)
	if len(in.readers) != 0 {
		t.Errorf("%d readers are still known", len(in.readers))
	}
}

func TestInboxMoveAndReset(t *testing.T) {
	var in Inbox
	var rest buf.Chain
	in.Reset(8, false)
	if in.Put([]byte("12345678"), false); !in.Move(&rest) {
		t.Error("Move did not say that a full inbox has room")
	}
	if got := string(rest.AppendTo(nil)); got != "12345678" {
		t.Errorf("moved %q", got)
	}
	rest.Release()
	if _, _, err := in.Read(make([]byte, 1)); !errors.Is(err, ErrDiscarded) {
		t.Errorf("Read after Move: %v", err)
	}
	in.Put([]byte("x"), true)
	in.Reset(8, true)
	if in.State() != (State{}) || in.Complete() || in.Credit() != 0 {
		t.Error("Reset left something")
	}
}
