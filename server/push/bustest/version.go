package bustest

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad/server/push/bus"
)

// versions publishes with and without versions, in and out of order.
func versions(t *testing.T, subject bus.Bus) {
	e := newRecorder()
	mustFollow(t, subject, kept("news"), e)
	var last bus.Position
	var want []string
	for i, tt := range []struct {
		number uint64 // 0: without a Version
		epoch  string
		drop   bool
	}{
		{3, "", false}, {3, "", true}, {2, "", true}, {4, "a", false}, {4, "a", true}, {3, "", true}, {1, "b", false},
		{5, "", false}, {5, "a", false}, {0, "", false}, {1, "a", false}, {1, "", true},
	} {
		p := message(strconv.Itoa(i))
		if tt.number > 0 {
			p.Version = &bus.Version{Number: tt.number, Epoch: tt.epoch}
		}
		at, err := subject.Publish(within(t), kept("news"), p)
		switch {
		case tt.drop && (!errors.Is(err, bus.ErrOutdated) || at != last):
			t.Errorf("%d: %v at %v, want it to be outdated at %v", i, err, at, last)
		case !tt.drop && err != nil:
			t.Fatalf("%d: %v", i, err)
		}
		if !tt.drop {
			last, want = at, append(want, string(p.Data))
		}
	}
	if got := numbers(e.wait(t, len(want))); !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
	q := bus.Query{Limit: -1}
	if got := texts(t, mustRead(t, subject, kept("news"), q), q); !slices.Equal(got, want) {
		t.Errorf("the history has %q, want %q", got, want)
	}
	if err := subject.Forget(within(t), kept("news")); err != nil {
		t.Fatal(err)
	}
	p := message("again")
	p.Version = &bus.Version{Number: 1, Epoch: "a"}
	if _, err := subject.Publish(within(t), kept("news"), p); err != nil {
		t.Errorf("after Forget: %v", err)
	}
	if _, err := subject.Publish(within(t), bus.Topic{Name: "passing"}, p); !errors.Is(err, bus.ErrNoHistory) {
		t.Errorf("without a Retention: %v", err)
	}
}

// numbers returns the data of what a recorder has received.
func numbers(received []string) (list []string) {
	for _, one := range received {
		list = append(list, strings.Fields(one)[1]) // behind the channel
	}
	return list
}

// versionsRace publishes versions from several goroutines: receivers get rising ones only, and the
// newest at the end.
func versionsRace(t *testing.T, subject bus.Bus) {
	const publishers, each = 4, 8
	e := newRecorder()
	mustFollow(t, subject, kept("news"), e)
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for j := range each {
				n := j*publishers + i + 1
				p := message(strconv.Itoa(n))
				p.Version = &bus.Version{Number: uint64(n)}
				if _, err := subject.Publish(within(t), kept("news"), p); err != nil && !errors.Is(err,
					bus.ErrOutdated) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := numbers(e.wait(t, 1))
	before := 0
	for _, text := range got {
		n, err := strconv.Atoi(text)
		if err != nil || n <= before {
			t.Fatalf("received %q, which do not rise", got)
		}
		before = n
	}
	if before != publishers*each {
		t.Errorf("the last one received is %d, want %d", before, publishers*each)
	}
}
