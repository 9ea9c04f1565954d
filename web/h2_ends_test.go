package web

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// A client that closes its connection in order ends the contexts of its handlers. What it has not
// read is dropped, also behind windows that it would have to open.
func TestHTTP2ClientCloses(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan struct{})
	f, _ := serveHTTP2(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		w.Write(make([]byte, 1<<20)) // more than the window and the stream's queue hold
		<-r.Context().Done()
		ended <- struct{}{}
	})})
	c, fr := rawHTTP2(t, f)
	fr.WriteSettingsAck()
	openStream(fr, 1, true)
	<-began
	for n := 0; n < 1<<16-1; { // the window, so that nothing is unread: a close would be a reset
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h := frame.Header(); h.Type == http2.FrameData {
			n += int(h.Length)
		}
	}
	c.Close()
	<-ended
	within(t, "the connection is gone", func() bool { return f.state.Conns.Load() == 0 })
}

// What a handler's Read fails with, when its client has reset the stream, is an http2.StreamError
// for errors.As, as with net/http.
func TestHTTP2StreamErrorLikeNetHTTP(t *testing.T) {
	var failed chan error
	sameOnBoth(t, func(s *Server) {
		mine := make(chan error, 1)
		failed = mine
		s.Protocols, s.Handler = plainHTTP2(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			mine <- err
		})
	}, func(t *testing.T, f *fixture, r *record) {
		p := newPeer(t, f.addr)
		defer p.Close()
		p.fr.WriteData(p.open("/"), false, []byte("some"))
		p.out.Flush()
		if s := p.ask(translate("GET / HTTP/1.1\r\nHost: h\r\n\r\n")); s.status != "200" { // the first has come
			t.Error(s)
		}
		<-failed
		p.fr.WriteRSTStream(1, http2.ErrCodeEnhanceYourCalm)
		p.out.Flush()
		err := <-failed
		var e http2.StreamError
		var other *http.MaxBytesError
		r.add("%t %t %d %v", errors.As(err, &e), errors.As(err, &other), e.StreamID, e.Code)
	})
}
