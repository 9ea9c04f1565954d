package web

import (
	"net/http"
	"strings"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/mux"
)

// This file is how a connection comes to HTTP/2: by ALPN, or by the preface.

const (
	// maxStreams is how many requests of a connection may be open: see Server.HTTP2.
	maxStreams = 250
	// streamWindow is how much of a request's body may wait for its handler.
	streamWindow = 64 << 10
)

// protocols are those that are served.
func (s *Server) protocols() (p http.Protocols) {
	if s.Protocols != nil {
		return *s.Protocols
	}
	p.SetHTTP1(true)
	p.SetHTTP2(s.TLSNextProto == nil || s.TLSNextProto["h2"] != nil)
	return p
}

// speaksHTTP2 reports whether this server itself serves HTTP/2 over TLS.
func (s *Server) speaksHTTP2() bool {
	p := s.protocols()
	return p.HTTP2() && s.TLSNextProto["h2"] == nil
}

func (s *Server) configureHTTP2(st *state) {
	st.protocols = s.protocols()
	head := s.MaxHeaderBytes
	if head <= 0 {
		head = http.DefaultMaxHeaderBytes
	}
	const overhead = 10 * 32 // net/http adds it for ten fields as HPACK counts them
	st.figures = st.engine.Shared(figuresKey{}, newFigures).(*figures)
	st.mux = mux.Config{
		Streams: maxStreams, Window: streamWindow, HeaderList: head + overhead, Now: st.engine.System().Now,
		Connect: s.Tunnels, HeadTimeout: firstOf(s.ReadHeaderTimeout, s.ReadTimeout, headTimeout),
		Counters: &st.figures.Counters, Log: mux.NewLog(func(f mux.Fault) { s.logf("http: %v", f) }),
	}
	st.mux.Take(s.HTTP2)
	st.window = int32(st.mux.Window)
}

// muxedFront opens connections on which ALPN has chosen HTTP/2.
type muxedFront front

func (f *muxedFront) Opened(c *myriad.Conn) {
	<-f.set
	g := (*front)(f)
	h := &h2conn{link: link{c: c, lane: g.lane(c), from: g.originOf(g.contextOf(c)), secure: true, greeted: true}}
	c.SetHandler(h, nil)
}

// Received is never reached: the handler changes in Opened.
func (*muxedFront) Received(c *myriad.Conn, _ []byte) { c.Abort(nil) }

// Closed is called if ConnContext has ended the connection in Opened.
func (f *muxedFront) Closed(c *myriad.Conn, err error) { (*front)(f).lost(c, err) }

// startsHTTP2 reports whether nothing but a part of the preface has come, and HTTP/2 may follow it.
// That is so with TLS, too, where a listener of Serve has made the handshake.
func (h *conn) startsHTTP2() bool {
	if h.state != uint8(http.StateNew) || !strings.HasPrefix(h2.Preface, string(h.kept())) {
		return false
	}
	if h.secure {
		return h.lane.s.speaksHTTP2() && h.tlsState().NegotiatedProtocol == "h2"
	}
	return h.lane.st.protocols.UnencryptedHTTP2()
}

// becomeHTTP2 changes to HTTP/2 with all that has come.
func (h *conn) becomeHTTP2(p []byte) {
	h.phase = phaseClosing
	h.c.SetTimer(0)
	h.c.SetHandler(&h2conn{
		link:  link{c: h.c, lane: h.lane, from: h.from, state: h.state, secure: h.secure, greeted: h.greeted},
		moved: true,
	}, append([]byte(nil), p...))
	h.dropAhead()
	h.lane.depart(&h.link)
}
