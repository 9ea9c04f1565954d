// Package bustest is the conformance suite of bus.Bus. Every implementation runs it:
//
//	func TestBus(t *testing.T) { bustest.Run(t, func() bus.Bus { return membus.New(membus.Config{}) }) }
package bustest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// patience is how long a delivery may take on a bus that spans nodes before the suite gives up.
const patience = time.Minute

// Run checks a Bus against its contract. open returns a new, empty Bus for each subtest; Run closes
// it.
func Run(t *testing.T, open func() bus.Bus) {
	for _, part := range []struct {
		name string
		run  func(*testing.T, bus.Bus)
	}{
		{"Delivers", delivers},
		{"KeepsChannelsApart", keepsChannelsApart},
		{"NoSubscribers", noSubscribers},
		{"SubscribeTwice", subscribeTwice},
		{"OrderOfOnePublisher", orderOfOnePublisher},
		{"OneOrderForAll", oneOrderForAll},
		{"OneCallAtATime", oneCallAtATime},
		{"NothingAfterUnsubscribe", nothingAfterUnsubscribe},
		{"SubscribeAgain", subscribeAgain},
		{"Churn", churn},
		{"PublishAfterContextEnded", publishAfterContextEnded},
		{"Tap", taps},
		{"Close", closes},
		{"NoHistory", noHistory},
		{"BesideTheHistory", besideTheHistory},
		{"CarriesAnyData", carriesAnyData},
		{"OncePerID", oncePerID},
		{"Versions", versions},
		{"VersionsRace", versionsRace},
		{"HistoryHasWhatIsDelivered", historyHasWhatIsDelivered},
		{"HistoryQueries", historyQueries},
		{"HistorySize", historySize},
		{"HistoryAge", historyAge},
		{"HistoryIsComplete", historyIsComplete},
		{"HistoryMeetsDelivery", historyMeetsDelivery},
		{"Forget", forgets},
		{"AnotherRetention", anotherRetention},
		{"PositionBeforeTheFirst", positionBeforeTheFirst},
		{"EpochStaysWhileSubscribed", epochStays},
		{"Present", present},
		{"PresentWithLimit", presentWithLimit},
		{"Announce", announces},
		{"Ask", asks},
		{"State", state},
	} {
		t.Run(part.name, func(t *testing.T) {
			subject := open()
			defer subject.Close()
			part.run(t, subject)
		})
	}
}

// A recorder is a Receiver that records its calls.
type recorder struct {
	mu       sync.Mutex
	changed  sync.Cond
	received []string
	inside   int
	overlap  bool
	closed   bool // no more calls may arrive
	late     int
	at       []bus.Position // of received
	lost     int
	notices  []string
	clients  []bus.ClientInfo // the clients that Present returns
}

func newRecorder() *recorder {
	e := new(recorder)
	e.changed.L = &e.mu
	return e
}

func (e *recorder) Receive(channel string, list []bus.Publication) {
	e.mu.Lock()
	e.inside++
	e.overlap = e.overlap || e.inside > 1
	if e.closed {
		e.late++
	}
	for _, p := range list {
		e.received = append(e.received, fmt.Sprintf("%s %s %s %s", channel, p.Data, p.Client, p.User))
		e.at = append(e.at, p.Position)
	}
	e.mu.Unlock()

	e.mu.Lock()
	e.inside--
	e.changed.Broadcast()
	e.mu.Unlock()
}

func (e *recorder) Lost(string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost++
	e.overlap = e.overlap || e.inside > 0
	if e.closed {
		e.late++
	}
	e.changed.Broadcast()
}

func (e *recorder) Notice(channel string, n bus.Notice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notices = append(e.notices, fmt.Sprintf("%s %s %s %v", channel, n.Client, n.User, n.Joined))
	if e.closed {
		e.late++
	}
	e.changed.Broadcast()
}

func (e *recorder) Present(channel string, to []bus.ClientInfo) []bus.ClientInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append(to, e.clients...)
}

// wait waits for n messages and returns all received ones.
func (e *recorder) wait(t *testing.T, n int) []string {
	t.Helper()
	e.waitFor(t, func() bool { return len(e.received) >= n })
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.received...)
}

// waitFor returns once so returns true. It calls so with the lock held.
func (e *recorder) waitFor(t *testing.T, so func() bool) {
	t.Helper()
	alarm := time.AfterFunc(patience, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.changed.Broadcast()
	})
	defer alarm.Stop()
	deadline := time.Now().Add(patience)
	e.mu.Lock()
	defer e.mu.Unlock()
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("received %d messages and %d notices in %v, want more", len(e.received), len(e.notices),
				patience)
		}
		e.changed.Wait()
	}
}

func message(data string) bus.Publication { return bus.Publication{Data: []byte(data)} }

// within returns a context that ends after patience.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// mustSubscribe subscribes to a channel without a history.
func mustSubscribe(t *testing.T, subject bus.Bus, channel string, r bus.Receiver) {
	t.Helper()
	if err := subject.Subscribe(within(t), bus.Topic{Name: channel}, r); err != nil {
		t.Fatalf("Subscribe(%q): %v", channel, err)
	}
}

func mustPublish(t *testing.T, subject bus.Bus, channel string, p bus.Publication) {
	t.Helper()
	if _, err := subject.Publish(within(t), bus.Topic{Name: channel}, p); err != nil {
		t.Errorf("Publish(%q): %v", channel, err)
	}
}

func delivers(t *testing.T, subject bus.Bus) {
	a, b := newRecorder(), newRecorder()
	mustSubscribe(t, subject, "news", a)
	mustSubscribe(t, subject, "news", b)
	mustPublish(t, subject, "news", bus.Publication{Data: []byte(`{"n":1}`), Client: "c", User: "u"})
	for _, e := range []*recorder{a, b} {
		if got := e.wait(t, 1); got[0] != `news {"n":1} c u` {
			t.Errorf("received %q", got)
		}
	}
}

func keepsChannelsApart(t *testing.T, subject bus.Bus) {
	names := []string{"a", "A", "a.b", "a:b", "a*", "a>", ">", "*", "ä ö/?#%00", "$a#1,2"}
	ears := make([]*recorder, len(names))
	for i, name := range names {
		ears[i] = newRecorder()
		mustSubscribe(t, subject, name, ears[i])
	}
	for _, name := range names {
		mustPublish(t, subject, name, message("1"))
	}
	for i, name := range names {
		if got := ears[i].wait(t, 1); len(got) != 1 || got[0] != name+" 1  " {
			t.Errorf("channel %q received %q", name, got)
		}
	}
}

func noSubscribers(t *testing.T, subject bus.Bus) { mustPublish(t, subject, "void", message("1")) }

func subscribeTwice(t *testing.T, subject bus.Bus) {
	e := newRecorder()
	mustSubscribe(t, subject, "news", e)
	if err := subject.Subscribe(within(t), bus.Topic{Name: "news"}, e); !errors.Is(err, bus.ErrSubscribed) {
		t.Errorf("second Subscribe: %v, want ErrSubscribed", err)
	}
	mustPublish(t, subject, "news", message("1"))
	mustPublish(t, subject, "news", message("2"))
	if got := e.wait(t, 2); got[0] != "news 1  " || got[1] != "news 2  " {
		t.Errorf("received %q, want each message once", got)
	}
}

func orderOfOnePublisher(t *testing.T, subject bus.Bus) {
	const n = 1000
	e := newRecorder()
	mustSubscribe(t, subject, "news", e)
	for i := range n {
		mustPublish(t, subject, "news", message(strconv.Itoa(i)))
	}
	for i, got := range e.wait(t, n) {
		if want := fmt.Sprintf("news %d  ", i); got != want {
			t.Fatalf("message %d is %q, want %q", i, got, want)
		}
	}
}

// publishAll publishes `each` messages from each of four goroutines. It returns the total.
func publishAll(t *testing.T, subject bus.Bus, channel string, each int) int {
	const publishers = 4
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for i := range each {
				mustPublish(t, subject, channel, message(strconv.Itoa(p*each+i)))
			}
		})
	}
	wg.Wait()
	return publishers * each
}

func oneOrderForAll(t *testing.T, subject bus.Bus) {
	a, b, c := newRecorder(), newRecorder(), newRecorder()
	for _, e := range []*recorder{a, b, c} {
		mustSubscribe(t, subject, "news", e)
	}
	n := publishAll(t, subject, "news", 200)
	first := a.wait(t, n)
	for _, e := range []*recorder{b, c} {
		for i, got := range e.wait(t, n) {
			if got != first[i] {
				t.Fatalf("message %d is %q for one receiver and %q for another", i, got, first[i])
			}
		}
	}
}

func oneCallAtATime(t *testing.T, subject bus.Bus) {
	e := newRecorder()
	mustSubscribe(t, subject, "news", e)
	e.wait(t, publishAll(t, subject, "news", 200))
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.overlap {
		t.Error("Receive was called for one channel while it was running")
	}
}

func nothingAfterUnsubscribe(t *testing.T, subject bus.Bus) {
	for range 50 {
		e := newRecorder()
		mustSubscribe(t, subject, "news", e)
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 20 {
				mustPublish(t, subject, "news", message(strconv.Itoa(i)))
			}
		})
		subject.Unsubscribe("news", e)
		e.mu.Lock()
		e.closed = true
		e.mu.Unlock()
		wg.Wait()
		mustPublish(t, subject, "news", message("late"))
		e.mu.Lock()
		late := e.late
		e.mu.Unlock()
		if late > 0 {
			t.Fatalf("%d messages arrived after Unsubscribe had returned", late)
		}
	}
	subject.Unsubscribe("news", newRecorder())
	subject.Unsubscribe("never", newRecorder())
}

func subscribeAgain(t *testing.T, subject bus.Bus) {
	e := newRecorder()
	for i := range 10 {
		mustSubscribe(t, subject, "news", e)
		mustPublish(t, subject, "news", message(strconv.Itoa(i)))
		e.wait(t, i+1)
		subject.Unsubscribe("news", e)
	}
}

// churn subscribes and unsubscribes receivers while another receiver stays subscribed. That one
// must miss nothing.
func churn(t *testing.T, subject bus.Bus) {
	const n = 500
	stays := newRecorder()
	mustSubscribe(t, subject, "news", stays)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range n {
				e := newRecorder()
				mustSubscribe(t, subject, "news", e)
				mustSubscribe(t, subject, "other", e)
				subject.Unsubscribe("other", e)
				subject.Unsubscribe("news", e)
			}
		})
	}
	for i := range n {
		mustPublish(t, subject, "news", message(strconv.Itoa(i)))
	}
	wg.Wait()
	for i, got := range stays.wait(t, n) {
		if want := fmt.Sprintf("news %d  ", i); got != want {
			t.Fatalf("message %d is %q, want %q", i, got, want)
		}
	}
}

func publishAfterContextEnded(t *testing.T, subject bus.Bus) {
	e := newRecorder()
	mustSubscribe(t, subject, "news", e)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := subject.Publish(ctx, bus.Topic{Name: "news"}, message("1")); !errors.Is(err, context.Canceled) {
		t.Errorf("Publish with an ended context: %v", err)
	}
	mustPublish(t, subject, "news", message("2"))
	if got := e.wait(t, 1); got[0] != "news 2  " {
		t.Errorf("received %q: a publication that was refused", got)
	}
}

func closes(t *testing.T, subject bus.Bus) {
	e := newRecorder()
	mustSubscribe(t, subject, "news", e)
	for range 2 {
		if err := subject.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	ctx := within(t)
	if _, err := subject.Publish(ctx, kept("news"), message("1")); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Publish after Close: %v", err)
	}
	if err := subject.Subscribe(ctx, kept("more"), e); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Subscribe after Close: %v", err)
	}
	if _, err := subject.History(ctx, kept("news"), bus.Query{}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("History after Close: %v", err)
	}
	if err := subject.Forget(ctx, kept("news")); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Forget after Close: %v", err)
	}
	if err := subject.Announce(ctx, "news", bus.Notice{}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Announce after Close: %v", err)
	}
	if _, err := subject.Present(ctx, "news", 1); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Present after Close: %v", err)
	}
	if _, err := subject.Ask(ctx, "any", nil, func([]byte) {}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Ask after Close: %v", err)
	}
	subject.Unsubscribe("news", e)
	if len(e.received) > 0 {
		t.Errorf("received %q after Close", e.received)
	}
}
