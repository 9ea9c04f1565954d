package push_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
)

// heard is a line that a client has received, with the members that the tests read.
type heard struct {
	ID        int
	Error     *struct{ Code int }
	Subscribe *struct {
		Recoverable, Positioned, Recovered bool
		WasRecovering                      bool `json:"was_recovering"`
		Epoch                              string
		Offset                             uint64
		Publications                       []heardPublication
	}
	Push *struct {
		Channel     string
		Pub         *heardPublication
		Unsubscribe *struct{ Code int }
	}
}

// A follower is a client that loses its connection now and then and recovers, as the client
// libraries do. It checks that it gets every publication once.
type follower struct {
	seen int // publications, which count up from 1
	at   push.Position
	told int // how often the server told it to subscribe again
	lost int // how often it could not recover
}

type heardPublication struct {
	Data   json.RawMessage
	Offset uint64
}

// check is take for lines that a client has received.
func (f *follower) check(t *testing.T, list []heard) bool {
	subscribed := true
	for _, s := range list {
		switch {
		case s.Subscribe != nil && s.Subscribe.WasRecovering && !s.Subscribe.Recovered:
			f.lost++
			f.seen, f.at = int(s.Subscribe.Offset), push.Position{Offset: s.Subscribe.Offset, Epoch: s.Subscribe.Epoch}
		case s.Subscribe != nil:
			for _, p := range s.Subscribe.Publications {
				f.next(t, p)
			}
			f.at.Epoch = s.Subscribe.Epoch
			if !s.Subscribe.WasRecovering {
				f.seen, f.at.Offset = int(s.Subscribe.Offset), s.Subscribe.Offset
			}
			if f.at.Offset != s.Subscribe.Offset {
				t.Errorf("recovered up to %d, the reply says %d", f.at.Offset, s.Subscribe.Offset)
			}
		case s.Push != nil && s.Push.Unsubscribe != nil:
			f.told++
			subscribed = false
		case s.Push != nil:
			f.next(t, *s.Push.Pub)
		case s.Error != nil:
			t.Errorf("error %+v", s.Error)
		}
	}
	return subscribed
}

func (f *follower) next(t *testing.T, p heardPublication) {
	f.seen++
	f.at.Offset = p.Offset
	if string(p.Data) != strconv.Itoa(f.seen) || p.Offset != uint64(f.seen) {
		t.Errorf("publication %s at %d, want %d", p.Data, p.Offset, f.seen)
		f.seen = int(p.Offset)
	}
}

// lines parses the lines of a frame.
func lines(t *testing.T, payload string) (list []heard) {
	t.Helper()
	for line := range strings.Lines(payload) {
		var s heard
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		list = append(list, s)
	}
	return list
}
