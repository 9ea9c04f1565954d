package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// This file is web.Server as a host: for the Transport, and for a client that speaks in frames and
// keeps strictly to what the server allows, while it cancels.

// A webHost is a web.Server.
type webHost struct {
	h      *host
	s      *web.Server
	honest *honest
}

// serve makes a host of a web.Server, with random options.
func (w *world) serve(h *host) {
	r := w.rng
	if w.far == nil {
		w.far = w.start(1 + r.IntN(2))
	}
	b := &webHost{h: h}
	b.s = &web.Server{Engine: w.far, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(b.handle),
		Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: pick(r, 0, 1, 2, 5, 20),
			MaxReceiveBufferPerStream: pick(r, 0, 1000), SendPingTimeout: pick(r, 0, 0, 500*ms)},
		Dispatch: pick(r, web.DispatchAuto, web.DispatchPool), TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate()}, Time: w.Now, CurvePreferences: curves}}
	b.s.Protocols.SetHTTP1(true)
	b.s.Protocols.SetHTTP2(true)
	b.s.Protocols.SetUnencryptedHTTP2(true)
	listen := func() (*web.Listener, error) { return b.s.Listen("tcp", "127.0.0.1:0") }
	scheme := "http"
	if h.https {
		scheme = "https"
		listen = func() (*web.Listener, error) { return b.s.ListenTLS("tcp", "127.0.0.1:0", "", "") }
	}
	ln, err := listen()
	if err != nil {
		w.t.Fatal(err)
	}
	h.addr = ln.Addr()
	h.name = ln.Addr().String()
	h.url = scheme + "://" + h.name
	w.webs = append(w.webs, b)
	if !h.https && chance(r, 0.5) {
		b.honest = newHonest(b)
	}
}

func (w *world) closeWebs() {
	for _, b := range w.webs {
		if b.honest != nil {
			b.honest.p.Close()
		}
		b.s.Close()
		if err := b.s.Shutdown(context.Background()); err != nil {
			w.judge.broke(nil, "left", "web.Server: %v", err)
		}
	}
}

// handle answers a request by its plan.
func (b *webHost) handle(rw http.ResponseWriter, r *http.Request) {
	w := b.h.w
	if rest, ok := strings.CutPrefix(r.URL.Path, "/honest/"); ok {
		b.honest.handle(rw, rest)
		return
	}
	id := idOf(r.URL.Path)
	if id < 0 || id >= len(w.requests) {
		w.judge.broke(nil, "request head", "a request for %q came", r.URL.Path)
		return
	}
	x := w.requests[id]
	a := &attempt{x: x, at: w.Now(), plan: b.h.drawPlan(x, r.ProtoMajor == 2)}
	p := a.plan
	p.cutAt, p.refuse, p.gzip = 0, false, false
	x.note("web.Server: arrived by %s: %v", r.Proto, p)
	w.judge.arrived(a)
	x.attempts = append(x.attempts, a)
	x.checkHead(r.Method, r.Header, r.ContentLength)
	wait := func(d time.Duration) {
		if d > 0 {
			w.NewParker().ParkFor(d)
		}
	}
	if !p.early {
		b.read(a, r)
		if a.whole.IsZero() {
			return
		}
	}
	wait(p.delay)
	if p.cut != "" {
		a.fails("the handler gives up")
		panic(http.ErrAbortHandler)
	}
	h := rw.Header()
	h.Set("X-Id", strconv.Itoa(id))
	if p.pad > 0 {
		h.Set("X-Pad", string(letters[:p.pad]))
	}
	w.judge.planned(a, p.pad+300)
	if !p.chunked && p.status != 204 {
		h.Set("Content-Length", strconv.Itoa(p.size))
	}
	a.began = w.Now()
	rw.WriteHeader(p.status)
	body := text(answerID(id), 0, p.size)
	for len(body) > 0 && !a.bodiless() {
		n := len(body)
		if p.gap > 0 {
			n = min(n, max(p.piece, p.size/20))
		}
		if _, err := rw.Write(body[:n]); err != nil {
			x.note("web.Server: %v", err)
			return
		}
		a.sent += n
		if body = body[n:]; p.gap > 0 {
			http.NewResponseController(rw).Flush()
			wait(p.gap)
		}
	}
	a.answered = w.Now()
	x.note("web.Server: the answer is complete, with %d bytes", a.sent)
}

func (b *webHost) read(a *attempt, r *http.Request) {
	p := make([]byte, 8<<10)
	for {
		n, err := r.Body.Read(p)
		a.data(p[:n])
		if err == io.EOF {
			a.complete(r.Trailer)
			return
		}
		if err != nil {
			a.x.note("web.Server: reading the body: %v", err)
			return
		}
	}
}

// An honest client opens as many streams as the server allows at a time, never more, as RFC 9113
// section 5.1.2 counts. It cancels some, and opens others in the same flight.
type honest struct {
	b       *webHost
	p       *sim.Peer
	in      []byte
	out     bytes.Buffer
	frames  bytes.Buffer
	fr      *http2.Framer
	dec     *hpack.Decoder
	most    int // streams; 0: SETTINGS have not come
	next    uint32
	open    map[uint32]*honestStream
	all     []*honestStream
	over    bool
	cancels int // that may still be made
}

type honestStream struct {
	id        uint32
	closed    bool // for the client
	cancelled bool
	done      time.Time // when its handler has returned
	got       int
	size      int
	sleep     time.Duration
}

const honestStreams = 300

func newHonest(b *webHost) *honest {
	c := &honest{b: b, open: map[uint32]*honestStream{}, next: 1, dec: hpack.NewDecoder(4096, nil), cancels: 300}
	w := b.h.w
	c.fr = http2.NewFramer(&c.out, &c.frames)
	c.p = w.Dial(b.h.addr)
	c.p.OnReceived = c.received
	c.p.OnClosed = func(err error) {
		if !c.over && !c.p.Faulted() && !w.over && w.ended.IsZero() {
			w.judge.broke(nil, "honest client", "its connection has ended: %v", err)
		}
		c.over = true
	}
	c.out.WriteString(http2.ClientPreface)
	c.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	c.flush()
	return c
}

func (c *honest) flush() {
	if c.out.Len() > 0 && !c.over {
		c.p.Write(bytes.Clone(c.out.Bytes()))
	}
	c.out.Reset()
}

func (c *honest) received(p []byte) {
	c.in = append(c.in, p...)
	for len(c.in) >= 9 {
		n := 9 + int(c.in[0])<<16 + int(c.in[1])<<8 + int(c.in[2])
		if len(c.in) < n {
			break
		}
		c.frames.Write(c.in[:n])
		c.in = c.in[n:]
		f, err := c.fr.ReadFrame()
		if err != nil {
			c.b.h.w.judge.broke(nil, "honest client", "a frame cannot be read: %v", err)
			return
		}
		c.take(f)
	}
	c.flush()
}

func (c *honest) take(f http2.Frame) {
	j := &c.b.h.w.judge
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return
		}
		first := c.most == 0
		c.most = 100
		if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
			c.most = int(n)
		}
		c.fr.WriteSettingsAck()
		c.fr.WriteWindowUpdate(0, 1<<30)
		if first {
			c.fill()
			c.b.h.w.AfterFunc(c.pause(), c.act)
		}
	case *http2.HeadersFrame:
		fields, _ := c.dec.DecodeFull(f.HeaderBlockFragment())
		if s := c.open[f.StreamID]; s != nil && len(fields) > 0 && fields[0].Value != "200" {
			s.size = -1 // the pool of workers is full
		}
		c.ended(f.StreamID, f.StreamEnded())
	case *http2.DataFrame:
		if s := c.open[f.StreamID]; s != nil {
			s.got += len(f.Data())
		}
		c.ended(f.StreamID, f.StreamEnded())
	case *http2.RSTStreamFrame:
		s := c.open[f.StreamID]
		if s == nil {
			return
		}
		delete(c.open, s.id)
		s.closed = true
		if n := c.unfinished(); f.ErrCode == http2.ErrCodeRefusedStream && n < c.most {
			j.broke(nil, "honest client", "stream %d is refused; %d are open, %d are allowed, and the handlers of %d "+
				"that are closed run still", s.id, len(c.open)+1, c.most, n)
		} else if f.ErrCode != http2.ErrCodeRefusedStream {
			j.broke(nil, "honest client", "stream %d is reset: %v", s.id, f.ErrCode)
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			c.fr.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		if f.ErrCode != http2.ErrCodeNo {
			j.broke(nil, "honest client", "%v %q with %d streams open, after %d", f.ErrCode, f.DebugData(), len(c.open),
				len(c.all))
		}
		c.over = true
	}
}

// unfinished is how many streams are closed whose handlers may not have returned when the server
// sent what has come now.
func (c *honest) unfinished() (n int) {
	sent := c.b.h.w.Now().Add(-c.b.h.w.o.slack)
	for _, s := range c.all {
		if s.closed && (s.done.IsZero() || s.done.After(sent)) {
			n++
		}
	}
	return n
}

func (c *honest) ended(id uint32, end bool) {
	s := c.open[id]
	if s == nil || !end {
		return
	}
	delete(c.open, id)
	if s.closed = true; s.got != s.size && s.size >= 0 {
		c.b.h.w.judge.broke(nil, "honest client", "stream %d has %d bytes of %d", id, s.got, s.size)
	}
	c.fill()
}

// fill opens streams up to the limit.
func (c *honest) fill() {
	r := c.b.h.w.rng
	for len(c.open) < c.most && len(c.all) < honestStreams && !c.b.h.w.stopped {
		s := &honestStream{id: c.next, size: r.IntN(2000), sleep: between(r, 0, 300*ms)}
		c.next += 2
		c.open[s.id] = s
		c.all = append(c.all, s)
		var block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		enc.SetMaxDynamicTableSize(0)
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "h"},
			{":path", fmt.Sprint("/honest/", len(c.all)-1)}} {
			enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: block.Bytes(), EndStream: true,
			EndHeaders: true})
	}
}

func (c *honest) pause() time.Duration { return between(c.b.h.w.rng, ms, 200*ms) }

// act cancels some streams, and opens others behind them.
func (c *honest) act() {
	r := c.b.h.w.rng
	if c.over || c.b.h.w.stopped {
		return
	}
	n := pick(r, 1, 1, 2, len(c.open)/2, len(c.open)-1)
	for _, s := range c.all {
		if n <= 0 || c.cancels == 0 {
			break
		}
		if c.open[s.id] == nil || s.got > 0 {
			continue
		}
		n--
		c.cancels--
		delete(c.open, s.id)
		s.closed, s.cancelled = true, true
		c.fr.WriteRSTStream(s.id, http2.ErrCodeCancel)
	}
	c.fill()
	c.flush()
	c.b.h.w.AfterFunc(c.pause(), c.act)
}

// handle sleeps, whether or not its client has gone, and answers.
func (c *honest) handle(rw http.ResponseWriter, rest string) {
	n, err := strconv.Atoi(rest)
	if err != nil || n >= len(c.all) {
		return
	}
	s := c.all[n]
	defer func() { s.done = c.b.h.w.Now() }()
	c.b.h.w.NewParker().ParkFor(s.sleep + 1)
	rw.Write(text(n, 0, s.size))
}
