package clients

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

var followers = []library{
	{"centrifuge-js", func(t *testing.T, args ...string) *process {
		return node(t, "centrifuge", "testdata/follow.mjs", args...)
	}},
	{"centrifuge-python", func(t *testing.T, args ...string) *process {
		return python(t, "centrifuge", "testdata/follow.py", args...)
	}},
}

// number publishes a number by HTTP.
func (s server) number(channel string, n int) {
	s.t.Helper()
	body := fmt.Sprintf(`{"channel":%q,"data":%d}`, channel, n)
	r, err := http.Post("http://"+s.addr+"/api/publish", "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	io.Copy(io.Discard, r.Body) // so that the connection is used again
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		s.t.Fatalf("publish: %s", r.Status)
	}
}

// Connections are reset now and then while a thousand publications are made per second. Each client
// receives all of them, once and in order.
func TestLibrariesRecover(t *testing.T) {
	t.Parallel()
	const ahead = 500 // how far publishing may lead the client: half of what one reply may recover
	publications := soak.Size(t, 1000, 3000)
	for _, lib := range followers {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--namespace", "history-size=5000 recovery=true")
			p := newProxy(t, s.addr)
			c := lib.run(t, "ws://"+p.addr+"/connection/websocket", "news")
			c.want(`^subscribed false false$`)
			cut := time.Now().Add(50 * time.Millisecond)
			cuts := 0
			for n := range publications {
				s.number("news", n+1)
				if time.Now().After(cut) {
					p.cut(false)
					cuts++
					cut = time.Now().Add(time.Duration(50+rand.IntN(400)) * time.Millisecond)
				}
				if known := n + 1 - ahead; known > 0 && known%100 == 0 {
					c.want(`^publication ` + strconv.Itoa(known) + `$`)
				}
				time.Sleep(500 * time.Microsecond)
			}
			last := publications
			c.want(`^publication ` + strconv.Itoa(last) + `$`)
			for c.count("subscribed true true") < 3 && cuts < 100 { // the client may be slow
				p.cut(false)
				cuts++
				last++
				s.number("news", last)
				c.want(`^publication ` + strconv.Itoa(last) + `$`)
			}
			c.never(`^subscribed true false$`)
			wantAll(t, c, 1, last)
			t.Logf("cut %d times, recovered %d times", cuts, c.count("subscribed true true"))
			if c.count("subscribed true true") < 3 {
				t.Error("the client has recovered too rarely")
			}
		})
	}
}

// wantAll checks that the publications so far are the numbers from first to last.
func wantAll(t *testing.T, c *process, first, last int) {
	t.Helper()
	next := first
	for _, line := range c.seen {
		number, ok := strings.CutPrefix(line, "publication ")
		if !ok {
			continue
		}
		if number != strconv.Itoa(next) {
			t.Fatalf("publication %s came where %d should have", number, next)
		}
		next++
	}
	if next != last+1 {
		t.Errorf("publications end with %d, want %d", next-1, last)
	}
}

func (p *process) count(line string) (n int) {
	for _, seen := range p.seen {
		if seen == line {
			n++
		}
	}
	return n
}

// If a client has missed more than the history keeps, it learns that, and continues with new
// publications.
func TestLibrariesLearnOfLoss(t *testing.T) {
	t.Parallel()
	for _, lib := range followers {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--namespace", "history-size=5 recovery=true")
			p := newProxy(t, s.addr)
			c := lib.run(t, "ws://"+p.addr+"/connection/websocket", "news")
			c.want(`^subscribed false false$`)
			s.number("news", 1)
			c.want(`^publication 1$`)
			p.cut(true)
			for n := range 4 {
				s.number("news", n+2)
			}
			p.up()
			c.want(`^subscribed true true$`)
			c.want(`^publication 5$`)
			wantAll(t, c, 1, 5)
			p.cut(true)
			for n := range 6 {
				s.number("news", n+6)
			}
			p.up()
			c.want(`^subscribed true false$`)
			s.number("news", 12)
			c.want(`^publication 12$`)
			c.never(`^publication ([6-9]|10|11)$`)
		})
	}
}

// An EventSource reconnects with the id of the last event, and gets what it has missed.
func TestEventSourceRecovers(t *testing.T) {
	t.Parallel()
	s := serve(t, "--namespace", "history-size=50 recovery=true")
	p := newProxy(t, s.addr)
	c := node(t, "eventsource", "testdata/events.mjs", "http://"+p.addr+"/events?channel=news")
	c.want(`^open$`)
	s.number("news", 1)
	s.number("news", 2)
	c.want(`^publication 2$`)
	p.cut(true)
	for n := 3; n <= 20; n++ {
		s.number("news", n)
	}
	p.up()
	c.want(`^publication 20$`)
	s.number("news", 21)
	c.want(`^publication 21$`)
	wantAll(t, c, 1, 21)
}

// Libraries receive presence, joins and leaves.
func TestLibrariesSeeEachOther(t *testing.T) {
	t.Parallel()
	for _, lib := range followers {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--namespace", "presence=true join-leave=true history-size=10")
			a := lib.run(t, s.websocket(), "news")
			a.want(`^subscribed`)
			s.number("news", 7)
			a.want(`^publication 7$`)
			b := lib.run(t, s.websocket(), "news")
			b.want(`^subscribed`)
			a.want(`^join [0-9a-f-]{36}$`)
			a.say("presence")
			a.want(`^presence 2$`)
			a.say("stats")
			a.want(`^stats 2 1$`)
			a.say("history")
			a.want(`^history 1 1$`)
			b.stdin.Close()
			a.want(`^leave `)
		})
	}
}
