package mux

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/h2"
)

// A wrongBody is not as long as its Content-Length (section 8.1.1).
var wrongBodies = []struct {
	name   string
	length string
	send   func(r *rig)
	got    string // that its reader gets
	words  string // of the error
	short  bool
}{
	{"the last DATA is short", "5", func(r *rig) { r.write(data(1, "ab", false), data(1, "c", true)) },
		"abc", "declared a Content-Length of 5 but only wrote 3 bytes", true},
	{"all of it is short", "5", func(r *rig) { r.write(data(1, "abc", true)) },
		"abc", "declared a Content-Length of 5 but only wrote 3 bytes", true},
	{"an empty end is short", "5", func(r *rig) { r.write(data(1, "abc", false), data(1, "", true)) },
		"abc", "declared a Content-Length of 5 but only wrote 3 bytes", true},
	{"trailers come too early", "5", func(r *rig) { r.write(data(1, "abc", false), headers(1, block("a", "b"), true)) },
		"abc", "declared a Content-Length of 5 but only wrote 3 bytes", true},
	{"the last DATA is long", "2", func(r *rig) { r.write(data(1, "a", false), data(1, "bc", true)) },
		"ab", "more than declared Content-Length of 2 bytes", false},
	{"a DATA is long", "2", func(r *rig) { r.write(data(1, "abc", false), data(1, "d", true)) },
		"ab", "more than declared Content-Length of 2 bytes", false},
	{"more comes behind the whole body", "2", func(r *rig) { r.write(data(1, "ab", false), data(1, "c", false)) },
		"ab", "more than declared Content-Length of 2 bytes", false},
	{"a byte where there is none", "0", func(r *rig) { r.write(data(1, "a", false)) },
		"", "more than declared Content-Length of 0 bytes", false},
}

// The reader of a body of a wrong length gets what belongs to it before the error. A short one ends
// with io.ErrUnexpectedEOF; the text names what is short. The connection goes on.
func TestBodiesOfAWrongLength(t *testing.T) {
	for _, tt := range wrongBodies {
		for _, client := range []bool{false, true} {
			role := map[bool]string{false: "server", true: "client"}[client]
			t.Run(tt.name+", at a "+role, func(t *testing.T) {
				cfg, lines := logged(Config{Client: client})
				r := newRig(t, cfg)
				r.greet()
				var s *testStream
				if client {
					s = r.request(true)
					r.want("HEADERS 1 ")
					r.write(headers(1, block(":status", "200", "content-length", tt.length), false))
				} else {
					r.write(headers(1, get("content-length", tt.length), false))
					r.settle()
					s = r.conn.streams[1]
				}
				tt.send(r)
				r.want("RST_STREAM 1 PROTOCOL_ERROR")
				r.wantNothing()
				if string(s.got) != tt.got || s.in.Complete() {
					t.Errorf("the body is %q, complete: %v; want %q", s.got, s.in.Complete(), tt.got)
				}
				if s.err == nil || !strings.Contains(s.err.Error(), tt.words) {
					t.Fatalf("the stream has ended by %v, want %q", s.err, tt.words)
				}
				if errors.Is(s.err, io.ErrUnexpectedEOF) != tt.short {
					t.Errorf("%v is io.ErrUnexpectedEOF: %v", s.err, !tt.short)
				}
				other := map[bool]string{false: "respon", true: "request"}[client]
				if strings.Contains(s.err.Error(), other) {
					t.Errorf("a %s's error: %v", role, s.err)
				}
				if len(*lines) != 1 || !strings.Contains((*lines)[0], tt.words) {
					t.Errorf("logged %q", *lines)
				}
			})
		}
	}
}

// A head of a response that ends the stream, although it promises a body, is delivered; its body
// has no byte.
func TestResponseWithoutItsBody(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	s := r.request(true)
	r.want("HEADERS 1 ")
	r.write(headers(1, block(":status", "200", "content-length", "3"), true))
	r.want("RST_STREAM 1 PROTOCOL_ERROR")
	r.wantLog("1 head 200  last false", "1 ended PROTOCOL_ERROR, error true")
	if !errors.Is(s.err, io.ErrUnexpectedEOF) || !strings.Contains(s.err.Error(), "response declared") {
		t.Errorf("the stream has ended by %v", s.err)
	}
	r.wantNothing()
}

// An owner that wants no such response resets the stream once.
func TestResponseWithoutItsBodyIsRefused(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	r.code = h2.Cancel
	r.request(true)
	r.want("HEADERS 1 ")
	r.write(headers(1, block(":status", "200", "content-length", "3"), true))
	r.want("RST_STREAM 1 CANCEL")
	r.wantNothing()
	r.wantLog("1 head 200  last false", "1 ended CANCEL, error true")
}
