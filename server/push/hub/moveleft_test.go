package hub

import (
	"slices"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push/internal/pushtest"
)

// The leaving of a client that stays in the old process is announced by the new one, and that of
// one that has come is not. A move that fails announces nothing.
func TestLeavingOfThoseWhoStay(t *testing.T) {
	for _, back := range []bool{false, true} {
		clock := pushtest.NewClock()
		from := newHome(t, clock, pushtest.Random(), pushtest.Seeded())
		clients := map[string]*fakeTransport{}
		for _, name := range []string{"moves", "stays"} {
			c := new(fakeTransport)
			c.s = from.StartConnected(c, jsonForm, Grant{User: name}, nil)
			c.frame([]byte(`{"id":2,"subscribe":{"channel":"seen:a"}}` + "\n" +
				`{"id":3,"subscribe":{"channel":"plain"}}`))
			clients[name] = c
		}
		moves, stays := clients["moves"], clients["stays"]
		moves.Take()
		from.freeze(t)
		to := newHome(t, clock, pushtest.Random(), pushtest.Seeded())
		to.freeze(t)
		from.sharedState(t, to)
		state, ok := moves.s.AppendState(nil)
		if !ok {
			t.Fatal("it cannot move")
		}
		moved := new(fakeTransport)
		var err error
		if moved.s, err = to.ThawSession(moved, jsonForm, state); err != nil {
			t.Fatal(err)
		}
		receiver := moved
		if back {
			receiver = moves
			moved.s.Moved()
			to.Leave()
			from.thaw()
		} else {
			moves.s.Moved()
			from.Leave()
			to.thaw()
			stays.hangUp()
		}
		clock.Advance(0)
		var notices []string
		for _, message := range receiver.Take() {
			if strings.Contains(message, "leave") {
				notices = append(notices, message)
			}
		}
		leave := func(message string) bool {
			return strings.Contains(message, `"user":"stays"`) && strings.Contains(message, `"seen:a"`)
		}
		if n := len(notices); back && n != 0 || !back && (n != 1 || !slices.ContainsFunc(notices, leave)) {
			t.Errorf("back %v: %q", back, notices)
		}
		receiver.hangUp()
		if back {
			stays.hangUp()
		}
		from.end(t)
		to.end(t)
	}
}

// Two records for one client in one channel are refused.
func TestWrongPresence(t *testing.T) {
	h := newHome(t, pushtest.NewClock(), pushtest.Random(), pushtest.Seeded())
	h.freeze(t)
	r, err := h.Restore()
	if err != nil {
		t.Fatal(err)
	}
	record := func(id byte, rest string) []byte { return append([]byte{15: id}, rest...) }
	for _, tt := range []struct {
		record []byte
		ok     bool
	}{{record(1, "\x01a\x011\x00\x00\x00"), true}, {record(1, "\x01b\x011\x00\x00\x00"), true},
		{record(2, "\x01a\x012\x00\x00\x00"), true}, {record(1, "\x01b\x011\x00\x00\x00"), false},
		{record(3, "\x01b"), false}} {
		if err := r.Record(presentPart, tt.record); (err == nil) != tt.ok {
			t.Errorf("%q: %v", tt.record, err)
		}
	}
	h.Leave()
	h.end(t)
}
