package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/client"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// This file draws the options of a world: the network, the engine, and every field of Transport.

// A profile makes some combinations come up more often. All that happens is drawn by chance in each
// of them.
type profile struct {
	name     string
	h2       float64 // that the Transport speaks HTTP/2 by prior knowledge, and servers by ALPN
	https    float64 // that a host is reached by TLS
	proxied  float64 // that a host is behind a proxy
	served   float64 // that a host is a web.Server
	evil     float64 // that a host misbehaves until the faults stop
	conn     float64 // that a connection misbehaves, at a host that does
	answer   float64 // that an answer does, at a host that does
	fates    []string
	hosts    int // at most
	requests int // at most
	deadline float64
	faulty   float64 // that the network resets connections and refuses dials
	crowd    bool    // many requests at once, for answers that take long
	late     float64 // that an answer takes long, beside those that always do
	lasting  float64 // that nothing but a fault ends connections
	uploads  float64 // that a request has a body of any kind, whatever its method is
	single   float64 // that a host may have one connection
}

var profiles = []profile{
	{name: "mixed", h2: 0.4, https: 0.4, proxied: 0.2, served: 0.2, evil: 0.7, conn: 0.3, answer: 0.3, hosts: 3,
		requests: 24, deadline: 0.5, faulty: 0.3},
	{name: "dials", h2: 0.5, https: 0.7, proxied: 0.3, evil: 1, conn: 0.6, answer: 0, hosts: 2, requests: 16,
		deadline: 0.5, fates: []string{"mute", "stall", "reset", "fin", "no SYN"}},
	{name: "drains", h2: 0.8, https: 0.3, evil: 1, conn: 0.7, answer: 0.2, hosts: 1, requests: 24, deadline: 0.2,
		fates: []string{"goaway", "goaway", "goaway", "goaway low", "goaway early", "die"}, late: 0.5, lasting: 0.7,
		single: 0.7},
	{name: "streams", h2: 1, https: 0.3, evil: 0.9, conn: 0.6, answer: 0.1, hosts: 1, requests: 24, deadline: 0.5,
		fates: []string{"die", "die", "die", "goaway", "no settings"}, lasting: 0.8},
	{name: "bodies", h2: 0.5, https: 0.2, evil: 0.5, conn: 0, answer: 0.5, hosts: 2, requests: 20, deadline: 0.2},
	{name: "uploads", h2: 0.8, https: 0.2, evil: 0.4, conn: 0.1, answer: 0.2, hosts: 1, requests: 24, deadline: 0.3,
		uploads: 0.7, late: 0.35},
	{name: "served", h2: 0.7, https: 0.3, served: 1, evil: 0.5, answer: 0.2, hosts: 2, requests: 24, deadline: 0.4,
		faulty: 0.1},
	{name: "crowd", h2: 1, https: 0.1, evil: 0.2, conn: 0.1, hosts: 1, requests: 24, deadline: 0.1, crowd: true},
}

// options are all that is drawn before a world begins.
type options struct {
	*profile
	net    string // what the network is like
	sim    sim.Options
	slack  time.Duration // how much later a peer may see what a client does
	config myriad.Config
	tr     *client.Transport
	dialer string        // who makes the connections
	issue  time.Duration // requests begin within it
	stop   time.Duration // the faults stop
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

const ms = time.Millisecond

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

// drawOptions draws all but the hosts.
func drawOptions(r *rand.Rand, seed uint64) *options {
	o := &options{profile: &profiles[seed%uint64(len(profiles))]}
	o.drawNet(r)
	o.config = myriad.Config{
		Loops: 1 + r.IntN(3), Logger: slog.New(slog.DiscardHandler), DialTimeout: pick(r, 500*ms, 1000*ms, 3000*ms),
		WriteLimit: pick(r, 0, 4<<10, 64<<10), ReadBuffer: pick(r, 0, 0, 100, 4<<10),
	}
	o.tr = &client.Transport{
		TLSHandshakeTimeout:    pick(r, 0, 0, 50*ms, 200*ms, 500*ms, 1000*ms),
		DisableKeepAlives:      chance(r, 0.1),
		DisableCompression:     chance(r, 0.5),
		MaxUncompressedBytes:   pick[int64](r, 0, 0, 0, 5000),
		MaxIdleConns:           pick(r, 0, 0, 1, 2, 5),
		MaxIdleConnsPerHost:    pick(r, 0, 0, -1, 1, 2, 5),
		MaxConnsPerHost:        pick(r, 0, 0, 1, 1, 2, 3),
		MaxQueued:              pick(r, 0, 0, 0, 0, 1, 5),
		IdleConnTimeout:        pick(r, 0, 0, 0, 100*ms, 500*ms),
		ResponseHeaderTimeout:  pick(r, 0, 0, 0, 300*ms, 1000*ms, 4000*ms),
		ExpectContinueTimeout:  pick(r, 0, 50*ms, 200*ms, 200*ms),
		MaxResponseHeaderBytes: pick[int64](r, 0, 0, 0, 700, 4000),
		ForceAttemptHTTP2:      true,
	}
	if o.crowd {
		o.tr.MaxQueued = 0
	}
	if o.uploads > 0 {
		o.tr.ResponseHeaderTimeout = pick(r, 0, 1000*ms, 4000*ms)
		o.tr.MaxQueued = 0
	}
	o.drawProtocols(r)
	if chance(r, o.lasting) {
		o.tr.DisableKeepAlives, o.tr.IdleConnTimeout, o.tr.HTTP2.SendPingTimeout = false, 0, 0
	}
	if o.single > 0 && chance(r, o.single) {
		o.tr.MaxConnsPerHost = 1
	}
	o.dialer = pick(r, "engine", "engine", "engine", "stream", "detached", "tls")
	o.issue = between(r, 100*ms, 2000*ms)
	if o.crowd {
		o.issue = between(r, 20*ms, 400*ms)
		o.tr.ResponseHeaderTimeout = pick(r, 0, 0, 0, 1000*ms)
	}
	o.stop = o.issue + between(r, 0, 2500*ms)
	o.tr.HTTP2.StrictMaxConcurrentRequests = seed/uint64(len(profiles))%5 == 4
	return o
}

// drawNet draws the network. Only a faulty one breaks what neither end breaks.
func (o *options) drawNet(r *rand.Rand) {
	switch {
	case chance(r, o.faulty):
		o.net, o.slack = "faulty", 600*ms
		o.sim = sim.Options{Reset: 0.1, Dial: 0.05, MaxDelay: 5 * ms, SlowPeer: -1, LateFIN: 0.1}
	case o.crowd || chance(r, 0.6):
		o.net, o.slack = "calm", 20*ms
		o.sim = sim.Calm()
		o.sim.MaxDelay = time.Duration(r.IntN(3)) * 100 * time.Microsecond
		if o.sim.MaxDelay == 0 {
			o.sim.MaxDelay = -1
		}
	default:
		o.net, o.slack = "split", 300*ms
		o.sim = sim.Lossless()
		o.sim.MaxDelay, o.sim.SlowPeer, o.sim.LateFIN, o.sim.Overstay = 2*ms, -1, -1, -1
		o.sim.SmallBuffers = pick(r, -1, 0.2)
	}
	o.sim.Pairs = true
}

func (o *options) drawProtocols(r *rand.Rand) {
	p := new(http.Protocols)
	if chance(r, o.h2) {
		p.SetHTTP2(true)
		p.SetUnencryptedHTTP2(true)
		p.SetHTTP1(chance(r, 0.2)) // then prior knowledge is not used
	} else {
		p.SetHTTP1(true)
	}
	if !p.HTTP1() && o.proxied > 0 {
		p.SetHTTP1(chance(r, 0.3))
	}
	o.tr.Protocols = p
	o.tr.HTTP2 = &http.HTTP2Config{
		MaxReceiveBufferPerStream:     pick(r, 0, 0, 1000, 20_000),
		MaxReceiveBufferPerConnection: pick(r, 0, 0, 70_000),
		MaxReadFrameSize:              pick(r, 0, 0, 20_000),
		MaxDecoderHeaderTableSize:     pick(r, 0, 0, 100),
		SendPingTimeout:               pick(r, 0, 0, 0, 0, 300*ms, 1000*ms),
		PingTimeout:                   pick(r, 100*ms, 500*ms),
		WriteByteTimeout:              pick(r, 0, 0, 0, 500*ms),
	}
}

func (o *options) String() string {
	t := o.tr
	var p []string
	for name, on := range map[string]bool{"HTTP1": t.Protocols.HTTP1(), "HTTP2": t.Protocols.HTTP2(),
		"UnencryptedHTTP2": t.Protocols.UnencryptedHTTP2()} {
		if on {
			p = append(p, name)
		}
	}
	text := fmt.Sprintf("profile %s, network %s, dials by %s, faults stop at %v, loops %d, protocols %v", o.name, o.net,
		o.dialer, o.stop, o.config.Loops, p)
	for _, f := range []struct {
		name  string
		value any
	}{
		{"DialTimeout", o.config.DialTimeout}, {"WriteLimit", o.config.WriteLimit}, {"ReadBuffer", o.config.ReadBuffer},
		{"TLSHandshakeTimeout", t.TLSHandshakeTimeout}, {"DisableKeepAlives", t.DisableKeepAlives},
		{"DisableCompression", t.DisableCompression}, {"MaxUncompressedBytes", t.MaxUncompressedBytes},
		{"MaxIdleConns", t.MaxIdleConns}, {"MaxIdleConnsPerHost", t.MaxIdleConnsPerHost},
		{"MaxConnsPerHost", t.MaxConnsPerHost}, {"MaxQueued", t.MaxQueued}, {"IdleConnTimeout", t.IdleConnTimeout},
		{"ResponseHeaderTimeout", t.ResponseHeaderTimeout}, {"ExpectContinueTimeout", t.ExpectContinueTimeout},
		{"MaxResponseHeaderBytes", t.MaxResponseHeaderBytes}, {"SendPingTimeout", t.HTTP2.SendPingTimeout},
		{"PingTimeout", t.HTTP2.PingTimeout}, {"WriteByteTimeout", t.HTTP2.WriteByteTimeout},
		{"MaxReceiveBufferPerStream", t.HTTP2.MaxReceiveBufferPerStream},
		{"StrictMaxConcurrentRequests", t.HTTP2.StrictMaxConcurrentRequests},
	} {
		if s := fmt.Sprint(f.value); s != "0" && s != "0s" && s != "false" {
			text += ", " + f.name + " " + s
		}
	}
	return text
}

// connect gives the Transport its engine, its proxies and its dialers.
func (w *world) connect() {
	tr := w.o.tr
	tr.Engine = w.engine
	tr.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, Time: w.Now, CurvePreferences: curves}
	proxies := map[string]*url.URL{}
	for _, h := range w.hosts {
		if h.proxyURL != nil {
			proxies[h.name] = h.proxyURL
		}
	}
	if len(proxies) > 0 {
		tr.Proxy = func(r *http.Request) (*url.URL, error) { return proxies[r.URL.Host], nil }
	}
	switch w.o.dialer {
	case "stream":
		tr.DialContext = w.dialStream
	case "detached":
		tr.DialContext = w.dialDetached
	case "tls":
		tr.DialTLSContext = w.dialTLS
	}
}

var curves = []tls.CurveID{tls.X25519}

// dialStream makes a net.Conn without a descriptor.
func (w *world) dialStream(ctx context.Context, network, addr string) (net.Conn, error) {
	h, nc := myriad.Stream(0)
	if err := w.dial(ctx, network, addr, h); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return foreign{nc}, nil
}

// foreign hides that a net.Conn is an engine's.
type foreign struct{ net.Conn }

func (f foreign) CloseWrite() error { return f.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// dialDetached makes one that the engine can import.
func (w *world) dialDetached(ctx context.Context, network, addr string) (nc net.Conn, err error) {
	p, done := w.NewParker(), false
	d := detacher(func(c net.Conn, e error) { nc, err, done = c, e, true; p.Unpark() })
	if err := w.dial(ctx, network, addr, d); err != nil {
		return nil, err
	}
	for !done {
		p.Park()
	}
	return nc, err
}

// dialTLS makes a *tls.Conn, without the handshake: the Transport makes that.
func (w *world) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := w.dialDetached(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	cfg := w.o.tr.TLSClientConfig.Clone()
	if cfg.NextProtos = []string{"http/1.1"}; w.o.tr.Protocols.HTTP2() {
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	return tls.Client(nc, cfg), nil
}

// dial waits for the engine's dial, or for the end of ctx. It looks at ctx each millisecond:
// package context would tell by a goroutine that the world does not know.
func (w *world) dial(ctx context.Context, network, addr string, h myriad.Handler) (err error) {
	p, done := w.NewParker(), false
	cancel := w.dials.DialFunc(context.Background(), network, addr, h, func(_ *myriad.Conn, e error) {
		err, done = e, true
		p.Unpark()
	})
	for !done {
		if p.ParkFor(ms); ctx.Err() != nil && !done {
			cancel()
		}
	}
	return err
}

// A detacher takes its connection out of the engine at once.
type detacher func(net.Conn, error)

func (d detacher) Opened(c *myriad.Conn) {
	c.Detach(func(nc net.Conn, unread []byte, err error) {
		if len(unread) > 0 {
			err = errors.New("the server has spoken first")
		}
		d(nc, err)
	})
}
func (detacher) Received(*myriad.Conn, []byte) {}
func (detacher) Closed(*myriad.Conn, error)    {}

// mayH2 reports whether the Transport may speak HTTP/2 to a host.
func (o *options) mayH2(h *host) bool {
	switch p := o.tr.Protocols; {
	case h.https:
		return p.HTTP2()
	case strings.HasPrefix(h.proxy, "http"):
		return false
	default:
		return p.UnencryptedHTTP2() && !p.HTTP1()
	}
}
