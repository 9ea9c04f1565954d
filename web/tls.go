package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// ListenAndServeTLS listens on Addr (":https" if it is empty) and serves HTTPS until Shutdown or
// Close, then returns http.ErrServerClosed. The files hold a certificate with its chain, and its
// key, in PEM; they may be empty if TLSConfig has certificates.
//
// The handshake is bounded by the shortest of ReadHeaderTimeout, ReadTimeout and WriteTimeout, or
// else by 10 s; failures are logged once in 10 s. ALPN offers "h2" and "http/1.1", as far as
// Protocols has them, and what TLSConfig.NextProtos names.
func (s *Server) ListenAndServeTLS(certFile, keyFile string) error {
	addr := s.Addr
	if addr == "" {
		addr = ":https"
	}
	ln, err := s.ListenTLS("tcp", addr, certFile, keyFile)
	if err != nil {
		return err
	}
	return ln.Wait()
}

// ListenTLS binds addr and serves HTTPS there in the background, with no goroutine. The files are
// those of ListenAndServeTLS.
func (s *Server) ListenTLS(network, addr, certFile, keyFile string) (*Listener, error) {
	if err := s.start(); err != nil {
		return nil, err
	}
	front, err := s.secureFront(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return s.listen(network, addr, front)
}

// ServeTLS is Serve for HTTPS on a listener without TLS; the files are those of ListenAndServeTLS.
// Without a certificate it leaves l open.
func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {
	front, err := s.secureFront(certFile, keyFile)
	if err != nil {
		return err // also after Shutdown, as net/http does
	}
	l = &onceListener{Listener: l}
	if err := s.start(); err != nil {
		_ = l.Close()
		return err
	}
	return s.serve(l, front)
}

// secureFront is a front whose connections make a handshake first.
func (s *Server) secureFront(certFile, keyFile string) (*front, error) {
	cfg, err := s.tlsConfig(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	f := newFront(s)
	o := tlsloop.Options{Timeout: s.handshakeTimeout(), Failed: s.handshakeFailed, Closed: f.lost, NotTLS: answerPlain,
		LeanTLS: s.LeanTLS}
	f.tls = o.Handler(cfg, f.negotiated)
	return f, nil
}

// tlsConfig is TLSConfig as this server can use it.
func (s *Server) tlsConfig(certFile, keyFile string) (*tls.Config, error) {
	cfg := new(tls.Config)
	if s.TLSConfig != nil {
		cfg = s.TLSConfig.Clone()
	}
	cfg.NextProtos = s.protos(cfg.NextProtos)
	if f := cfg.GetConfigForClient; f != nil {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			other, err := f(hello)
			if err == nil && other != nil && slices.Contains(other.NextProtos, "h2") && !s.offersHTTP2() {
				other = other.Clone()
				other.NextProtos = s.protos(other.NextProtos)
			}
			return other, err
		}
	}
	has := len(cfg.Certificates) > 0 || cfg.GetCertificate != nil || cfg.GetConfigForClient != nil
	if has && certFile == "" && keyFile == "" {
		return cfg, nil
	}
	if certFile == "" || keyFile == "" {
		return nil, missing{certFile, keyFile}
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("web: certificate %q with key %q: %w", certFile, keyFile, err)
	}
	cfg.Certificates = []tls.Certificate{cert}
	return cfg, nil
}

// missing is the error of a TLS method that lacks one of its files, or both.
type missing struct{ certFile, keyFile string }

func (m missing) Error() string {
	switch {
	case m.certFile != "":
		return fmt.Sprintf("web: HTTPS with the certificate file %q needs a key file: name it too", m.certFile)
	case m.keyFile != "":
		return fmt.Sprintf("web: HTTPS with the key file %q needs a certificate file: name it too", m.keyFile)
	}
	return "web: HTTPS needs a certificate: name a certificate file and a key file, or set Certificates or " +
		"GetCertificate in Server.TLSConfig"
}

// Is makes it the error that net/http has from opening a file without a name.
func (missing) Is(target error) bool { return target == fs.ErrNotExist }

// protos are the protocols that ALPN offers: those asked for that are served here, HTTP/2, and
// HTTP/1.1.
func (s *Server) protos(asked []string) []string {
	p := s.protocols()
	offered := slices.DeleteFunc(slices.Clone(asked), func(name string) bool {
		return name == "h2" && !p.HTTP2() || name == "http/1.1" && !p.HTTP1()
	})
	if p.HTTP2() && !slices.Contains(offered, "h2") {
		offered = append(offered, "h2")
	}
	if p.HTTP1() && !slices.Contains(offered, "http/1.1") {
		offered = append(offered, "http/1.1")
	}
	return offered
}

// offersHTTP2 reports whether HTTP/2 is served over TLS, here or by TLSNextProto.
func (s *Server) offersHTTP2() bool {
	p := s.protocols()
	return p.HTTP2()
}

// handshakeTimeout is net/http's rule; 0 leaves it to tlsloop.
func (s *Server) handshakeTimeout() (shortest time.Duration) {
	for _, d := range []time.Duration{s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout} {
		if d > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	return shortest
}

func (s *Server) handshakeFailed(c *myriad.Conn, err error, times uint64) {
	s.state.LogHandshake(c.RemoteAddr(), reasonOf(fromBelow(c, err)), times)
}

// fromBelow is err as package tls has it of a net.Conn, if it came from below the handshake. What a
// callback of the configuration has failed with stays as it is, although that may have such an
// error inside.
func fromBelow(c *myriad.Conn, err error) error {
	_, numbered := err.(syscall.Errno)
	_, ofConn := err.(*net.OpError)
	late := !ofConn && errors.Unwrap(err) == os.ErrDeadlineExceeded // as tlsloop says it
	if numbered || late || err == myriad.ErrClosed || err == http.ErrServerClosed {
		return exchange.NetError(c, "read", err)
	}
	return err
}

// reasonOf is err in the words of net/http.
func reasonOf(err error) string {
	if header := (tls.RecordHeaderError{}); errors.As(err, &header) && answerPlain(header.RecordHeader) != nil {
		return "client sent an HTTP request to an HTTPS server"
	}
	return err.Error()
}

// answerPlain is for a client that has typed http:// for https://.
func answerPlain(header [5]byte) []byte {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return []byte("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	}
	return nil
}

// A protocol is a function of TLSNextProto.
type protocol = func(*http.Server, *tls.Conn, http.Handler)

// A departing handler is that of a connection which leaves the engine for a protocol.
type departing struct {
	myriad.Handler // of the connection on its way; before, a securedFront, told if ConnContext has ended it
	front          *front
	serve          protocol
}

func (d *departing) Opened(c *myriad.Conn) {
	<-d.front.set
	base := d.front.contextOf(c)
	d.Handler = tlsloop.Leave(func(tc *tls.Conn, err error) { d.front.giveTo(d.serve, c, tc, base, err) })
	d.Handler.Opened(c)
}

// LeavesWithTLS implements tlsloop.Leaver.
func (*departing) LeavesWithTLS() {}

// giveTo has a protocol serve the connection, which has left the engine, and still counts for
// Shutdown. On the loop.
func (f *front) giveTo(serve protocol, c *myriad.Conn, tc *tls.Conn, base context.Context, err error) {
	if err != nil {
		f.lost(c, err)
		return
	}
	st := f.s.state
	delete(f.lane(c).greeted, c)
	st.given.add(tc)
	st.Engine.System().Go(func() {
		defer st.ConnGone()
		f.s.speak(serve, tc, base)
		if report := f.s.ConnState; report != nil {
			report(c, http.StateClosed)
		}
	})
}

// speak lets a protocol have tc until it returns or panics. Close has its reads and writes fail.
func (s *Server) speak(serve protocol, tc *tls.Conn, base context.Context) {
	defer s.state.given.remove(tc)
	defer tc.Close()
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			s.logf("http: panic serving %v: %v\n%s", tc.RemoteAddr(), v, debug.Stack())
		}
	}()
	serve(s.state.std, tc, negotiatedHandler{s, tc, base})
}

// A negotiatedHandler is what a function of TLSNextProto gets for a handler: it fills in what a
// request must have and that function did not know, and has the method BaseContext, which package
// golang.org/x/net/http2 looks for.
type negotiatedHandler struct {
	s    *Server
	tc   *tls.Conn
	base context.Context // of the connection
}

func (h negotiatedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil {
		state := h.tc.ConnectionState()
		r.TLS = &state
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	if r.RemoteAddr == "" {
		r.RemoteAddr = h.tc.RemoteAddr().String()
	}
	h.s.handlerOf(r).ServeHTTP(w, r)
}

func (h negotiatedHandler) BaseContext() context.Context { return h.base }

// leavesAtOnce reports whether Serve must not wait until a connection is opened, because that takes
// a handshake.
func leavesAtOnce(nc net.Conn) bool {
	tc, ok := nc.(*tls.Conn)
	if !ok {
		return false
	}
	_, lifts := tc.NetConn().(myriad.Lifter)
	return lifts
}
