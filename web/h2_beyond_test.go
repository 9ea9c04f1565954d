package web

import (
	"errors"
	"io"
	"net/http"
	"testing"
)

// A handler that writes beyond its Content-Length is told so by http.ErrContentLength, as with
// HTTP/1.1. net/http has an error of its own.
func TestHTTP2WriteBeyondLength(t *testing.T) {
	errs := make(chan error, 1)
	eachHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		io.WriteString(w, "abc")
		_, err := io.WriteString(w, "d")
		errs <- err
	}, func(t *testing.T, f *fixture, c *http.Client) {
		resp, err := c.Get(f.url("/"))
		if err == nil { // the stream is reset: it depends on time what the client has seen before
			resp.Body.Close()
		}
		if err := <-errs; !errors.Is(err, http.ErrContentLength) {
			t.Errorf("the handler got %v", err)
		}
	})
}
