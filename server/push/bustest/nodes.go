package bustest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
)

// This file tests a Bus that spans nodes.

// RunNodes checks several nodes of one cluster: each subtest of Run on the first of them, and then
// what holds between them. open returns the nodes of a new, empty cluster; RunNodes closes them.
func RunNodes(t *testing.T, open func(t *testing.T) []push.Bus) {
	t.Run("First", func(t *testing.T) {
		Run(t, func() push.Bus { return open(t)[0] })
	})
	for _, part := range []struct {
		name string
		run  func(*testing.T, []push.Bus)
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
			for _, bus := range nodes {
				defer bus.Close()
			}
			part.run(t, nodes)
		})
	}
}

// orderOfKept publishes from all nodes: all receivers get everything in one order, that of the
// offsets.
func orderOfKept(t *testing.T, nodes []push.Bus) {
	const each = 200
	to := push.Topic{Name: "news", Keep: push.Retention{Size: 1000, Age: time.Hour}}
	receivers := make([]*recorder, len(nodes))
	for i, bus := range nodes {
		receivers[i] = newRecorder()
		mustFollow(t, bus, to, receivers[i])
	}
	var wg sync.WaitGroup
	for i, bus := range nodes {
		for range 2 {
			wg.Go(func() {
				for n := range each {
					mustKeep(t, bus, to, fmt.Sprintf("%d from %d", n, i))
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
		rise := slices.IsSortedFunc(e.at, func(a, b push.Position) int { return cmp.Compare(a.Offset, b.Offset) })
		if len(e.at) != n || !rise {
			t.Errorf("node %d: %d positions, which do not rise", i, len(e.at))
		}
		if !slices.Equal(e.at, receivers[0].at) || e.lost > 0 {
			t.Errorf("node %d has other positions than the first, or has lost %d times", i, e.lost)
		}
	}
}

// orderOfOnePublisherToAll publishes without a history.
func orderOfOnePublisherToAll(t *testing.T, nodes []push.Bus) {
	const n = 200
	receivers := make([]*recorder, len(nodes))
	for i, bus := range nodes {
		receivers[i] = newRecorder()
		mustSubscribe(t, bus, "news", receivers[i])
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
func recoverElsewhere(t *testing.T, nodes []push.Bus) {
	const n = 8
	var list []push.Position
	for i := range n {
		list = append(list, mustKeep(t, nodes[i%len(nodes)], kept("news"), strconv.Itoa(i)))
		for _, bus := range nodes {
			for at, since := range list {
				q := push.Query{Since: &since, Limit: -1}
				h := mustRead(t, bus, kept("news"), q)
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
	for i, bus := range nodes { // each has all when it has the last
		q := push.Query{Since: &list[n-1], Limit: -1}
		mustRead(t, bus, kept("news"), q)
		q = push.Query{Since: &list[0], Limit: -1}
		if got := texts(t, mustRead(t, bus, kept("news"), q), q); len(got) != n-1 {
			t.Errorf("node %d: %v", i, got)
		}
	}
}

// oncePerIDEverywhere publishes with one ID on all nodes at once.
func oncePerIDEverywhere(t *testing.T, nodes []push.Bus) {
	e := newRecorder()
	mustFollow(t, nodes[0], kept("news"), e)
	var wg sync.WaitGroup
	at := make([]push.Position, len(nodes))
	for i, bus := range nodes {
		wg.Go(func() {
			p := message("1")
			p.ID = "an id"
			var err error
			if at[i], err = bus.Publish(within(t), kept("news"), p); err != nil {
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

func presentEverywhere(t *testing.T, nodes []push.Bus) {
	for i, bus := range nodes {
		e := newRecorder()
		for n := range 5 {
			e.clients = append(e.clients, push.ClientInfo{Client: fmt.Sprint(i, n), User: strconv.Itoa(n)})
		}
		mustSubscribe(t, bus, "news", e)
	}
	all := 5 * len(nodes)
	for _, bus := range nodes {
		eventually(t, "a node knows the others", func() bool {
			there, err := bus.Present(within(t), "news", 7)
			return err == nil && there.Count == all && there.Users == 5 && len(there.Clients) == 7 &&
				len(there.Missing) == 0
		})
	}
	eventually(t, "all clients are named", func() bool {
		there, err := nodes[0].Present(within(t), "news", 100)
		return err == nil && len(there.Clients) == all
	})
}

func announceEverywhere(t *testing.T, nodes []push.Bus) {
	receivers := make([]*recorder, len(nodes))
	for i, bus := range nodes {
		receivers[i] = newRecorder()
		mustSubscribe(t, bus, "news", receivers[i])
	}
	eventually(t, "all are told", func() bool { // the nodes may not hear each other yet
		info := push.ClientInfo{Client: "1", User: "ann", ConnInfo: []byte("{}")}
		notice := push.Notice{ClientInfo: info, Joined: true}
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

func askEverywhere(t *testing.T, nodes []push.Bus) {
	for i, bus := range nodes {
		bus.Serve("who", func(body []byte) []byte { return append(body, byte('0'+i)) })
	}
	nodes[0].Serve("first", func([]byte) []byte { return []byte("me") })
	for _, bus := range nodes {
		var got []string
		eventually(t, "all nodes answer", func() bool {
			got = nil
			missing, err := bus.Ask(within(t), "who", []byte("node "), func(a []byte) { got = append(got, string(a)) })
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
			missing, err := bus.Ask(within(t), "first", nil, func(a []byte) { got = append(got, string(a)) })
			return err == nil && len(missing) == 0 && slices.Equal(got, []string{"me"})
		})
	}
}

func forgetEverywhere(t *testing.T, nodes []push.Bus) {
	mustKeep(t, nodes[0], kept("news"), "1")
	if err := nodes[1].Forget(within(t), kept("news")); err != nil {
		t.Fatal(err)
	}
	last := mustKeep(t, nodes[1], kept("news"), "2")
	for i, bus := range nodes {
		q := push.Query{Since: &push.Position{Offset: last.Offset}, Limit: -1}
		mustRead(t, bus, kept("news"), q) // waits for it
		q = push.Query{Limit: -1}
		if got := texts(t, mustRead(t, bus, kept("news"), q), q); !slices.Equal(got, []string{"2"}) {
			t.Errorf("node %d has %q", i, got)
		}
	}
}

func stateShowsNodes(t *testing.T, nodes []push.Bus) {
	for _, bus := range nodes {
		mustKeep(t, bus, kept("news"), "1")
		eventually(t, "the state shows all nodes", func() bool {
			s := bus.State()
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
