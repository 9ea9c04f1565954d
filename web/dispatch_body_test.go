package web

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/myriad-go/myriad"
)

// tellWhereRead is tellWhere with the whole body behind, or what was wrong with it.
func tellWhereRead(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		fmt.Fprintf(w, "%s %q and an error", where(w), body)
		return
	}
	fmt.Fprintf(w, "%s %q", where(w), body)
}

// A request whose body comes with its head is complete: it runs on the loop, its handler waits for
// nothing, and what follows it is the next request.
func TestInlineWithBody(t *testing.T) {
	f := oneLoop(t, DispatchInline, tellWhereRead)
	const head = "POST / HTTP/1.1\r\nHost: h\r\n"
	for _, c := range []struct{ name, sent, then, want string }{
		{"whole", head + "Content-Length: 5\r\n\r\nhello", "", `loop "hello"`},
		{"chunked", head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "", `loop "hello"`},
		{"with trailer", head + "Transfer-Encoding: chunked\r\nTrailer: T\r\n\r\n5\r\nhello\r\n0\r\nT: v\r\n\r\n", "",
			`loop "hello"`},
		{"empty", head + "Content-Length: 0\r\n\r\n", "", `loop ""`},
		{"expected", head + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello", "", `loop "hello"`},
		{"half", head + "Content-Length: 10\r\n\r\nhello", "world", `pool "helloworld"`},
		{"half a chunk", head + "Transfer-Encoding: chunked\r\n\r\na\r\nhello", "world\r\n0\r\n\r\n",
			`pool "helloworld"`},
		{"without the end", head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", "\r\n", `pool "hello"`},
		{"broken", head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n", "", `pool "hello" and an error`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := ask(t, f)
			broken := strings.HasSuffix(c.want, "error")
			sent, want := c.sent, []string{c.want}
			if c.then == "" && !broken {
				sent, want = sent+sent, append(want, c.want) // one behind the other
			}
			io.WriteString(a.c, sent)
			if c.then != "" {
				// most likely a read of its own; together with the head it is complete
				time.Sleep(20 * time.Millisecond)
				io.WriteString(a.c, c.then)
			}
			for _, want := range want {
				if c.name == "expected" && a.answer() != "" { // net/http too says 100 Continue
					t.Error("it was not told to continue")
				}
				got := a.answer()
				if late, body, _ := strings.Cut(got, " "); c.then != "" && late == "loop" {
					got = "pool " + body // both have come in one read after all
				}
				if got != want {
					t.Errorf("answered %q, want %q", got, want)
				}
			}
			if broken {
				if n, err := a.r.ReadByte(); err == nil {
					t.Errorf("%q follows a body that cannot be understood", n)
				}
			}
		})
	}
}

// Over HTTP/2 a request is dispatched when all that came with its head has been read, too, and one
// whose stream has been reset by then is not.
func TestInlineWithBodyOverHTTP2(t *testing.T) {
	f := serveOn(t, &Server{Dispatch: DispatchInline, Protocols: plainHTTP2(),
		Handler: http.HandlerFunc(tellWhereRead)}, myriad.Config{Loops: 1})
	c, fr := rawHTTP2(t, f)
	var batch bytes.Buffer
	write := http2.NewFramer(&batch, nil)
	openStream(write, 1, false)
	openStream(write, 3, true)
	write.WriteData(1, true, []byte("hello"))
	openStream(write, 5, false)
	write.WriteData(5, false, []byte("hel"))
	openStream(write, 7, false)
	write.WriteRSTStream(7, http2.ErrCodeCancel)
	c.Write(batch.Bytes())
	got := map[uint32]string{}
	for len(got) < 2 {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		if d, ok := frame.(*http2.DataFrame); ok {
			got[d.StreamID] = string(d.Data())
		}
	}
	if got[1] != `loop "hello"` || got[3] != `loop ""` {
		t.Errorf("got %v", got)
	}
	fr.WriteData(5, true, []byte("lo"))
	for got[5] == "" {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		if d, ok := frame.(*http2.DataFrame); ok {
			got[d.StreamID] = string(d.Data())
		}
	}
	if got[5] != `pool "hello"` || len(got) != 3 {
		t.Errorf("got %v", got)
	}
}
