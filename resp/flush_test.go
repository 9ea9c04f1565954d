package resp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/resp/wire"
)

// flusher has commands that flush their replies.
func flusher() *Mux {
	m := NewMux()
	half := func(w *Reply) {
		w.Array(2)
		w.Text("half")
		w.Flush()
	}
	m.Handle("FLUSH", 1, func(w *Reply, _ *Command) { half(w); w.Text("all") }, "Answer in two pieces.")
	m.Handle("PANIC", 1, func(w *Reply, _ *Command) { w.Flush(); w.Text("half"); panic("as the test wants") },
		"Flush what came before, and fail.")
	m.Handle("HALF", 1, func(w *Reply, _ *Command) { half(w); panic("as the test wants") },
		"Answer half, and fail.")
	m.Handle("WHOLE", 1, func(w *Reply, _ *Command) { w.OK(); w.Flush(); panic("as the test wants") },
		"Answer all, and fail.")
	m.Handle("LONG", 1, func(w *Reply, _ *Command) { w.Text(strings.Repeat("x", 2*flushAt)) }, "Answer much.")
	m.Handle("NEWS", 1, func(w *Reply, _ *Command) { w.Push(1); w.Text("news"); w.Flush() }, "Push.")
	return m
}

// There is one reply to each command, in whatever pieces a handler sends it, and whether it panics
// or not. After a panic behind a piece the connection ends: the peer cannot be told.
func TestFlushedReplies(t *testing.T) {
	const all, failed = "*2\r\n$4\r\nhalf\r\n$3\r\nall\r\n", "-ERR internal error\r\n"
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		addr := serve(t, &Server{Dispatch: d, Handler: flusher()})
		for _, tt := range []struct{ in, want string }{
			{"PING FLUSH PING", "+PONG\r\n" + all + "+PONG\r\n"},
			{"PANIC PING", failed + "+PONG\r\n"},
			{"PING PANIC PING", "+PONG\r\n" + failed + "+PONG\r\n"},
			{"HALF PING", "*2\r\n$4\r\nhalf\r\n"},
			{"PING HALF PING", "+PONG\r\n*2\r\n$4\r\nhalf\r\n"},
			{"PING WHOLE PING", "+PONG\r\n+OK\r\n"},
			{"SKIP FLUSH PING", "+PONG\r\n"},
			{"PING SKIP FLUSH FLUSH", "+PONG\r\n" + all},
			{"SKIP PANIC PING", "+PONG\r\n"},
			{"SKIP HALF PING", "+PONG\r\n"},
			{"SKIP LONG PING", "+PONG\r\n"},
			{"OFF FLUSH HALF PANIC PING ON FLUSH", "+OK\r\n" + all},
			{"OFF NEWS PING ON", "*1\r\n$4\r\nnews\r\n+OK\r\n"},
			{"SKIP NEWS NEWS", "*1\r\n$4\r\nnews\r\n*1\r\n$4\r\nnews\r\n"},
		} {
			var in []byte
			for word := range strings.FieldsSeq(tt.in) {
				switch word {
				case "SKIP", "OFF", "ON":
					in = wire.AppendCommand(in, "CLIENT", "REPLY", word)
				default:
					in = wire.AppendCommand(in, word)
				}
			}
			if got := answerTo(t, "tcp", addr, string(in)); got != tt.want {
				t.Errorf("%s: got %q, want %q", tt.in, got, tt.want)
			}
		}
	})
}

// A handler that flushes runs no more often than others for a peer that does not read.
func TestFlushHeedsWriteLimit(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		w := sim.New(1, sim.Calm())
		e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		const size = 512 << 10 // more than WriteLimit
		ran := 0
		m := NewMux()
		m.Handle("BIG", 1, func(w *Reply, _ *Command) {
			ran++
			w.Text(strings.Repeat("x", size))
			w.Flush()
		}, "Answer much.")
		s := &Server{Engine: e, Dispatch: d, Handler: m, Logger: quiet()}
		ln, err := s.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		const sent = 40
		p := w.Dial(ln.Addr())
		p.StopReading()
		p.Write([]byte(strings.Repeat("BIG\r\n", sent) + "PING\r\n"))
		w.RunFor(time.Minute)
		if ran > 2 { // an empty queue takes any reply
			t.Errorf("%d commands have run, each of which answers more than WriteLimit", ran)
		}
		p.CloseWrite()
		p.Resume()
		w.RunFor(time.Minute)
		got := p.TakeReceived()
		if ran != sent || len(got) != sent*(size+len("$524288\r\n\r\n"))+len("+PONG\r\n") ||
			!strings.HasSuffix(string(got), "x\r\n+PONG\r\n") {
			t.Errorf("%d commands have run, %d bytes have come", ran, len(got))
		}
		if err := errors.Join(s.Shutdown(context.Background()), e.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
		w.Run()
		w.Check(t)
	})
}
