package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// moved returns limiters with these rates, and the buckets of l.
func moved(t testing.TB, l *Limiters, rates Rates, now time.Time) *Limiters {
	t.Helper()
	var stream bytes.Buffer
	w := snapshot.NewWriter(&stream, StateParts())
	if err := errors.Join(l.WriteState(w, now), w.Close()); err != nil {
		t.Fatal(err)
	}
	to := new(Limiters)
	to.Set(rates)
	if err := restoreAll(to, stream.Bytes(), now); err != nil {
		t.Fatal(err)
	}
	return to
}

func restoreAll(l *Limiters, stream []byte, now time.Time) error {
	r, err := snapshot.NewReader(bytes.NewReader(stream), StateParts())
	into := l.Restore(now)
	for err == nil {
		var part string
		var body []byte
		if part, body, err = r.Next(); err == nil {
			err = into.Record(part, body)
		}
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// A client has to wait as long as without the move, for everything that is limited.
func TestRatesMove(t *testing.T) {
	rate := Rate{3, 3 * time.Second}
	rates := Rates{rate, rate, rate, rate, rate, rate, rate, rate, rate}
	takes := map[string]func(l *Limiters, now time.Time) time.Duration{
		"connect": func(l *Limiters, now time.Time) time.Duration { return l.Connect("ann", now) },
		"open":    func(l *Limiters, now time.Time) time.Duration { return l.Open("192.0.2.1:1", now) },
		"call":    func(l *Limiters, now time.Time) time.Duration { return l.Call("192.0.2.1:1", now) },
		"user":    func(l *Limiters, now time.Time) time.Duration { return l.Take(Publishing, "ann", "", now) },
		"address": func(l *Limiters, now time.Time) time.Duration {
			return l.Take(Publishing, "", "192.0.2.1:1",
				now)
		},
		"commands": func(l *Limiters, now time.Time) time.Duration { return l.Take(Commanding, "ann", "", now) },
		"subscribe": func(l *Limiters, now time.Time) time.Duration {
			return l.Take(Subscribing, "bob", "192.0.2.2:1", now)
		},
	}
	for name, take := range takes {
		now := time.Unix(1_800_000_000, 0)
		still, goes := new(Limiters), new(Limiters)
		still.Set(rates)
		goes.Set(rates)
		for i := range 40 {
			now = now.Add(time.Duration(i*i%7) * 300 * time.Millisecond)
			if a, b := take(still, now), take(goes, now); a != b {
				t.Fatalf("%s, step %d: wait %v, want %v", name, i, b, a)
			}
			goes = moved(t, goes, rates, now)
		}
	}
}

// A limit that has another rate begins anew, as after a reload; the others go on.
func TestChangedRatesBeginAnew(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	from := new(Limiters)
	from.Set(Rates{UserConnections: Rate{1, time.Minute}, AddressConnections: Rate{1, time.Minute}})
	from.Connect("ann", now)
	from.Open("192.0.2.1:1", now)
	to := moved(t, from, Rates{UserConnections: Rate{2, time.Minute}, AddressConnections: Rate{1, time.Minute}}, now)
	if to.Connect("ann", now) != 0 || to.Open("192.0.2.1:1", now) == 0 {
		t.Error("a changed rate goes on, or another begins anew")
	}
	none := moved(t, from, Rates{}, now)
	if none.Open("192.0.2.1:1", now) != 0 {
		t.Error("a rate that is gone limits")
	}
	if again := moved(t, none, Rates{UserConnections: Rate{1, time.Minute}}, now); again.Connect("ann", now) != 0 {
		t.Error("a rate that is new has been used")
	}
}

func TestWrongBucketsAreRefused(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := new(Limiters)
	l.Set(Rates{UserConnections: Rate{1, time.Minute}})
	bucketOf := func(key string) []byte {
		return snapshot.AppendInt(snapshot.AppendInt(snapshot.AppendText(nil, key), 1<<62), 0)
	}
	bucket := bucketOf("ann")
	limit := snapshot.AppendInt(snapshot.AppendNumber(snapshot.AppendText(nil, "user connections"), 1),
		int64(time.Minute))
	r := l.Restore(now)
	for _, part := range []string{bucketPart, "rates.bucket.9"} {
		if err := r.Record(part, bucket); !snapshot.IsMalformed(err) {
			t.Errorf("%s: %v", part, err)
		}
	}
	if err := r.Record(limitPart, limit); err != nil {
		t.Error(err)
	}
	if err := r.Record(bucketPart, append(bucket, 0)); !snapshot.IsMalformed(err) {
		t.Error(err)
	}
	if err := r.Record(bucketPart, bucket); err != nil {
		t.Error(err)
	}
	if wait := l.Connect("ann", now); wait != time.Minute {
		t.Errorf("a bucket that is full in 100 years makes wait %v", wait)
	}
	for i := range maxBuckets + 10 {
		if err := r.Record(bucketPart, bucketOf(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(l.current.Load().userConnections.full); n > maxBuckets {
		t.Errorf("%d buckets", n)
	}
}

func TestCapabilitiesMove(t *testing.T) {
	var cache RegexCache
	want, err := cache.Capabilities([]Capability{
		{Channels: []string{"a", "b"}, Allow: []string{"sub", "pub"}},
		{Channels: []string{"news:*"}, Match: "wildcard", Allow: []string{"hst"}},
		{Channels: []string{"^x[0-9]+$", "y"}, Match: "regex", Allow: []string{"prs", "sub"}},
		{Allow: []string{"sub"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	state := want.AppendState(nil)
	f := snapshot.NewFields(state)
	got := new(RegexCache).ReadCapabilities(f)
	if err := f.Done(); err != nil || !reflect.DeepEqual(got.AppendState(nil), state) {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, channel := range []string{"a", "b", "c", "news:1", "x12", "xx", "y"} {
		for _, what := range []Right{RightSubscribe, RightPublish, RightPresence, RightHistory} {
			if got.Allow(what, channel) != want.Allow(what, channel) {
				t.Errorf("right %d in %q is another", what, channel)
			}
		}
	}
	f = snapshot.NewFields(Capabilities{{patterns: []string{""}}}.AppendState(nil))
	if got = new(RegexCache).ReadCapabilities(f); !snapshot.IsMalformed(f.Done()) {
		t.Errorf("an empty pattern: %v, %v", got, f.Done())
	}
}

func TestFiltersMove(t *testing.T) {
	for _, text := range []string{
		`{"key":"team","cmp":"eq","val":"eng"}`, `{"key":"n","cmp":"gt","val":"9.5"}`,
		`{"op":"or","nodes":[{"key":"a","cmp":"in","vals":["1","2"]},{"op":"not","nodes":[{"key":"b","cmp":"ex"}]}]}`,
	} {
		want, err := filterIn(t, text)
		if err != nil {
			t.Fatal(err)
		}
		f := snapshot.NewFields(want.AppendState(nil))
		if got := ReadFilter(f); f.Done() != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, f.Done())
		}
	}
	deep := &TagFilter{Key: "a", Compare: "ex"}
	for range maxFilterDepth {
		deep = &TagFilter{Op: "not", Nodes: []*TagFilter{deep}}
	}
	for _, wrong := range []*TagFilter{deep, {Op: "xor"}, {Key: "a", Compare: "lt", Value: "x"}} {
		f := snapshot.NewFields(wrong.AppendState(nil))
		if ReadFilter(f); !snapshot.IsMalformed(f.Done()) {
			t.Errorf("%+v: %v", wrong, f.Done())
		}
	}
}

// Rules that move are compared with those of the new process as a reload compares them.
func TestLastingRulesMove(t *testing.T) {
	of := func(list ...Namespace) *Namespaces {
		all, err := NewNamespaces(list, true)
		if err != nil {
			t.Fatal(err)
		}
		return &all
	}
	a := Namespace{Name: "a", HistorySize: 10, HistoryAge: time.Minute, Recovery: true, JoinLeave: true}
	slow := Namespace{Name: "a", HistorySize: 10, HistoryAge: time.Minute, Recovery: true, JoinLeave: true,
		Slow: SlowDropOldest, SlowQueue: 100}
	open := a
	open.Publish = PublishNobody
	sets := []*Namespaces{of(), of(a), of(slow), of(open), of(a, Namespace{Name: "b"}),
		of(a, Namespace{Name: "b", JoinLeave: true}), of(Namespace{HistorySize: 1}), of(Namespace{HistorySize: 1}, a)}
	for i, from := range sets {
		var stream bytes.Buffer
		w := snapshot.NewWriter(&stream, []string{RulesPart})
		if err := errors.Join(from.WriteState(w), w.Close()); err != nil {
			t.Fatal(err)
		}
		moved := LastingRules{}
		r, err := snapshot.NewReader(&stream, []string{RulesPart})
		for err == nil {
			var body []byte
			if _, body, err = r.Next(); err == nil {
				err = moved.Record(body)
			}
		}
		if err != io.EOF {
			t.Fatal(err)
		}
		for j, to := range sets {
			want, got := from.CheckChange(to), moved.CheckChange(to)
			if fmt.Sprint(want) != fmt.Sprint(got) || i == j && got != nil {
				t.Errorf("from %d to %d: %v, want %v", i, j, got, want)
			}
		}
	}
	if err := (LastingRules{}).Record([]byte("x")); !snapshot.IsMalformed(err) {
		t.Error(err)
	}
}

// Any records are refused, or what was read of them is written so that it is read again. Nothing
// grows above what a client may send, or what limiters keep.
func FuzzState(f *testing.F) {
	now := time.Unix(1_700_000_000, 0)
	rates := Rates{UserCommands: Rate{3, time.Minute}}
	full := new(Limiters)
	full.Set(rates)
	full.Take(Commanding, "ann", "", now)
	var stream bytes.Buffer
	w := snapshot.NewWriter(&stream, StateParts())
	if err := errors.Join(full.WriteState(w, now), w.Close()); err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(0), stream.Bytes())
	all, err := new(RegexCache).Capabilities([]Capability{{Channels: []string{"a*"}, Match: "wildcard",
		Allow: []string{"sub"}}, {Channels: []string{"^b$"}, Match: "regex", Allow: []string{"pub"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(1), all.AppendState(nil))
	f.Add(uint8(2), (&TagFilter{Op: "not", Nodes: []*TagFilter{{Key: "k", Compare: "in",
		Values: []string{"1"}}}}).AppendState(nil))
	f.Add(uint8(3), snapshot.AppendText([]byte{0, 2, 2, 1, 0}, "drop-oldest"))
	f.Fuzz(func(t *testing.T, what uint8, state []byte) {
		r := snapshot.NewFields(state)
		switch what % 4 {
		case 0:
			l := new(Limiters)
			l.Set(rates)
			if restoreAll(l, state, now) == nil {
				moved(t, l, rates, now)
			}
		case 1:
			caps := new(RegexCache).ReadCapabilities(r)
			if r.Done() != nil {
				return
			}
			again := snapshot.NewFields(caps.AppendState(nil))
			if got := new(RegexCache).ReadCapabilities(again); again.Done() != nil ||
				!bytes.Equal(got.AppendState(nil), caps.AppendState(nil)) {
				t.Errorf("%q became %+v, and then %+v, %v", state, caps, got, again.Done())
			}
		case 2:
			filter := ReadFilter(r)
			if r.Done() != nil {
				return
			}
			if again := filter.AppendState(nil); !bytes.Equal(again, state) {
				t.Errorf("%q became %q", state, again)
			}
		case 3:
			rules := LastingRules{}
			if err := rules.Record(state); err != nil && !snapshot.IsMalformed(err) || err == nil && len(rules) != 1 {
				t.Errorf("%+v, %v", rules, err)
			}
		}
	})
}
