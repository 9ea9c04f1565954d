package client

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// An uploadWitness is a server of HTTP/2 that answers each request with a status at once, and notes
// what comes of its body.
type uploadWitness struct {
	code   string
	body   bool // it sends a body, which it does not end
	bytes  atomic.Int64
	resets chan http2.ErrCode
}

func (s *uploadWitness) serve(fr *http2.Framer, f http2.Frame) {
	switch f := f.(type) {
	case *http2.HeadersFrame:
		answer(fr, f.StreamID, s.code, !s.body)
		if s.body {
			fr.WriteData(f.StreamID, false, []byte("no"))
		}
	case *http2.DataFrame:
		s.bytes.Add(int64(len(f.Data())))
		if f.Length > 0 {
			fr.WriteWindowUpdate(0, f.Length)
			fr.WriteWindowUpdate(f.StreamID, f.Length)
		}
	case *http2.RSTStreamFrame:
		s.resets <- f.ErrCode
	}
}

// A response whose status is no success ends the upload over HTTP/2: the body is closed although
// the response is not read, and no more of it comes.
func TestFailureEndsTheUpload(t *testing.T) {
	for name, body := range map[string]bool{"with a body": true, "without": false} {
		for _, code := range []string{"303", "413", "503"} {
			s := &uploadWitness{code: code, body: body, resets: make(chan http2.ErrCode, 2)}
			url := framed(t, s.serve)
			std := &http.Transport{Protocols: new(http.Protocols)}
			std.Protocols.SetUnencryptedHTTP2(true)
			defer std.CloseIdleConnections()
			for of, rt := range map[string]http.RoundTripper{"http.Transport": std, "Transport": likeOf(t, std)} {
				upload := &endlessUpload{closed: make(chan struct{})}
				req := request(t, "POST", url, nil)
				req.Body, req.ContentLength = upload, -1
				r, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatalf("%s, %s %s: %v", of, code, name, err)
				}
				select {
				case <-upload.closed:
				case <-time.After(patience):
					t.Fatalf("%s, %s %s: the upload goes on", of, code, name)
				}
				r.Body.Close()
				if c := <-s.resets; c != http2.ErrCodeCancel && c != http2.ErrCodeNo {
					t.Errorf("%s, %s %s: the stream was reset with %v", of, code, name, c)
				}
			}
		}
	}
}

// endlessUpload is a body without an end.
type endlessUpload struct {
	closed chan struct{}
	once   atomic.Bool
}

func (b *endlessUpload) Read(p []byte) (int, error) { return min(len(p), 16<<10), nil }

func (b *endlessUpload) Close() error {
	if !b.once.Swap(true) {
		close(b.closed)
	}
	return nil
}

// A body that waits for 100 Continue is not sent if the server refuses the request, and is sent
// behind a 2xx. net/http does the same.
func TestExpectedBodyIsNotSentToARefusal(t *testing.T) {
	for code, want := range map[string]int64{"401": 0, "417": 0, "200": 6} {
		s := &uploadWitness{code: code, resets: make(chan http2.ErrCode, 2)}
		tr := overClearH2(t, &Transport{ExpectContinueTimeout: patience})
		req := request(t, "POST", framed(t, s.serve), strings.NewReader("secret"))
		req.Header.Set("Expect", "100-continue")
		r, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		if want == 0 {
			<-s.resets // behind which nothing comes
		}
		for limit := time.Now().Add(patience); s.bytes.Load() != want && time.Now().Before(limit); {
			time.Sleep(time.Millisecond)
		}
		if n := s.bytes.Load(); n != want {
			t.Errorf("%s: %d bytes of the body were sent, want %d", code, n, want)
		}
	}
}
