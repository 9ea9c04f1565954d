package mux

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/h2"
)

// listOf is SETTINGS_MAX_HEADER_LIST_SIZE.
func listOf(n int64) h2.Setting { return h2.Setting{ID: h2.MaxHeaderListSize, Value: uint32(n)} }

// Section 10.5.1: a client sends no head and no trailers beyond what the server accepts, because a
// server may end the connection for them. The request alone fails; the others go on.
func TestClientObeysTheHeaderList(t *testing.T) {
	r := newRig(t, Config{Client: true})
	if n := r.conn.PeerHeaderList(); n != math.MaxUint32 {
		t.Errorf("before SETTINGS the list is %d", n)
	}
	head := func(extra int) []byte {
		return pairs(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/",
			"x", strings.Repeat("v", extra))
	}
	limit := h2.ListSize(head(500))
	r.greet(listOf(limit))
	if n := r.conn.PeerHeaderList(); n != limit {
		t.Errorf("the list is %d, want %d", n, limit)
	}
	send := func(head []byte, last bool) (s *testStream) {
		s = &testStream{r: r}
		s.in.Reset(1<<16, true)
		s.Init(s)
		r.onLoop(func() {
			if err := r.conn.Open(&s.Stream); err != nil {
				t.Fatal(err)
			}
			if err := s.Put(head, nil, last); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	s := send(head(501), true)
	r.wantNothing()
	r.wantLog("0 ended CANCEL, error true")
	if err := s.Put(nil, nil, true); !errors.Is(err, ErrHeaderList) {
		t.Errorf("the stream has ended by %v", err)
	}
	s = send(head(500), false)
	r.want("HEADERS 1 ")
	s.Put(nil, []byte("body"), false)
	s.End(pairs("x", strings.Repeat("v", 1000)))
	r.want(`DATA 1 "body"`)
	r.want("RST_STREAM 1 CANCEL")
	r.wantLog("1 ended CANCEL, error true")
	if err := s.Put(nil, nil, true); !errors.Is(err, ErrHeaderList) {
		t.Errorf("the stream has ended by %v", err)
	}
	send(head(1), true)
	r.want("HEADERS 3 ")
	r.write(h2.AppendSettings(nil, listOf(limit+1)))
	r.want("SETTINGS ACK")
	send(head(501), true)
	r.want("HEADERS 5 ")
	r.wantNothing()
	if n := r.conn.Free(); n != usualStreams-2 {
		t.Errorf("%d streams are free", n)
	}
}

// A server resets the stream of an answer whose head, interim head or trailers are beyond what the
// client accepts, and says so in its log.
func TestServerObeysTheHeaderList(t *testing.T) {
	const limit = 400
	large := strings.Repeat("v", limit)
	for name, answer := range map[string]func(s *testStream){
		"head":    func(s *testStream) { s.Put(pairs(":status", "200", "x", large), []byte("body"), true) },
		"interim": func(s *testStream) { s.Put(pairs(":status", "103", "x", large), nil, false); reply(s, "") },
		"trailers behind data": func(s *testStream) {
			s.Put(pairs(":status", "200"), []byte("body"), false)
			s.End(pairs("x", large))
		},
		"trailers alone": func(s *testStream) {
			s.Put(pairs(":status", "200"), nil, false)
			s.End(pairs("x", large))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, lines := logged(Config{})
			r := newRig(t, cfg)
			r.greet(listOf(limit))
			r.write(headers(1, getBlock, true), headers(3, getBlock, true))
			r.settle()
			answer(r.conn.streams[1])
			all := r.sent()
			if len(all) == 0 || all[len(all)-1] != "RST_STREAM 1 INTERNAL_ERROR" ||
				strings.Contains(strings.Join(all, "\n"), "x=") {
				t.Errorf("our end has sent %q", all)
			}
			err := r.conn.streams[1].Put(nil, nil, true)
			if err == nil || !strings.Contains(err.Error(), "MAX_HEADER_LIST") {
				t.Errorf("the stream has ended by %v", err)
			}
			const want = "stream 1: INTERNAL_ERROR: the fields of a response"
			if len(*lines) != 1 || !strings.Contains((*lines)[0], want) {
				t.Errorf("logged %q", *lines)
			}
			reply(r.conn.streams[3], "")
			r.want("HEADERS 3 :status=200 END")
		})
	}
}

// Lists up to the limit are sent, whatever their number of fields.
func TestHeaderListsUpToTheLimit(t *testing.T) {
	for _, n := range []int{1, 2, 50} {
		fields := []string{":status", "200"}
		for i := range n {
			fields = append(fields, fmt.Sprintf("f%d", i), "v")
		}
		head := pairs(fields...)
		for by := range int64(2) {
			r := newRig(t, Config{})
			r.greet(listOf(h2.ListSize(head) - by))
			r.write(headers(1, getBlock, true))
			r.settle()
			r.conn.streams[1].Put(head, nil, true)
			r.want([]string{"HEADERS 1 ", "RST_STREAM 1 INTERNAL_ERROR"}[by])
			r.wantNothing()
		}
	}
}
