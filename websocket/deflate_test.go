package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

func inflated(t testing.TB, p, window []byte, limit int) []byte {
	t.Helper()
	b, err := inflate(p, window, limit)
	if err != nil {
		t.Fatalf("inflate(%x): %v", p, err)
	}
	defer b.Release()
	return append([]byte{}, b.Bytes()...)
}

// The examples of RFC 7692 §7.2.3.
func TestInflateExamples(t *testing.T) {
	const hello = "\xf2\x48\xcd\xc9\xc9\x07\x00"
	for name, c := range map[string]struct{ p, window, want string }{
		"7.2.3.1 one block":      {hello, "", "Hello"},
		"7.2.3.2 sharing":        {"\xf2\x00\x11\x00\x00", "Hello", "Hello"},
		"7.2.3.3 no compression": {"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", "", "Hello"},
		"7.2.3.4 a last block":   {"\xf3\x48\xcd\xc9\xc9\x07\x00\x00", "", "Hello"},
		"7.2.3.5 two blocks":     {"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", "", "Hello"},
		"7.2.3.6 empty":          {"\x00", "", ""},
		"only a last block":      {"\xf3\x48\xcd\xc9\xc9\x07\x00", "", "Hello"},
		"two streams":            {"\xf3\x48\xcd\xc9\xc9\x07\x00" + hello, "", "HelloHello"},
	} {
		if got := inflated(t, []byte(c.p), []byte(c.window), 100); string(got) != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestInflateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		p     string
		limit int
		code  StatusCode
	}{
		"nothing":           {"", 100, StatusInvalidFramePayloadData},
		"garbage":           {"\xff\xff\xff\xff", 100, StatusInvalidFramePayloadData},
		"cut short":         {"\x00\x05\x00\xfa\xff\x48\x65", 100, StatusInvalidFramePayloadData},
		"beyond the window": {"\xf2\x00\x11\x00\x00", 100, StatusInvalidFramePayloadData},
		"endless streams":   {strings.Repeat("\x03\x00", 500), 100, StatusInvalidFramePayloadData},
		"one byte too many": {"\xf2\x48\xcd\xc9\xc9\x07\x00", 4, StatusMessageTooBig},
	} {
		before := buf.InUse()
		_, err := inflate([]byte(c.p), nil, c.limit)
		var v *violation
		if !errors.As(err, &v) || v.code != c.code {
			t.Errorf("%s: %v, want status %d", name, err, c.code)
		}
		if buf.InUse() != before {
			t.Errorf("%s: a block is left", name)
		}
	}
	if got := inflated(t, []byte("\xf2\x48\xcd\xc9\xc9\x07\x00"), nil, 5); string(got) != "Hello" {
		t.Errorf("at the limit: %q", got)
	}
	// the tail has the end of its final block
	if got := inflated(t, []byte("\x630000"), nil, 5); string(got) != "\x000000" {
		t.Errorf("a final block that ends in the tail: %q", got)
	}
}

// A bomb of 64 MiB costs no more than its limit, and a little.
func TestInflateBomb(t *testing.T) {
	const limit = 1 << 20
	d := deflate(make([]byte, 64<<20), nil, 9, maxWindowBits)
	bomb := bytes.Clone(d.out)
	d.put()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := inflate(bomb, nil, limit); CloseStatus(err) != StatusMessageTooBig {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 3*limit {
		t.Errorf("%d bytes were allocated for a bomb with a limit of %d", got, limit)
	}
}

// text is about as compressible as what people send.
func sampleText(rng *rand.Rand, n int) []byte {
	words := strings.Fields(`{"type": "trade", "symbol": "EURUSD", "price": 1.0842, "volume": 100000, ` +
		`"side": "buy" } null true the quick fox`)
	var b []byte
	for len(b) < n {
		b = append(append(b, words[rng.IntN(len(words))]...), ' ')
		if rng.IntN(4) == 0 {
			b = fmt.Append(b, rng.Uint32())
		}
	}
	return b[:n]
}

// Every level, window and way to refer to earlier messages gives back what went in, and reaches no
// further than was agreed.
func TestDeflateRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	for level := 1; level <= maxLevel; level++ {
		for bits := uint8(minWindowBits); bits <= maxWindowBits; bits++ {
			for _, takeover := range []bool{false, true} {
				var out, in []byte
				for range 6 {
					p := sampleText(rng, rng.IntN([]int{10, 300, 5000, 80_000}[rng.IntN(4)]))
					d := deflate(p, out, level, bits)
					packed := bytes.Clone(d.out)
					d.put()
					if reach, ok := furthest(packed); !ok || reach > 1<<bits {
						t.Fatalf("level %d, %d bits: a reference reaches %d bytes back (%v)", level, bits, reach, ok)
					}
					got := inflated(t, packed, in, len(p)+1)
					if !bytes.Equal(got, p) {
						t.Fatalf("level %d, %d bits, takeover %v: %d bytes became other %d", level, bits, takeover,
							len(p), len(got))
					}
					if takeover {
						out, in = slide(out, p, 1<<bits), slide(in, got, 1<<bits)
					}
				}
			}
		}
	}
}

func TestDeflateNeverEndsEmpty(t *testing.T) {
	d := deflate(nil, nil, 1, maxWindowBits)
	defer d.put()
	if len(d.out) == 0 || len(inflated(t, d.out, nil, 10)) != 0 {
		t.Errorf("an empty message is %x", d.out)
	}
}

func TestSlide(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	const size = 256
	var window, all []byte
	for range 500 {
		p := sampleText(rng, rng.IntN(90))
		if rng.IntN(20) == 0 {
			p = sampleText(rng, rng.IntN(3*size))
		}
		window, all = slide(window, p, size), append(all, p...)
		if want := all[max(0, len(all)-size):]; !bytes.Equal(window, want) || cap(window) > size {
			t.Fatalf("window %q with room for %d, want %q", window, cap(window), want)
		}
	}
}

func FuzzInflate(f *testing.F) {
	f.Add([]byte("\xf2\x48\xcd\xc9\xc9\x07\x00"), []byte("Hello"), 100)
	f.Add([]byte("\x03\x00\xf3\x48\xcd\xc9\xc9\x07\x00"), []byte{}, 3)
	f.Fuzz(func(t *testing.T, p, window []byte, limit int) {
		limit = 1 + limit&0xffff
		b, err := inflate(p, window, limit)
		if err != nil {
			if CloseStatus(err) == 0 {
				t.Fatalf("an error without a status: %v", err)
			}
			return
		}
		defer b.Release()
		if b.Len() > limit {
			t.Fatalf("%d bytes above the limit of %d", b.Len(), limit)
		}
		d := deflate(b.Bytes(), window, 1+limit%maxLevel, uint8(minWindowBits+limit%8))
		defer d.put()
		if got := inflated(t, d.out, window, b.Len()+1); !bytes.Equal(got, b.Bytes()) {
			t.Fatal("the way back gives other bytes")
		}
	})
}

func BenchmarkDeflate(b *testing.B) {
	p := sampleText(rand.New(rand.NewPCG(3, 3)), 1024)
	for _, level := range []int{1, 6} {
		b.Run(fmt.Sprint("level ", level), func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				deflate(p, nil, level, maxWindowBits).put()
			}
		})
	}
	b.Run("with a window", func(b *testing.B) {
		window := sampleText(rand.New(rand.NewPCG(4, 4)), 1<<12)
		b.SetBytes(int64(len(p)))
		b.ReportAllocs()
		for b.Loop() {
			deflate(p, window, 1, maxWindowBits).put()
		}
	})
}

func BenchmarkInflate(b *testing.B) {
	d := deflate(sampleText(rand.New(rand.NewPCG(3, 3)), 1024), nil, 1, maxWindowBits)
	defer d.put()
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		out, err := inflate(d.out, nil, 1<<20)
		must(b, err)
		out.Release()
	}
}

const offering = "Connection: Upgrade\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"

func compressingRequest() string {
	return strings.Replace(sampleRequest, "Connection: Upgrade\r\n", offering, 1)
}

// packedFrame is a client's compressed message, in as many frames as pieces.
func packedFrame(op Op, text string, window []byte, pieces int) string {
	d := deflate([]byte(text), window, 1, maxWindowBits)
	defer d.put()
	var wire []byte
	size := len(d.out)/pieces + 1
	for p, first := d.out, true; first || len(p) > 0; first = false {
		piece := p[:min(size, len(p))]
		p = p[len(piece):]
		h := frameHeader{fin: len(p) == 0, rsv1: first, masked: true, key: 0x01020304, op: op}
		if !first {
			h.op = opContinuation
		}
		wire = appendFrame(wire, h, piece)
	}
	return string(wire)
}

// unpackAll reads a server's frames as a client with a window would.
func unpackAll(t *testing.T, wire []byte, keeps bool) (texts []string) {
	t.Helper()
	_, wire, _ = bytes.Cut(wire, []byte("\r\n\r\n"))
	r := &reader{rules: &readRules{compression: true, limit: 1 << 24}}
	var window []byte
	for len(wire) > 0 {
		n, m, err := r.feed(wire)
		must(t, err)
		wire = wire[n:]
		p := m.payload
		if m.compressed {
			p = inflated(t, p, window, 1<<24)
			if keeps {
				window = slide(window, p, 1<<maxWindowBits)
			}
		}
		if m.op == OpText || m.op == OpBinary {
			texts = append(texts, string(p))
		}
		m.release()
	}
	return texts
}

// Echoes of compressed and plain messages, whole and in fragments, in unkind worlds, with and
// without windows.
func TestCompressedSessions(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d web.Dispatch) {
		for name, k := range map[string]Compression{
			"no windows": {Enabled: true, Threshold: -1},
			"windows":    {Enabled: true, Threshold: 100, WriteWindowBits: 15, ReadWindowBits: 15},
		} {
			t.Run(name, func(t *testing.T) {
				for seed := range uint64(10) {
					compressedSession(t, d, k, seed)
				}
			})
		}
	})
}

func compressedSession(t *testing.T, d web.Dispatch, k Compression, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 5))
	wire, want, window := compressingRequest(), []string(nil), []byte(nil)
	for i := range 12 {
		text := string(sampleText(rng, rng.IntN(3000)))
		want = append(want, text)
		if i%4 == 3 {
			wire += clientFrame(true, OpText, text)
			continue
		}
		wire += packedFrame(OpText, text, window, 1+rng.IntN(3))
		if k.ReadWindowBits > 0 {
			window = slide(window, []byte(text), 1<<maxWindowBits)
		}
	}
	wire += clientFrame(true, OpClose, closeWith(1000, ""))
	o := &Options{Dispatch: d, Compression: k, PingInterval: quiet, OnMessage: echoBack, WriteLimit: 1 << 20}
	o, heard := recorded(o)
	w := newWorld(t, seed, sim.Lossless(), myriad.Config{}, Handler(o))
	c := w.client(wire)
	w.Run()
	if got := unpackAll(t, c.Received(), k.WriteWindowBits > 0); !slices.Equal(got, want) {
		t.Fatalf("seed %d: read %d messages of %d, heard %.300q", seed, len(got), len(want), heard.all())
	}
	if len(c.Received()) > 2*len(strings.Join(want, ""))/3 {
		t.Errorf("seed %d: %d bytes for %d of text", seed, len(c.Received()), len(strings.Join(want, "")))
	}
	w.stop()
}

// A connection that has not agreed on windows has nothing of its own for compression, also when it
// has been used.
func TestCompressionCostsAConnectionNothing(t *testing.T) {
	o := &Options{PingInterval: quiet, Compression: Compression{Enabled: true, Threshold: -1}, OnMessage: echoBack}
	var conn *Conn
	o.OnOpen = func(c *Conn) { conn = c }
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
	c := w.client(compressingRequest() + packedFrame(OpText, strings.Repeat("echo ", 100), nil, 1))
	w.Settle()
	if !conn.Compressed() || len(unpackAll(t, c.Received(), false)) != 1 {
		t.Fatal("not compressed")
	}
	if conn.cold != nil || conn.backlog != nil || conn.reader.part != nil {
		t.Errorf("cold %+v, backlog %+v, part %+v", conn.cold, conn.backlog, conn.reader.part)
	}
	if other := newConn(conn.settings(), conn.reader.rules.terms, 0); other.reader.rules != conn.reader.rules {
		t.Error("two connections with the same terms do not share them")
	}
	w.finish(c)
}

// Our client and our server, with every pair of wishes, say the same thing to each other.
func TestCompressedEndToEnd(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	pool := startPool(t)
	kinds := []Compression{{}, {Enabled: true, Threshold: -1}, {Enabled: true, WriteWindowBits: 15, ReadWindowBits: 15},
		{Enabled: true, Threshold: -1, WriteWindowBits: 8, ReadWindowBits: 9, Level: 9}}
	for i, server := range kinds {
		o := &Options{Workers: pool, Compression: server, OnMessage: echoBack, Dispatch: web.Dispatch(i % 3)}
		addr := listen(t, e, Handler(o))
		for j, client := range kinds {
			heard := make(chan string, 1)
			d := &DialOptions{}
			d.Engine, d.Workers, d.Compression, d.Dispatch = e, pool, client, web.Dispatch(j%3)
			d.OnMessage = func(_ *Conn, _ Op, p []byte) { heard <- string(p) }
			c, _, err := Dial(context.Background(), "ws://"+addr, d)
			must(t, err)
			if c.Compressed() != (i > 0 && j > 0) {
				t.Errorf("server %d, client %d: compressed %v", i, j, c.Compressed())
			}
			rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			for range 30 {
				text := string(sampleText(rng, rng.IntN(6000)))
				must(t, c.Write(OpText, []byte(text)))
				if got := <-heard; got != text {
					t.Fatalf("server %d, client %d: %d bytes came back as other %d", i, j, len(text), len(got))
				}
			}
			_ = c.Close(StatusNormalClosure, "")
		}
	}
}

// One message for connections with all kinds of terms.
func TestPreparedForAllTerms(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	pool := startPool(t)
	var g Group
	joined := make(chan bool)
	o := &Options{Workers: pool, Compression: Compression{Enabled: true, WriteWindowBits: 15, ReadWindowBits: 15},
		OnOpen: func(c *Conn) { _, _ = g.Join(c); joined <- true }}
	addr := listen(t, e, Handler(o))
	var heard []chan string
	for _, k := range []Compression{{}, {Enabled: true}, {Enabled: true, ReadWindowBits: 9},
		{Enabled: true, ReadWindowBits: 15, WriteWindowBits: 15}} {
		ch := make(chan string, 100)
		heard = append(heard, ch)
		d := &DialOptions{}
		d.Engine, d.Workers, d.Compression = e, pool, k
		d.OnMessage = func(_ *Conn, _ Op, p []byte) { ch <- string(p) }
		c, _, err := Dial(context.Background(), "ws://"+addr, d)
		must(t, err)
		defer c.Abort(nil)
		<-joined
	}
	rng := rand.New(rand.NewPCG(8, 8))
	for range 50 {
		text := string(sampleText(rng, rng.IntN(4000)))
		must(t, g.Send(OpText, []byte(text)))
		for i, ch := range heard {
			if got := <-ch; got != text {
				t.Fatalf("connection %d heard %d other bytes", i, len(got))
			}
		}
	}
}

// This is a decoder of DEFLATE that produces nothing: it says how far references reach back, RFC
// 1951 §3.2.

type bitReader struct {
	p    []byte
	at   int // in bits
	over bool
}

func (r *bitReader) bits(n int) (v int) {
	for i := range n {
		if r.at>>3 >= len(r.p) {
			r.over = true
			return 0
		}
		v |= int(r.p[r.at>>3]>>(r.at&7)&1) << i
		r.at++
	}
	return v
}

// huffman is a canonical code: how many codes each length has, and the symbols in order.
type huffman struct {
	count   [16]int
	symbols []int
}

func newHuffman(lengths []int) *huffman {
	h := &huffman{symbols: make([]int, len(lengths))}
	for _, n := range lengths {
		h.count[n]++
	}
	h.count[0] = 0
	var next [16]int
	for n := 1; n < 15; n++ {
		next[n+1] = next[n] + h.count[n]
	}
	for s, n := range lengths {
		if n != 0 {
			h.symbols[next[n]] = s
			next[n]++
		}
	}
	return h
}

func (h *huffman) decode(r *bitReader) int {
	code, first, index := 0, 0, 0
	for n := 1; n <= 15 && !r.over; n++ {
		code |= r.bits(1)
		if code-h.count[n] < first {
			return h.symbols[index+code-first]
		}
		index += h.count[n]
		first = (first + h.count[n]) << 1
		code <<= 1
	}
	r.over = true
	return 0
}

var (
	lengthExtra = [29]int{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	distBase    = [30]int{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537,
		2049, 3073, 4097, 6145,
		8193, 12289, 16385, 24577}
	codeOrder = [19]int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
)

// furthest is the largest distance in a message as it is sent, without its tail.
func furthest(p []byte) (distance int, ok bool) {
	r := &bitReader{p: append(append([]byte{}, p...), flushTail...)}
	for len(r.p)*8-r.at >= 3 {
		last, kind := r.bits(1), r.bits(2)
		switch kind {
		case 0:
			r.at = (r.at + 7) &^ 7
			n := r.bits(16)
			r.bits(16)
			r.at += 8 * n
		case 1:
			distance = max(distance, r.block(fixedCodes()))
		case 2:
			distance = max(distance, r.block(r.dynamicCodes()))
		default:
			return 0, false
		}
		if last == 1 || r.over {
			break
		}
	}
	return distance, !r.over
}

func fixedCodes() (*huffman, *huffman) {
	lengths := make([]int, 288)
	for i := range lengths {
		switch {
		case i < 144:
			lengths[i] = 8
		case i < 256:
			lengths[i] = 9
		case i < 280:
			lengths[i] = 7
		default:
			lengths[i] = 8
		}
	}
	dists := make([]int, 30)
	for i := range dists {
		dists[i] = 5
	}
	return newHuffman(lengths), newHuffman(dists)
}

func (r *bitReader) dynamicCodes() (*huffman, *huffman) {
	nlen, ndist, ncode := r.bits(5)+257, r.bits(5)+1, r.bits(4)+4
	codes := make([]int, 19)
	for i := range ncode {
		codes[codeOrder[i]] = r.bits(3)
	}
	h := newHuffman(codes)
	var lengths []int
	for len(lengths) < nlen+ndist && !r.over {
		again := func(what, n int) {
			for range n {
				lengths = append(lengths, what)
			}
		}
		switch s := h.decode(r); s {
		case 16:
			again(lengths[len(lengths)-1], 3+r.bits(2))
		case 17:
			again(0, 3+r.bits(3))
		case 18:
			again(0, 11+r.bits(7))
		default:
			again(s, 1)
		}
	}
	if r.over || len(lengths) < nlen+ndist {
		r.over = true
		return newHuffman(nil), newHuffman(nil)
	}
	return newHuffman(lengths[:nlen]), newHuffman(lengths[nlen : nlen+ndist])
}

func (r *bitReader) block(lengths, dists *huffman) (distance int) {
	for !r.over {
		s := lengths.decode(r)
		if s == 256 {
			return distance
		}
		if s < 256 {
			continue
		}
		r.bits(lengthExtra[s-257])
		d := dists.decode(r)
		extra := 0
		if d >= 2 {
			extra = d/2 - 1
		}
		distance = max(distance, distBase[d]+r.bits(extra))
	}
	return distance
}
