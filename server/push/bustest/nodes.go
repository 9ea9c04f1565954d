package bustest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// This file tests a Bus that spans nodes.

// RunNodes checks several nodes of one cluster: each subtest of Run on the first of them, and then
// what holds between them. open returns the nodes of a new, empty cluster; RunNodes closes them.
func RunNodes(t *testing.T, open func(t *testing.T) []bus.Bus) {
	t.Run("First", func(t *testing.T) {
		Run(t, func() bus.Bus { return open(t)[0] })
	})
	for _, part := range []struct {
		name string
		run  func(*testing.T, []bus.Bus)
	}{
		{"OrderOfKept", orderOfKept},
		{"OrderOfOnePublisher", orderOfOnePublisherToAll},
		{"RecoverElsewhere", recoverElsewhere},
		{"OncePerIDEverywhere", oncePerIDEverywhere},
		{"PresentEverywhere", presentEverywhere},
		{"AnnounceEverywhere", announceEverywhere},
		{"AskEverywhere", askEverywhere},
		{"ForgetEverywhere", forgetEverywhere},
		{"StateShowsNodes", stateShowsNodes},
	} {
		t.Run(part.name, func(t *testing.T) {
			nodes := open(t)
			for _, subject := range nodes {
				defer subject.Close()
			}
			part.run(t, nodes)
		})
	}
}

// orderOfKept publishes from all nodes: all receivers get everything in one order, that of the
// offsets.
func orderOfKept(t *testing.T, nodes []bus.Bus) {
	const each = 200
	to := bus.Topic{Name: "news", Keep: bus.Retention{Size: 1000, Age: time.Hour}}
	receivers := make([]*recorder, len(nodes))
	for i, subject := range nodes {
		receivers[i] = newRecorder()
		mustFollow(t, subject, to, receivers[i])
	}
	var wg sync.WaitGroup
	for i, subject := range nodes {
		for range 2 {
			wg.Go(func() {
				for n := range each {
					mustKeep(t, subject, to, fmt.Sprintf("%d from %d", n, i))
				}
			})
		}
	}
	wg.Wait()
	n := 2 * each * len(nodes)
	first := receivers[0].wait(t, n)
	for i, e := range receivers {
		if got := e.wait(t, n); !slices.Equal(got, first) {
			t.Errorf("node %d has received another order than the first", i)
		}
		rise := slices.IsSortedFunc(e.at, func(a, b bus.Position) int { return cmp.Compare(a.Offset, b.Offset) })
		if len(e.at) != n || !rise {
			t.Errorf("node %d: %d positions, which do not rise", i, len(e.at))
		}
		if !slices.Equal(e.at, receivers[0].at) || e.lost > 0 {
			t.Errorf("node %d has other positions than the first, or has lost %d times", i, e.lost)
		}
	}
}

// orderOfOnePublisherToAll publishes without a history.
func orderOfOnePublisherToAll(t *testing.T, nodes []bus.Bus) {
	const n = 200
	receivers := make([]*recorder, len(nodes))
	for i, subject := range nodes {
		receivers[i] = newRecorder()
		mustSubscribe(t, subject, "news", receivers[i])
	}
	eventually(t, "the nodes hear each other", func() bool {
		mustPublish(t, nodes[0], "news", message("hello"))
		return !slices.ContainsFunc(receivers, func(e *recorder) bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.received) == 0
		})
	})
	for i := range n {
		mustPublish(t, nodes[0], "news", message(strconv.Itoa(i)))
	}
	for i, e := range receivers {
		last := fmt.Sprintf("news %d  ", n-1)
		e.waitFor(t, func() bool { return e.received[len(e.received)-1] == last })
		got := slices.DeleteFunc(e.wait(t, n), func(text string) bool { return text == "news hello  " })
		for at, text := range got {
			if want := fmt.Sprintf("news %d  ", at); text != want {
				t.Fatalf("node %d: message %d is %q, want %q", i, at, text, want)
			}
		}
	}
}

// recoverElsewhere asks each node for what came after each position that another node has given.
func recoverElsewhere(t *testing.T, nodes []bus.Bus) {
	const n = 8
	var list []bus.Position
	for i := range n {
		list = append(list, mustKeep(t, nodes[i%len(nodes)], kept("news"), strconv.Itoa(i)))
		for _, subject := range nodes {
			for at, since := range list {
				q := bus.Query{Since: &since, Limit: -1}
				h := mustRead(t, subject, kept("news"), q)
				if since == list[len(list)-1] && !h.Complete {
					t.Errorf("after the last one, which another node has given, something is missing")
				}
				got := texts(t, h, q)
				if !h.Complete || len(got) > i-at || len(got) > 0 && got[0] != strconv.Itoa(at+1) {
					t.Fatalf("after %d of %d: %v, complete %v", at, i, got, h.Complete)
				}
			}
		}
	}
	for i, subject := range nodes { // each has all when it has the last
		q := bus.Query{Since: &list[n-1], Limit: -1}
		mustRead(t, subject, kept("news"), q)
		q = bus.Query{Since: &list[0], Limit: -1}
		if got := texts(t, mustRead(t, subject, kept("news"), q), q); len(got) != n-1 {
			t.Errorf("node %d: %v", i, got)
		}
	}
}

// oncePerIDEverywhere publishes with one ID on all nodes at once.
func oncePerIDEverywhere(t *testing.T, nodes []bus.Bus) {
	e := newRecorder()
	mustFollow(t, nodes[0], kept("news"), e)
	var wg sync.WaitGroup
	at := make([]bus.Position, len(nodes))
	for i, subject := range nodes {
		wg.Go(func() {
			p := message("1")
			p.ID = "an id"
			var err error
			if at[i], err = subject.Publish(within(t), kept("news"), p); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	mustKeep(t, nodes[0], kept("news"), "2")
	if got := e.wait(t, 2); len(got) != 2 {
		t.Errorf("received %q, want the ID once", got)
	}
	for _, other := range at {
		if other != at[0] {
			t.Errorf("the nodes have published it at %v", at)
		}
	}
}

// eventually waits until so returns true.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}

func presentEverywhere(t *testing.T, nodes []bus.Bus) {
	for i, subject := range nodes {
		e := newRecorder()
		for n := range 5 {
			e.clients = append(e.clients, bus.ClientInfo{Client: fmt.Sprint(i, n), User: strconv.Itoa(n)})
		}
		mustSubscribe(t, subject, "news", e)
	}
	all := 5 * len(nodes)
	for _, subject := range nodes {
		eventually(t, "a node knows the others", func() bool {
			there, err := subject.Present(within(t), "news", 7)
			return err == nil && there.Count == all && there.Users == 5 && len(there.Clients) == 7 &&
				len(there.Missing) == 0
		})
	}
	eventually(t, "all clients are named", func() bool {
		there, err := nodes[0].Present(within(t), "news", 100)
		return err == nil && len(there.Clients) == all
	})
}

func announceEverywhere(t *testing.T, nodes []bus.Bus) {
	receivers := make([]*recorder, len(nodes))
	for i, subject := range nodes {
		receivers[i] = newRecorder()
		mustSubscribe(t, subject, "news", receivers[i])
	}
	eventually(t, "all are told", func() bool { // the nodes may not hear each other yet
		info := bus.ClientInfo{Client: "1", User: "ann", ConnInfo: []byte("{}")}
		notice := bus.Notice{ClientInfo: info, Joined: true}
		if err := nodes[0].Announce(within(t), "news", notice); err != nil {
			t.Fatal(err)
		}
		for _, e := range receivers {
			e.mu.Lock()
			told := slices.Contains(e.notices, "news 1 ann true")
			e.mu.Unlock()
			if !told {
				return false
			}
		}
		return true
	})
}

func askEverywhere(t *testing.T, nodes []bus.Bus) {
	for i, subject := range nodes {
		subject.Serve("who", func(body []byte) []byte { return append(body, byte('0'+i)) })
	}
	nodes[0].Serve("first", func([]byte) []byte { return []byte("me") })
	for _, subject := range nodes {
		var got []string
		eventually(t, "all nodes answer", func() bool {
			got = nil
			missing, err := subject.Ask(within(t), "who", []byte("node "), func(a []byte) {
				got = append(got, string(a))
			})
			return err == nil && len(missing) == 0 && len(got) == len(nodes)
		})
		slices.Sort(got)
		for i := range nodes {
			if got[i] != fmt.Sprintf("node %d", i) {
				t.Errorf("answers %q", got)
			}
		}
		eventually(t, "the one node that serves a kind answers", func() bool {
			got = nil
			missing, err := subject.Ask(within(t), "first", nil, func(a []byte) { got = append(got, string(a)) })
			return err == nil && len(missing) == 0 && slices.Equal(got, []string{"me"})
		})
	}
}

func forgetEverywhere(t *testing.T, nodes []bus.Bus) {
	mustKeep(t, nodes[0], kept("news"), "1")
	if err := nodes[1].Forget(within(t), kept("news")); err != nil {
		t.Fatal(err)
	}
	last := mustKeep(t, nodes[1], kept("news"), "2")
	for i, subject := range nodes {
		q := bus.Query{Since: &bus.Position{Offset: last.Offset}, Limit: -1}
		mustRead(t, subject, kept("news"), q) // waits for it
		q = bus.Query{Limit: -1}
		if got := texts(t, mustRead(t, subject, kept("news"), q), q); !slices.Equal(got, []string{"2"}) {
			t.Errorf("node %d has %q", i, got)
		}
	}
}

func stateShowsNodes(t *testing.T, nodes []bus.Bus) {
	for _, subject := range nodes {
		mustKeep(t, subject, kept("news"), "1")
		eventually(t, "the state shows all nodes", func() bool {
			s := subject.State()
			self := 0
			for _, n := range s.Nodes {
				if n.Self {
					self++
				}
			}
			return s.Problem == "" && len(s.Nodes) == len(nodes) && self == 1
		})
	}
}
