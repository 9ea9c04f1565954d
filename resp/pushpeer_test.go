package resp

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/resp/wire"
	"github.com/myriad-go/myriad/tlsloop"
)

// This file is the peers of TestPushWorlds.

// A pushPeer is one connection: what its peer has sent and got, and the server's end of it.
type pushPeer struct {
	l      *pushWorld
	number int
	nc     *myriad.Conn // nil: it is being made, or has ended
	conn   *Conn        // the server's; nil: JOIN has not come
	in     []byte
	asked  int            // commands
	want   []string       // the replies that are to come, in RESP2; "*" is any
	sent   map[int]int    // the last message of each sender that pushes
	last   map[string]int // the last message that came, of each sender and subscription
	taken  int            // messages that Push has taken
	got    int            // of these
	limit  int            // of output, the largest there was
	closes bool           // its policy was OverflowClose
	ends   bool           // the peer has ended it
	opened bool
	closed bool

	subscriber bool // it has subscribed

	// Its state at the server, behind the commands that were sent:
	proto     Protocol
	off, skip bool
	subs      [2]map[string]bool

	// Its subscriptions, behind the replies that came:
	confirmed [2]map[string]bool
}

func (l *pushWorld) drawPeers() {
	for i := range 1 + l.r.IntN(5) {
		l.peers = append(l.peers, &pushPeer{l: l, number: i, proto: RESP2, sent: map[int]int{}, last: map[string]int{},
			limit: cmp.Or(l.s.WriteLimit, defaultWriteLimit), closes: l.over == OverflowClose,
			subs:      [2]map[string]bool{{}, {}},
			confirmed: [2]map[string]bool{{}, {}}})
	}
}

func blockOf(p []byte) *buf.Block { return buf.From(p) }

// begin connects the peer, and has it send commands and read slowly.
func (p *pushPeer) begin() {
	l, r := p.l, p.l.r
	h := myriad.Handler(p)
	if l.tls != nil {
		h = tlsloop.Options{Timeout: -1, Failed: func(*myriad.Conn, error, uint64) {}, Closed: p.Closed}.Client(l.tls,
			p)
	}
	l.client.DialFunc(context.Background(), "tcp", l.addr, h, func(_ *myriad.Conn, err error) {
		if err != nil && l.lossless && !l.ending {
			l.wrong("peer %d: %v", p.number, err)
		}
	})
	talks, stalls := r.IntN(4) > 0, r.IntN(3)
	l.loop(func(int) {
		switch {
		case p.nc == nil:
		case stalls == 1 && r.IntN(8) == 0:
			p.read(r.IntN(2) == 0)
		case stalls == 2 && r.IntN(8) == 0:
			p.read(false) // until the world is cured
		case r.IntN(200) == 0:
			p.ends = true
			p.do(draw(r, func(nc *myriad.Conn) { nc.Abort(nil) }, func(nc *myriad.Conn) { _ = nc.Close() },
				func(nc *myriad.Conn) { _ = nc.CloseWrite() }))
		case talks && !p.ends:
			for range 1 + r.IntN(4) {
				p.command()
			}
		}
	})
}

// do has f called on the loop of the connection, if there is one.
func (p *pushPeer) do(f func(nc *myriad.Conn)) {
	if nc := p.nc; nc != nil {
		nc.Loop().Post(func() {
			if p.nc != nil {
				f(nc)
			}
		})
	}
}

func (p *pushPeer) read(on bool) {
	if on {
		p.do((*myriad.Conn).Resume)
	} else {
		p.do((*myriad.Conn).Pause)
	}
}

// Opened implements myriad.Handler, behind the TLS handshake.
func (p *pushPeer) Opened(nc *myriad.Conn) {
	p.nc, p.opened = nc, true
	nc.SetWriteLimit(1 << 28)
	p.send(wantOK, "JOIN", strconv.Itoa(p.number))
	if p.l.r.IntN(2) == 0 {
		p.hello(RESP3)
	}
}

// Ended is the server's FIN.
func (p *pushPeer) Ended(nc *myriad.Conn) { _ = nc.Close() }

// Closed implements myriad.Handler.
func (p *pushPeer) Closed(_ *myriad.Conn, err error) {
	p.nc, p.closed = nil, true
	if p.opened && !p.mayEnd() {
		p.l.wrong("peer %d: the connection ends: %v", p.number, err)
	}
}

// mayEnd reports whether the connection may end before all is answered.
func (p *pushPeer) mayEnd() bool { return p.closes || p.ends || p.l.ending || !p.l.lossless }

const wantOK = "+OK\r\n"

// send sends a command, to which reply is the answer.
func (p *pushPeer) send(reply string, args ...string) {
	p.sendAll([]string{reply}, false, args...)
}

// sendAll sends a command with several answers. Those that are messages come although the peer
// wants no replies.
func (p *pushPeer) sendAll(replies []string, messages bool, args ...string) {
	if p.nc == nil {
		return
	}
	p.asked++
	if _, err := p.nc.Write(wire.AppendCommand(nil, args...)); err != nil && !p.mayEnd() {
		p.l.wrong("peer %d: %v", p.number, err)
	}
	if messages || !p.off && !p.skip {
		p.want = append(p.want, replies...)
	}
	p.skip = false
}

func (p *pushPeer) hello(proto Protocol) {
	p.send("*", "HELLO", strconv.Itoa(int(proto)))
	p.proto = proto
}

func (p *pushPeer) count() int { return len(p.subs[byChannel]) + len(p.subs[byPattern]) }

// command sends one command, of those that the state of the connection allows.
func (p *pushPeer) command() {
	r := p.l.r
	limited := p.proto == RESP2 && p.count() > 0
	text := fmt.Sprint(p.number, "-", p.asked)
	switch n := r.IntN(24); {
	case n < 3:
		p.subscribe(r.IntN(2))
	case n < 5:
		p.unsubscribe(r.IntN(2))
	case n == 5:
		if limited {
			p.send(string(wire.AppendCommand(nil, "pong", text)), "PING", text)
		} else {
			p.send(string(wire.AppendBulk(nil, text)), "PING", text)
		}
	case n == 6:
		p.reset()
	case n == 7 && r.IntN(10) == 0:
		p.send(wantOK, "QUIT")
		p.ends = true
	case limited:
	case n < 10:
		p.reply(draw(r, "ON", "OFF", "SKIP"))
	case n == 10:
		p.hello(draw(r, RESP2, RESP3))
	case n == 11 && p.l.s.Dispatch != DispatchInline:
		p.send(wantOK, "SLEEP")
	case n == 12:
		p.send(string(wire.AppendBulk(nil, strings.Repeat("x", 3000))), "BIG", "3000")
	case n < 15:
		p.l.pushed++
		p.send("*", "PUBLISH", draw(r, channelNames...), p.l.text(-1-p.number, p.l.pushed))
	case n < 17 && p.l.open != nil && p.l.s.Handler != nil:
		if _, isMux := p.l.s.Handler.(*Mux); !isMux {
			p.transaction()
		}
	default:
		text += strings.Repeat("y", r.IntN(300))
		p.send(string(wire.AppendBulk(nil, text)), "ECHO", text)
	}
}

func (p *pushPeer) transaction() {
	p.send(wantOK, "MULTI")
	var replies []byte
	n := p.l.r.IntN(4)
	for i := range n {
		text := fmt.Sprint("t", i)
		replies = wire.AppendBulk(replies, text)
		p.send("+QUEUED\r\n", draw(p.l.r, "PING", "ECHO"), text)
	}
	p.send(string(wire.AppendArray(nil, n))+string(replies), "EXEC")
}

func (p *pushPeer) reset() {
	p.off = false
	p.send("+RESET\r\n", "RESET")
	p.proto, p.subs = RESP2, [2]map[string]bool{{}, {}}
}

// reply sends CLIENT REPLY.
func (p *pushPeer) reply(mode string) {
	switch mode {
	case "ON":
		p.off, p.skip = false, false
		p.send(wantOK, "CLIENT", "REPLY", mode)
	case "OFF":
		p.off = true
		p.send("", "CLIENT", "REPLY", mode)
	case "SKIP":
		p.sendAll(nil, true, "CLIENT", "REPLY", mode)
		p.skip = !p.off
	}
}

var worldPatterns = []string{"a*", "*b", "?"}

func (p *pushPeer) subscribe(kind int) {
	names := [][]string{channelNames, worldPatterns}[kind]
	p.subscriber = true
	args, replies := []string{subscribeWords[kind]}, []string(nil)
	for range 1 + p.l.r.IntN(2) {
		name := draw(p.l.r, names...)
		p.subs[kind][name] = true
		args = append(args, name)
		replies = append(replies, p.confirmation(subscribeWords[kind], name))
	}
	p.sendAll(replies, true, args...)
}

func (p *pushPeer) unsubscribe(kind int) {
	name := draw(p.l.r, [][]string{channelNames, worldPatterns}[kind]...)
	delete(p.subs[kind], name)
	p.sendAll([]string{p.confirmation(unsubscribeWords[kind], name)}, true, unsubscribeWords[kind], name)
}

func (p *pushPeer) confirmation(word, name string) string {
	out := wire.AppendBulk(wire.AppendBulk(wire.AppendArray(nil, 3), strings.ToLower(word)), name)
	return string(wire.AppendInt(out, int64(p.count())))
}

// Received implements myriad.Handler.
func (p *pushPeer) Received(_ *myriad.Conn, b []byte) {
	p.in = append(p.in, b...)
	for {
		n, v, err := wire.ParseValue(p.in, Limits{})
		if err != nil {
			p.l.wrong("peer %d gets %v: %.80q", p.number, err, p.in)
			p.in = nil
		}
		if n == 0 {
			return
		}
		p.value(v)
		p.in = p.in[n:]
	}
}

// value takes a reply or a message.
func (p *pushPeer) value(v Value) {
	if v.Kind == wire.Array || v.Kind == wire.Push {
		switch e := v.Elems; {
		case len(e) == 2 && e[0].Text() == "news":
			p.got++
			p.message("", e[1].Text())
			return
		case len(e) == 3 && e[0].Text() == "message":
			p.subscribed(byChannel, e[1].Text(), e[1].Text(), e[2].Text())
			return
		case len(e) == 4 && e[0].Text() == "pmessage":
			p.subscribed(byPattern, e[1].Text(), e[2].Text(), e[3].Text())
			return
		}
	}
	got := string(wire.AppendValue(nil, v, RESP2))
	if len(p.want) == 0 || p.want[0] != "*" && p.want[0] != got {
		p.l.wrong("peer %d gets %.80q, wants %.80q", p.number, got, p.want[:min(2, len(p.want))])
		p.do(func(nc *myriad.Conn) { nc.Abort(nil) })
		p.ends = true
		return
	}
	p.want = p.want[1:]
	switch {
	case v.Text() == "RESET":
		p.confirmed = [2]map[string]bool{{}, {}}
	case len(v.Elems) == 3:
		for kind := range 2 {
			switch word := strings.ToUpper(v.Elems[0].Text()); word {
			case subscribeWords[kind]:
				p.confirmed[kind][v.Elems[1].Text()] = true
			case unsubscribeWords[kind]:
				delete(p.confirmed[kind], v.Elems[1].Text())
			}
		}
	}
}

// subscribed takes a message of a subscription.
func (p *pushPeer) subscribed(kind int, name, channel, text string) {
	if !p.confirmed[kind][name] || !wire.Match(name, channel) {
		p.l.wrong("peer %d gets a message of %q for %q, to which it has no subscription", p.number, channel, name)
	}
	p.message(fmt.Sprint(kind, name), text)
}

// message takes the text of a message. Those of one sender come in order.
func (p *pushPeer) message(of, text string) {
	sender, rest, _ := strings.Cut(text, ".")
	number, _, whole := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	key := of + "/" + sender
	if err != nil || !whole || n <= p.last[key] {
		p.l.wrong("peer %d gets %.40q of %q behind %d", p.number, text, of, p.last[key])
	}
	p.last[key] = n
}

// checkLimit looks how much waits for the peer. Besides what the limit allows that is one message,
// and the replies of one run of commands.
func (p *pushPeer) checkLimit() {
	c := p.conn
	const tlsRecords = 4 << 10
	most := max(p.limit, p.l.largest+100)
	if n, waits := c.Queued(), c.get().outbox.Bytes(); n > most+flushAt+3100+tlsRecords || waits > most {
		p.l.wrong("peer %d: %d bytes are queued, and %d wait; the limit is %d", p.number, n, waits, p.limit)
	}
}

// check is for the end: all is answered, and all messages have come, or are counted.
func (p *pushPeer) check() {
	l := p.l
	if p.nc == nil {
		if !p.opened && l.lossless && !l.ending {
			l.wrong("peer %d was not connected", p.number)
		}
		if p.conn != nil && p.got > p.taken {
			l.wrong("peer %d has got %d messages, of %d", p.number, p.got, p.taken)
		}
		return
	}
	if p.conn == nil || len(p.want) > 0 {
		l.wrong("peer %d waits for %d replies: %.80q", p.number, len(p.want), p.want[:min(2, len(p.want))])
		return
	}
	all := p.conn.get()
	dropped := int(p.conn.Dropped())
	if missing := p.taken - p.got; missing > dropped || !p.subscriber && missing != dropped {
		l.wrong("peer %d has got %d messages of %d, %d are counted as dropped", p.number, p.got, p.taken, dropped)
	}
	if all.outbox.Len() > 0 || p.conn.Queued() > 0 {
		l.wrong("peer %d: %d messages and %d bytes wait, although it reads", p.number, all.outbox.Len(),
			p.conn.Queued())
	}
}
