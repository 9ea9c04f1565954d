//lint:file-ignore SA1019 x/net is deprecated for programs; here it is the peer, and its knobs are needed

package web

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// This file asks both servers over HTTP/2 what the corpora ask over HTTP/1: each request goes as a
// field block and DATA, with its bytes as they are.

// A message is a request in frames.
type message struct {
	head    []string // names and values in turn
	data    []string
	trailer []string // nil: there is none
}

// translate makes a message of an input's first request, however odd. What follows its head is its
// body, but for "last".
func translate(input string) *message {
	head, body, _ := strings.Cut(strings.TrimSuffix(input, last), "\r\n\r\n")
	line, fields, _ := strings.Cut(head, "\r\n")
	method, target, _ := strings.Cut(line, " ")
	if i := strings.LastIndexByte(target, ' '); i >= 0 {
		target = target[:i]
	}
	m := new(message)
	var own []string
	hosts, chunked := []string{}, false
	for pairs := pairsOf(fields); len(pairs) > 0; pairs = pairs[2:] {
		switch name, value := pairs[0], pairs[1]; {
		case name == "host" && len(hosts) == 0:
			hosts = append(hosts, ":authority", value)
		case name == "transfer-encoding" && value == "chunked" && !chunked:
			chunked = true
		default:
			own = append(own, name, value)
		}
	}
	switch method {
	case "CONNECT": // RFC 9113 section 8.5
		m.head = append([]string{":method", method, ":authority", target}, own...)
	default:
		m.head = append(append([]string{":method", method, ":scheme", "http", ":path", target}, hosts...), own...)
	}
	if chunked {
		m.chunks(body)
	} else if body != "" {
		m.data = []string{body}
	}
	return m
}

// pairsOf are the names of lines, in lower case, and their values.
func pairsOf(lines string) (pairs []string) {
	for line := range strings.SplitSeq(lines, "\r\n") {
		if line == "" {
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		lower := []byte(name)
		for i, b := range lower {
			if 'A' <= b && b <= 'Z' {
				lower[i] += 'a' - 'A'
			}
		}
		pairs = append(pairs, string(lower), strings.TrimPrefix(value, " "))
	}
	return pairs
}

// chunks makes a DATA of each chunk, and of what is none.
func (m *message) chunks(body string) {
	for body != "" {
		line, rest, _ := strings.Cut(body, "\r\n")
		size, _, _ := strings.Cut(line, ";")
		n, err := strconv.ParseUint(size, 16, 16)
		switch {
		case err != nil || int(n) > len(rest):
			m.data = append(m.data, body)
			return
		case n == 0:
			lines, _, _ := strings.Cut(rest, "\r\n\r\n")
			m.trailer = pairsOf(lines)
			return
		}
		m.data = append(m.data, rest[:n])
		body = strings.TrimPrefix(rest[n:], "\r\n")
	}
}

// A reply is what a server says to a message.
type reply struct {
	interim       []string
	status        string
	head, trailer http.Header
	body          string
	end           string // "", a reset, or the end of the connection
}

func (s *reply) String() string {
	return fmt.Sprintf("%s %q fields %s body %d %.2000q trailer %s %s", s.status, s.interim, plain(sorted(s.head)),
		len(s.body), plain(s.body), sorted(s.trailer), s.end)
}

// A peer asks one thing after the other on a connection of HTTP/2.
type peer struct {
	net.Conn
	out   *bufio.Writer
	fr    *http2.Framer
	enc   *hpack.Encoder
	block bytes.Buffer
	next  uint32
	over  bool // the connection takes no more
}

func newPeer(t testing.TB, addr string) *peer {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return peerOn(c)
}

// peerOn begins HTTP/2 on a connection.
func peerOn(c net.Conn) *peer {
	p := &peer{Conn: c, out: bufio.NewWriterSize(c, 64<<10), next: 1}
	p.fr = http2.NewFramer(p.out, bufio.NewReader(c))
	p.fr.AllowIllegalWrites = true
	p.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.enc = hpack.NewEncoder(&p.block)
	p.out.WriteString(http2.ClientPreface)
	p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 24})
	p.fr.WriteWindowUpdate(0, 1<<24)
	return p
}

// fields writes a field block.
func (p *peer) fields(id uint32, pairs []string, end bool) {
	p.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		p.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	block := p.block.Bytes()
	n := min(len(block), 16<<10)
	p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:n], EndStream: end,
		EndHeaders: n == len(block)})
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n = min(len(block), 16<<10)
		p.fr.WriteContinuation(id, n == len(block), block[:n])
	}
}

// ask sends m and waits for the end of its stream.
func (p *peer) ask(m *message) *reply {
	p.SetDeadline(time.Now().Add(hangs))
	id := p.next
	p.next += 2
	p.fields(id, m.head, len(m.data) == 0 && m.trailer == nil)
	for i, data := range m.data {
		p.fr.WriteData(id, m.trailer == nil && i == len(m.data)-1, []byte(data))
	}
	if m.trailer != nil {
		p.fields(id, m.trailer, true)
	}
	p.out.Flush()
	s := new(reply)
	p.hear(s, id)
	if !p.over {
		p.fr.WritePing(false, [8]byte{})
		p.out.Flush()
		p.hear(s, 0)
	}
	return s
}

// hear adds to s what comes until a stream ends, or until the answer to a PING if id is 0: then the
// server has handled all that was sent.
func (p *peer) hear(s *reply, id uint32) {
	for {
		frame, err := p.fr.ReadFrame()
		switch f := frame.(type) {
		case nil:
			if p.over = true; id != 0 {
				s.end = fmt.Sprint("connection: ", err)
			}
			return
		case *http2.SettingsFrame:
			if !f.IsAck() {
				p.fr.WriteSettingsAck()
				p.out.Flush()
			}
		case *http2.GoAwayFrame:
			if p.over = true; f.ErrCode != http2.ErrCodeNo || f.LastStreamID < id {
				*s = reply{end: fmt.Sprint("GOAWAY ", f.ErrCode)} // it is chance what comes before
				return
			}
		case *http2.PingFrame:
			if f.IsAck() {
				return
			}
		}
		if id != 0 && frame.Header().StreamID == id && s.take(frame) {
			return
		}
	}
}

// take adds a frame, and reports whether it was the last.
func (s *reply) take(frame http2.Frame) (last bool) {
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		h := http.Header{}
		for _, field := range f.RegularFields() {
			h.Add(field.Name, field.Value)
		}
		if h.Get("Date") != "" {
			h.Set("Date", "some")
		}
		switch status := f.PseudoValue("status"); {
		case status == "":
			s.trailer = h
		case status[0] == '1':
			s.interim = append(s.interim, status+" "+sorted(h))
		default:
			s.status, s.head = status, h
		}
		return f.StreamEnded()
	case *http2.DataFrame:
		s.body += string(f.Data())
		return f.StreamEnded()
	case *http2.RSTStreamFrame:
		s.end = fmt.Sprint("reset ", f.ErrCode)
		return true
	}
	return false
}

// peers are those of a server that are free.
type peers struct {
	mu   sync.Mutex
	free []*peer
}

func (ps *peers) get(t *testing.T, addr string) *peer {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if n := len(ps.free) - 1; n >= 0 {
		p := ps.free[n]
		ps.free = ps.free[:n]
		return p
	}
	p := newPeer(t, addr)
	t.Cleanup(func() { p.Close() })
	return p
}

// put gives p back, unless it has asked so often that its mistakes could count as a flood.
func (ps *peers) put(p *peer) {
	if p.over || p.next > 100 {
		p.Close()
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.free = append(ps.free, p)
}

// tryHTTP2 asks in place of try. The next message on the connection is its probe.
func (s *subject) tryHTTP2(t *testing.T, input string) *outcome {
	p := s.peers.get(t, s.addr)
	defer s.peers.put(p)
	got := p.ask(translate(input))
	return &outcome{answers: []answer{{
		status: strings.TrimSpace(got.status + " " + got.end), body: strings.TrimSpace(got.body),
		seen: strings.TrimRight(got.head.Get("Seen"), " "),
	}}}
}

var overHTTP2 = version{plainHTTP2(), (*subject).tryHTTP2}

// The corpora again: what is a request, and what of it a handler sees, is as with net/http.
func TestHTTP2LikeNetHTTP(t *testing.T) { likeNetHTTP(t, overHTTP2, decisions2) }
