package web

import (
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// A client that closes its connection in order ends the contexts of its handlers, and what it has
// not read is let go, also behind windows that it would have to open.
func TestHTTP2ClientCloses(t *testing.T) {
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
	within(t, "the connection is gone", func() bool { return f.state.conns.Load() == 0 })
}
