package websocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/web"
)

// Each case of testdata/conversations.txt, which says how it is written.
func TestConversations(t *testing.T) {
	cases := map[string][]string{}
	var name string
	eachLine(t, "conversations.txt", func(word string, p *script) {
		if word == "case" {
			name = p.all()
			return
		}
		cases[name] = append(cases[name], strings.TrimSpace(word+" "+p.all()))
	})
	for name, steps := range cases {
		for _, version := range []string{"http1", "http1 on web", "http2"} {
			if strings.HasPrefix(steps[0], "http") && !strings.HasPrefix(version, steps[0]) {
				continue
			}
			t.Run(name+", "+version, func(t *testing.T) {
				eachWay(t, func(t *testing.T, d web.Dispatch) { newConversation(t, d, version, steps).run() })
			})
		}
	}
}

// A conversation is on one connection of a calm world.
type conversation struct {
	t       *testing.T
	steps   []string
	conn    *Conn
	ended   error
	heard   *logLines
	hears   int // lines that were looked at
	reads   int
	version string
	one     *world
	client  *client
	two     *muxWorld
	stream  *muxClient
}

func newConversation(t *testing.T, d web.Dispatch, version string, steps []string) *conversation {
	c := &conversation{t: t, version: version, steps: steps}
	o, heard := timedPongs(&Options{Dispatch: d, PingInterval: quiet})
	c.heard = heard
	hears := o.OnMessage
	onOpen, onMessage := func(opened *Conn) { c.conn = opened }, hears
	for len(c.steps) > 0 {
		word, rest, _ := strings.Cut(c.steps[0], " ")
		kind, call, _ := strings.Cut(rest, " ")
		switch {
		case word == "http1" || word == "http2":
		case word == "with":
			c.option(o, kind, call)
		case word == "on" && kind == "open":
			onOpen = func(opened *Conn) { c.conn = opened; noError(t, c.call(call)) }
		case word == "on":
			onMessage = func(conn *Conn, op Op, p []byte) { hears(conn, op, p); noError(t, c.call(call)) }
		default:
			o.OnOpen, o.OnMessage, o.OnClose = onOpen, onMessage, func(_ *Conn, err error) { c.ended = err }
			return c.opened(o)
		}
		c.steps = c.steps[1:]
	}
	t.Fatal("a case without steps")
	return nil
}

func (c *conversation) option(o *Options, name, value string) {
	d, err := time.ParseDuration(value)
	must(c.t, err)
	switch name {
	case "PingInterval":
		o.PingInterval = d
	case "PongTimeout":
		o.PongTimeout = d
	case "CloseTimeout":
		o.CloseTimeout = d
	default:
		c.t.Fatalf("no option %s", name)
	}
}

func (c *conversation) opened(o *Options) *conversation {
	if c.version == "http1" {
		c.one = newWorld(c.t, 1, sim.Calm(), myriad.Config{}, handlerOf(c.t, o))
		c.client = c.one.client(sampleRequest)
	} else {
		c.two = newMuxWorld(c.t, 1, sim.Calm(), o)
		c.one = c.two.world
		if c.version == "http2" {
			c.stream = c.two.dial(plenty)
			c.stream.open(1)
		} else {
			c.client = c.two.upgrade()
		}
	}
	if c.one.Settle(); c.conn == nil {
		c.t.Fatal("not opened")
	}
	return c
}

func (c *conversation) run() {
	for _, s := range c.steps {
		p := &script{c.t, s, s}
		c.step(p)
		if p.rest != "" {
			p.wrong()
		}
	}
	c.one.Settle()
	if read := c.read()[c.reads:]; len(read) > 0 {
		c.t.Errorf("at the end the peer has read %.300q, too", read)
	}
	if heard := c.heard.all()[c.hears:]; len(heard) > 0 {
		c.t.Errorf("at the end %q was heard, too", heard)
	}
	switch c.version {
	case "http1":
		c.one.finish(c.client)
		return
	case "http1 on web":
		c.client.Close()
		c.two.stop()
		return
	}
	if !slices.Contains(c.steps, "Shutdown") { // the connection goes on
		c.stream.open(3)
		c.one.Settle()
		if head := c.stream.stream(3).head; !strings.HasPrefix(head, ":status=200") {
			c.t.Errorf("the next stream got %q", head)
		}
	}
	c.two.stop(c.stream)
}

func (c *conversation) step(p *script) {
	switch word := p.word(); word {
	case "peer":
		c.peer(p)
	case "slowly", "wait":
		d, err := time.ParseDuration(p.word())
		must(c.t, err)
		wire := ""
		if word == "slowly" {
			wire = p.frame()
		} else {
			c.one.RunFor(d)
		}
		for i := range len(wire) {
			c.one.RunFor(d)
			c.send(wire[i:i+1], false)
		}
	case "open":
		if c.one.Settle(); c.ended != nil || c.end() != "" {
			c.t.Errorf("ended with %v, and for the peer with %s", c.ended, c.end())
		}
	case "told":
		if c.end() == "" {
			c.t.Error("the peer does not see the end")
		}
	case "ended":
		c.one.Settle()
		c.wantEnd(p.all())
	case "reads":
		c.one.Settle()
		c.wantRead(p)
	case "hears":
		c.one.Settle()
		heard, want := c.heard.all()[c.hears:], p.all()
		if len(heard) == 0 || heard[0] != want {
			c.t.Fatalf("heard is %q, want %q", heard, want)
		}
		c.hears++
	case "stream":
		want := p.all()
		if c.stream == nil {
			want = map[bool]string{true: "FIN", false: "RST"}[strings.HasPrefix(want, "END_STREAM")]
		}
		if c.end() != want {
			c.t.Errorf("the peer has seen the end %s, want %s", c.end(), want)
		}
	case "keeps":
		c.conn.mu.Lock()
		if p.word(); c.conn.cold != nil {
			c.t.Errorf("the connection keeps %+v", c.conn.cold)
		}
		c.conn.mu.Unlock()
	case "closed":
		if err := c.call(p.all()); !errors.Is(err, net.ErrClosed) {
			c.t.Errorf("%s: %v, want net.ErrClosed", p.line, err)
		}
	case "refused":
		if err := c.call(p.all()); err == nil || errors.Is(err, net.ErrClosed) {
			c.t.Errorf("%s: %v", p.line, err)
		}
	default:
		noError(c.t, c.call(p.line))
		p.all()
	}
}

// call calls a method of the connection.
func (c *conversation) call(what string) error {
	p := &script{c.t, what, what}
	switch p.word() {
	case "Write":
		op := opNamed(p.word())
		return c.conn.Write(op, []byte(p.payload(op)))
	case "Ping":
		return c.conn.Ping([]byte(p.payload(0)))
	case "Close":
		return c.conn.Close(StatusCode(p.number()), p.payload(0))
	case "Abort":
		var err error
		if why := p.payload(0); why != "" {
			err = errors.New(why)
		}
		c.conn.Abort(err)
	case "Shutdown":
		c.one.Go(func() { noError(c.t, c.one.e.Shutdown(context.Background())) })
	default:
		p.wrong()
	}
	return nil
}

func (c *conversation) peer(p *script) {
	switch {
	case p.skip("ends"):
		c.send("", true)
	case p.skip("resets") && c.stream != nil:
		c.stream.Write(h2.AppendReset(nil, 1, h2.Cancel))
	case c.stream == nil && strings.HasSuffix(p.line, " resets"):
		c.client.Reset()
	default:
		c.send(p.frame(), false)
	}
}

func (c *conversation) send(wire string, end bool) {
	switch {
	case c.stream != nil:
		c.stream.frames(1, wire, 100, end)
	case end:
		c.client.CloseWrite()
	default:
		c.client.Write([]byte(wire))
	}
}

func (c *conversation) read() []string {
	if c.stream != nil {
		return c.stream.lines(1)
	}
	return c.client.lines(c.t)
}

// end is how the connection has ended for the peer, or "".
func (c *conversation) end() string {
	switch {
	case c.stream != nil:
		return c.stream.stream(1).end
	case c.client.Ended():
		return "FIN"
	case c.client.Err() != nil:
		return "RST"
	}
	return ""
}

func (c *conversation) wantRead(p *script) {
	read := c.read()[c.reads:]
	if p.skip("nothing") {
		if len(read) > 0 {
			c.t.Errorf("the peer has read %.300q", read)
		}
		return
	}
	n := 1
	if _, rest, ok := strings.Cut(p.rest, " times "); ok {
		n, p.rest = p.number(), rest
	}
	op := opNamed(p.word())
	want := line(op, p.payload(op))
	for i := range n {
		if i >= len(read) || read[i] != want {
			c.t.Fatalf("the peer reads %.300q, want %.100q", read, want)
		}
	}
	c.reads += n
}

func (c *conversation) wantEnd(want string) {
	kinds := map[string]error{"deadline": os.ErrDeadlineExceeded, "closed": net.ErrClosed, "eof": io.ErrUnexpectedEOF}
	err, code := c.ended, CloseStatus(c.ended)
	ok := err != nil && (kinds[want] != nil && code == 0 && errors.Is(err, kinds[want]) ||
		fmt.Sprint(uint16(code)) == want || err.Error() == want ||
		want == "broken" && code == 0 && !errors.Is(err, net.ErrClosed))
	if !ok || c.end() == "" && !strings.HasSuffix(want, "broken") {
		c.t.Errorf("OnClose was called with %v, the peer's end is %q; want %s", err, c.end(), want)
	}
}
