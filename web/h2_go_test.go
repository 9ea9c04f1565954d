package web

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// This file has what Go's own tests of HTTP/2 servers have found.

// fieldBlock compresses names and values in turn.
func fieldBlock(pairs ...string) []byte {
	var b strings.Builder
	enc := hpack.NewEncoder(&b)
	for i := 0; i < len(pairs); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return []byte(b.String())
}

// awaitData reads frames until one has data, and returns it.
func awaitData(t *testing.T, fr *http2.Framer) string {
	t.Helper()
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := frame.(*http2.DataFrame); ok && len(d.Data()) > 0 {
			return string(d.Data())
		}
	}
}

// awaitReset reads frames until a stream is reset.
func awaitReset(t *testing.T, fr *http2.Framer) http2.ErrCode {
	t.Helper()
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := frame.(*http2.RSTStreamFrame); ok {
			return r.ErrCode
		}
	}
}

// As with net/http, a handler sees the trailers that the head has announced, and no others.
func TestHTTP2UnannouncedTrailers(t *testing.T) {
	f, _ := serveHTTP2(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Trailer, err)
	})})
	_, fr := rawHTTP2(t, f)
	for i, announce := range []string{"a, B", ""} {
		id := uint32(2*i + 1)
		head := []string{":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/"}
		if announce != "" {
			head = append(head, "trailer", announce)
		}
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fieldBlock(head...), EndHeaders: true})
		fr.WriteData(id, false, []byte("body"))
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fieldBlock("a", "1", "b", "2", "c", "3"),
			EndHeaders: true, EndStream: true})
		want := "map[A:[1] B:[2]] <nil>"
		if announce == "" {
			want = "map[] <nil>"
		}
		if got := awaitData(t, fr); got != want {
			t.Errorf("announced %q: %s, want %s", announce, got, want)
		}
	}
}

// Schemes that net/http does not serve are refused.
func TestHTTP2Scheme(t *testing.T) {
	f, _ := serveHTTP2(t, &Server{Handler: http.HandlerFunc(hello)})
	_, fr := rawHTTP2(t, f)
	for i, scheme := range []string{"bogus", "HTTP", "ftp"} {
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), EndHeaders: true, EndStream: true,
			BlockFragment: fieldBlock(":method", "GET", ":scheme", scheme, ":authority", "h", ":path", "/")})
		if code := awaitReset(t, fr); code != http2.ErrCodeProtocol {
			t.Errorf("%s: %v", scheme, code)
		}
	}
}

// A body that is not as long as the head has said ends with the error that net/http has for it.
func TestHTTP2WrongLength(t *testing.T) {
	begun, failed := make(chan bool), make(chan error)
	f, _ := serveHTTP2(t, &Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- true
		_, err := io.ReadAll(r.Body)
		failed <- err
	})})
	_, fr := rawHTTP2(t, f)
	for i, tt := range []struct{ body, want string }{
		{"ab", "request declared a Content-Length of 3 but only wrote 2 bytes"},
		{"abcd", "sender tried to send more than declared Content-Length of 3 bytes"},
	} {
		id := uint32(2*i + 1)
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, BlockFragment: fieldBlock(
			":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/", "content-length", "3")})
		fr.WriteData(id, false, []byte(tt.body[:1]))
		<-begun
		fr.WriteData(id, true, []byte(tt.body[1:]))
		if code := awaitReset(t, fr); code != http2.ErrCodeProtocol {
			t.Errorf("%q: %v", tt.body, code)
		}
		if err := <-failed; err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v", tt.body, err)
		}
	}
}

// A connection that brings no request is closed after IdleTimeout, too.
func TestHTTP2IdleFromTheStart(t *testing.T) {
	f, _ := serveHTTP2(t, &Server{IdleTimeout: 10 * time.Millisecond, Handler: http.HandlerFunc(hello)})
	_, fr := rawHTTP2(t, f)
	for {
		frame, err := fr.ReadFrame()
		if err != nil { // the time was over before the preface had come
			_, fr = rawHTTP2(t, f)
			continue
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok {
			if g.ErrCode != http2.ErrCodeNo {
				t.Errorf("GOAWAY %v", g.ErrCode)
			}
			return
		}
	}
}
