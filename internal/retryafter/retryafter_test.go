package retryafter

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A crowd is refused over some time by a server that can take so many in a second, and follows what
// it is told. No client is told less than Least or more than Most, and no second gets more than
// three times as many as the mean of the seconds that get any.
func TestCrowdComesBackSpread(t *testing.T) {
	for _, tt := range []struct {
		clients, servers int
		over             time.Duration // in which they are refused
		serves           int           // by each server, in a second
	}{
		{10_000, 1, 0, 500}, {10_000, 1, time.Second, 50}, {10_000, 1, 5 * time.Second, 2000}, {10_000, 1,
			2 * time.Second, 1},
		{10_000, 3, 0, 500}, {100_000, 1, 10 * time.Second, 5000}, {1000, 1, 0, 0}, {200, 1, time.Minute, 100},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			begin := time.Unix(1_800_000_000, 0)
			now := begin
			served := func() uint64 { return uint64(now.Sub(begin).Seconds() * float64(tt.serves)) }
			var servers []*Spread
			for i := range tt.servers {
				servers = append(servers, New(uint64(i)<<60, served))
			}
			back := map[int]int{} // clients by the second in which they come back
			for i := range tt.clients {
				now = begin.Add(tt.over * time.Duration(i) / time.Duration(tt.clients))
				wait := servers[i%tt.servers].Wait(now)
				if wait < Least || wait > Most {
					t.Fatalf("client %d is told %v", i, wait)
				}
				back[int(now.Add(wait).Sub(begin)/time.Second)]++
			}
			most := 0
			for _, n := range back {
				most = max(most, n)
			}
			if mean := tt.clients / len(back); most > 3*mean+3 {
				t.Errorf("%d come back in one second, in the mean of %d seconds %d", most, len(back), mean)
			}
		})
	}
}

// A crowd that follows what it is told, again and again, is served: not much later than the server
// can, and without coming back often.
func TestCrowdIsServed(t *testing.T) {
	for _, rate := range []int{200, 1000, 5000} {
		const clients = 10_000
		begin := time.Unix(1_800_000_000, 0)
		served, tries := 0, 0
		s := New(7, func() uint64 { return uint64(served) })
		next := make([][]int, 3600*20) // clients by the twentieth of a second in which they come
		for i := range clients {
			next[0] = append(next[0], i)
		}
		last := 0
		for step, come := range next {
			now := begin.Add(time.Duration(step) * 50 * time.Millisecond)
			room := rate / 20
			for _, client := range come {
				tries++
				if room > 0 {
					room--
					served++
					last = step
					continue
				}
				at := step + int(s.Wait(now)/(50*time.Millisecond)) + 1
				next[at] = append(next[at], client)
			}
		}
		if served != clients {
			t.Errorf("at %d a second %d of %d are served in an hour", rate, served, clients)
		}
		if least := clients * 20 / rate; last > 3*least+10*20 {
			t.Errorf("at %d a second the last is served after %d s, and could be after %d s", rate, last/20, least/20)
		}
		if tries > 5*clients {
			t.Errorf("at %d a second %d clients try %d times", rate, clients, tries)
		}
	}
}

// One client alone, and each of some that are refused rarely, waits one to two seconds.
func TestFewWaitShort(t *testing.T) {
	s := New(1, func() uint64 { return 0 })
	now := time.Unix(1_800_000_000, 0)
	for range 20 {
		if wait := s.Wait(now); wait < time.Second || wait > 2*time.Second {
			t.Errorf("told %v", wait)
		}
		now = now.Add(30 * time.Second)
	}
}

// Two servers that differ in their seeds tell their clients different times; the same seed gives
// the same times.
func TestSeeds(t *testing.T) {
	told := func(seed uint64) (all []time.Duration) {
		s := New(seed, func() uint64 { return 0 })
		for range 10 {
			all = append(all, s.Wait(time.Unix(1_800_000_000, 0)))
		}
		return all
	}
	if !slices.Equal(told(1), told(1)) {
		t.Error("the same seed tells different times")
	}
	if slices.Equal(told(1), told(1<<40)) {
		t.Error("another seed tells the same times")
	}
}

// A clock that goes back, or jumps, changes no bound.
func TestClockJumps(t *testing.T) {
	s := New(1, func() uint64 { return 0 })
	now := time.Unix(1_800_000_000, 0)
	for _, jump := range []time.Duration{0, time.Hour, -2 * time.Hour, 0, 500 * 24 * time.Hour, -time.Nanosecond} {
		now = now.Add(jump)
		for range 2000 {
			if wait := s.Wait(now); wait < Least || wait > Most {
				t.Fatalf("behind a jump of %v told %v", jump, wait)
			}
		}
	}
}

// Any number of goroutines may call it.
func TestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1, func() uint64 { return 0 })
		told := make(chan time.Duration, 800)
		for range 8 {
			go func() {
				for range 100 {
					told <- s.Wait(time.Now())
				}
			}()
		}
		seen := map[time.Duration]bool{}
		for range 800 {
			wait := <-told
			if seen[wait] {
				t.Errorf("two are told %v", wait)
			}
			seen[wait] = true
		}
	})
}

func TestSeconds(t *testing.T) {
	for wait, want := range map[time.Duration]string{0: "1", time.Second: "1", time.Second + 1: "2",
		1500 * time.Millisecond: "2", Most: "60", -time.Hour: "1", 90 * time.Second: "90"} {
		if got := Seconds(wait); got != want {
			t.Errorf("%v: %s, want %s", wait, got, want)
		}
	}
}

func TestStream(t *testing.T) {
	for _, tt := range []struct {
		message string
		wait    time.Duration
		want    string
	}{
		{"later", 1500 * time.Millisecond, ": later\nretry: 1500\n\n"},
		{"later", 2*time.Second + 1, ": later\nretry: 2001\n\n"},
		{"a\nretry: 1\r\n\n", time.Minute, ": a retry: 1   \nretry: 60000\n\n"},
	} {
		if got := string(AppendStream(nil, tt.message, tt.wait)); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// A client that reads anything beside Server-Sent Events is no EventSource, and understands 503.
func TestEventSources(t *testing.T) {
	for _, tt := range []struct {
		accept []string
		want   bool
	}{
		{[]string{"text/event-stream"}, true},
		{[]string{"Text/Event-Stream ; q=1"}, true},
		{[]string{", text/event-stream,\ttext/event-stream;charset=utf-8,"}, true},
		{[]string{"text/event-stream", "text/event-stream"}, true},
		{nil, false},
		{[]string{""}, false},
		{[]string{","}, false},
		{[]string{"*/*"}, false},
		{[]string{"text/html"}, false},
		{[]string{"text/*"}, false},
		{[]string{"text/event-stream, */*"}, false},
		{[]string{"application/json, text/event-stream"}, false},
		{[]string{"text/event-stream", "*/*;q=0.1"}, false},
		{[]string{"text/event-stream-2"}, false},
		{[]string{"application/json;profile=text/event-stream"}, false},
	} {
		if IsEventSource("GET", tt.accept) != tt.want || IsEventSource("POST", tt.accept) {
			t.Errorf("Accept: %q: want %v for GET alone", tt.accept, tt.want)
		}
	}
}
