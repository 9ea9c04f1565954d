package websocket

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// A frameCase is a case of testdata/frames.txt, which says how it is written.
type frameCase struct {
	name    string
	limit   int
	deflate bool
	wire    string     // the client's
	lines   []string   // as transcript tells them
	texts   []string   // the messages among them
	answers []string   // their echoes, and pongs
	end     StatusCode // of the close frame or violation; 0: none
}

func frameCases(t *testing.T) (all []frameCase) {
	t.Helper()
	eachLine(t, "frames.txt", func(word string, p *script) {
		if word == "case" {
			all = append(all, frameCase{name: p.all(), limit: DefaultMaxMessage})
			return
		}
		switch c := &all[len(all)-1]; word {
		case "limit":
			c.limit = p.number()
		case "deflate":
			c.deflate = true
		case "<":
			c.wire += p.frame()
		case ">":
			c.expect(p)
		default:
			p.wrong()
		}
	})
	return all
}

func (c *frameCase) expect(p *script) {
	word := p.word()
	if word == "fail" {
		c.end = StatusCode(p.number())
		c.lines = append(c.lines, fmt.Sprintf("fail %d", c.end))
		return
	}
	op := opNamed(word)
	payload := p.payload(op)
	l := line(op, payload)
	c.lines = append(c.lines, l)
	switch op {
	case OpText, OpBinary:
		c.texts, c.answers = append(c.texts, l), append(c.answers, l)
	case OpPing:
		c.answers = append(c.answers, line(OpPong, payload))
	case OpClose:
		c.end, _, _ = parseCloseBody([]byte(payload))
	}
}

func opNamed(name string) Op {
	for op := range OpPong + 1 {
		if strings.HasPrefix(op.String(), name) {
			return op
		}
	}
	panic("no opcode is called " + name)
}

// A script is the rest of a line of a file in testdata.
type script struct {
	t    *testing.T
	line string
	rest string
}

// eachLine calls f for each line of a file in testdata that is not empty and no comment, with its
// first word. f uses up the rest.
func eachLine(t *testing.T, name string, f func(word string, p *script)) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	must(t, err)
	for l := range strings.SplitSeq(string(text), "\n") {
		if l == "" || l[0] == '#' {
			continue
		}
		p := &script{t, name + ": " + l, l}
		if f(p.word(), p); p.rest != "" {
			p.wrong()
		}
	}
}

func (p *script) wrong() { p.t.Fatalf("%s: at %q", p.line, p.rest) }

// all is the rest of the line.
func (p *script) all() (text string) {
	text, p.rest = p.rest, ""
	return text
}

func (p *script) word() (w string) {
	w, p.rest, _ = strings.Cut(p.rest, " ")
	return w
}

func (p *script) number() int {
	n, err := strconv.Atoi(p.word())
	must(p.t, err)
	return n
}

func (p *script) frame() (wire string) {
	word := p.word()
	switch {
	case word == "raw":
		return p.payload(0)
	case word == "cut":
		return p.cut()
	case strings.HasPrefix(word, "0x"):
		first, err := strconv.ParseUint(word[2:], 16, 8)
		must(p.t, err)
		return rawFrame(byte(first), p.payload(0))
	case strings.HasPrefix(p.rest, "times "):
		n, err := strconv.Atoi(word)
		must(p.t, err)
		p.word()
		return strings.Repeat(p.frame(), n)
	}
	h := p.header(word)
	return bare(h, p.payload(h.op))
}

func (p *script) header(word string) frameHeader {
	name := strings.TrimRight(word, "-*")
	return frameHeader{op: opNamed(name), fin: !strings.Contains(word, "-"), rsv1: strings.Contains(word, "*")}
}

func (p *script) cut() (wire string) {
	size := p.number()
	h := p.header(p.word())
	rest, between := p.payload(h.op), ""
	if strings.HasPrefix(p.rest, "with ") {
		p.word()
		between = p.frame()
	}
	for ; len(rest) > size; rest = rest[size:] {
		h.fin = false
		wire += bare(h, rest[:size]) + between
		h.op, h.rsv1 = opContinuation, false
	}
	h.fin = true
	return wire + bare(h, rest)
}

func (p *script) payload(op Op) (all string) {
	if op == OpClose && p.rest != "" && '0' <= p.rest[0] && p.rest[0] <= '9' {
		code := p.number()
		all = string([]byte{byte(code >> 8), byte(code)})
	}
	for p.rest != "" && strings.ContainsAny(p.rest[:1], `"0123456789d`) {
		all += p.term()
		p.rest = strings.TrimPrefix(p.rest, " ")
	}
	return all
}

func (p *script) term() string {
	if rest, ok := strings.CutPrefix(p.rest, "deflate("); ok {
		p.rest = rest
		text, window := p.payload(0), ""
		if p.skip(", ") {
			window = p.payload(0)
		}
		if !p.skip(")") {
			p.wrong()
		}
		d := deflate([]byte(text), []byte(window), 1, maxWindowBits)
		defer d.put()
		return string(d.out)
	}
	n := 1
	if times, rest, ok := strings.Cut(p.rest, "*"); ok && p.rest[0] != '"' {
		var err error
		n, err = strconv.Atoi(times)
		must(p.t, err)
		p.rest = rest
	}
	quoted, err := strconv.QuotedPrefix(p.rest)
	must(p.t, err)
	p.rest = p.rest[len(quoted):]
	s, err := strconv.Unquote(quoted)
	must(p.t, err)
	return strings.Repeat(s, n)
}

func (p *script) skip(s string) (ok bool) {
	p.rest, ok = strings.CutPrefix(p.rest, s)
	return ok
}

// bare is a frame with the masked payload, whatever its header says.
func bare(h frameHeader, payload string) string {
	h.masked, h.key = true, testKey
	return string(appendFrame(nil, h, []byte(payload)))
}

// rawFrame is a masked frame with any first byte, valid or not.
func rawFrame(first byte, payload string) string {
	frame := []byte(clientFrame(true, OpText, payload))
	frame[0] = first
	return string(frame)
}

func lines(l ...string) []string { return l }

func line(op Op, payload string) string { return describe(op, false, []byte(payload)) }

// The reader makes of each case what the case says, and its reference does so, too. Payloads that
// are compressed it passes on.
func TestReaderFrames(t *testing.T) {
	for _, c := range frameCases(t) {
		t.Run(c.name, func(t *testing.T) {
			rules := readRules{fromClient: true, compression: c.deflate, limit: c.limit}
			want := reference([]byte(c.wire), rules)
			if !c.deflate && !slices.Equal(want, c.lines) {
				t.Errorf("the reference says %.300q", want)
				want = c.lines
			}
			wantTranscript(t, &rules, []byte(c.wire), want)
		})
	}
}

// Each case on a connection, in worlds that cut, delay and hold up the bytes in every way but
// losing them. Messages are heard and echoed, pings answered, and the peer is told the code of the
// end. Nothing is kept then.
func TestFrames(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		for i, c := range frameCases(t) {
			before := buf.InUse()
			for seed := range uint64(3) {
				o, heard := c.options(d)
				w := newWorld(t, seed+10*uint64(i), sim.Lossless(), myriad.Config{}, handlerOf(t, o))
				p := w.client(c.request() + c.closed())
				w.Run()
				if got, want := heard.all(), c.heard(); !slices.Equal(got, want) {
					t.Errorf("%s, seed %d: heard %.300q, want %.300q", c.name, seed, got, want)
				}
				c.check(t, d, seed, p.Received(), p.Ended())
				w.stop()
			}
			if n := buf.InUse() - before; n != 0 {
				t.Errorf("%s: %d blocks are held at the end", c.name, n)
			}
		}
	})
}

// The same over HTTP/2: several at a time on one connection, in DATA of all sizes.
func TestHTTP2Frames(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		for i, c := range frameCases(t) {
			seed := uint64(i)
			o, heard := c.options(d)
			w := newMuxWorld(t, seed, sim.Lossless(), o)
			p := w.dial(plenty)
			ids := []uint32{1, 3}
			if len(c.wire) > 32<<10 { // else one of them finds the connection's output full
				ids = ids[:1]
			}
			for _, id := range ids {
				p.open(id, "sec-websocket-extensions", "permessage-deflate; client_max_window_bits")
				p.frames(id, c.closed(), max(1+i*7%40, len(c.wire)/200), i%2 == 0 && !c.deflate)
			}
			w.RunFor(20 * time.Second)
			all := heard.all()
			slices.Sort(all)
			want := slices.Repeat(c.heard(), len(ids))
			if slices.Sort(want); !slices.Equal(all, want) {
				t.Errorf("%s: heard %.300q, want %.300q", c.name, all, want)
			}
			for _, id := range ids {
				s := p.stream(id)
				c.check(t, d, seed, append([]byte("HTTP/1.1 101 \r\n\r\n"), s.bytes...),
					strings.HasPrefix(s.end, "END_STREAM"))
			}
			w.stop(p)
		}
	})
}

func (c *frameCase) options(d web.Dispatch) (*Options, *logLines) {
	o := &Options{Dispatch: d, PingInterval: quiet, MaxMessage: c.limit,
		Compression: Compression{Enabled: c.deflate, Threshold: 1, ReadWindowBits: 15, WriteWindowBits: 15}}
	if !c.deflate {
		o.OnMessage = echoBack
	}
	return recorded(o)
}

func (c *frameCase) request() string {
	if c.deflate {
		return compressingRequest()
	}
	return sampleRequest
}

// closed is the case with a close frame at its end.
func (c *frameCase) closed() string {
	if c.end == 0 {
		return c.wire + clientFrame(true, OpClose, closeWith(StatusNormalClosure, ""))
	}
	return c.wire
}

// heard is what the callbacks of one connection hear.
func (c *frameCase) heard() []string {
	return slices.Concat(lines("open"), c.texts, lines(fmt.Sprintf("end %d", c.code())))
}

func (c *frameCase) code() StatusCode {
	if c.end == 0 {
		return StatusNormalClosure
	}
	return c.end
}

// check compares what the client has read.
func (c *frameCase) check(t *testing.T, d web.Dispatch, seed uint64, wire []byte, ended bool) {
	t.Helper()
	closing := line(OpClose, closeWith(c.code(), ""))
	read := serverLines(t, wire)
	last := len(read) - 1
	if last < 0 || !strings.HasPrefix(read[last], strings.TrimSuffix(closing, `"`)) ||
		c.lines[len(c.lines)-1][:4] != "fail" && read[last] != closing {
		t.Errorf("%s, seed %d: the client read %.300q, and not %s at last", c.name, seed, read, closing)
		return
	}
	read, answers := read[:last], c.answers
	if d == web.DispatchPool || d == quickly { // echoes come from other goroutines, or at the end of the turn
		read, answers = orderedByKind(read), orderedByKind(answers)
	}
	if !c.deflate && !slices.Equal(read, answers) {
		t.Errorf("%s, seed %d: the client read %.300q, want %.300q", c.name, seed, read, answers)
	}
	if !ended {
		t.Errorf("%s, seed %d: the connection was not ended", c.name, seed)
	}
}
