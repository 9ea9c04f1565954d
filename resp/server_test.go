package resp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/resp/wire"
)

// store is what most tests serve: a few commands of a map.
func store() *Mux {
	var all sync.Map
	m := NewMux()
	m.Handle("SET", 3, func(w *Reply, c *Command) {
		all.Store(string(c.Args[1]), string(c.Args[2]))
		w.OK()
	}, "Set a key.")
	m.Handle("GET", 2, func(w *Reply, c *Command) {
		v, ok := all.Load(string(c.Args[1]))
		if !ok {
			w.Null()
			return
		}
		w.Text(v.(string))
	}, "Get a key.")
	m.Handle("ECHO", 2, func(w *Reply, c *Command) { w.Bulk(c.Args[1]) }, "Return the message.")
	m.Handle("SLEEP", 2, func(w *Reply, c *Command) {
		d, _ := time.ParseDuration(string(c.Args[1]))
		time.Sleep(d)
		w.OK()
	}, "Wait.")
	m.Handle("PANIC", 1, func(w *Reply, _ *Command) { w.Simple("half"); panic("as the test wants") }, "Fail.")
	m.Handle("CONFIG GET", -3, func(w *Reply, _ *Command) { w.Map(0) }, "Return parameters.")
	m.Handle("BIG", 2, func(w *Reply, c *Command) {
		n, _ := wire.ParseInt(c.Args[1])
		w.Text(strings.Repeat("x", int(n)))
	}, "Return so many bytes.")
	new(PubSub).Register(m)
	return m
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serve starts s on an engine of its own.
func serve(t testing.TB, s *Server) string {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 1, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	s.Engine = e
	if s.Handler == nil {
		s.Handler = store()
	}
	if s.Logger == nil {
		s.Logger = quiet()
	}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.Close() // nothing to say
		if err := e.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return ln.Addr().String()
}

// A peer is a connection that sends and reads bytes.
type peer struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, addr string) *peer {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	return &peer{t, nc, bufio.NewReaderSize(nc, 1<<16)}
}

func (p *peer) send(s string) *peer {
	p.t.Helper()
	if _, err := io.WriteString(p, s); err != nil {
		p.t.Errorf("send: %v", err)
	}
	return p
}

// want reads exactly this.
func (p *peer) want(s string) *peer {
	p.t.Helper()
	got := make([]byte, len(s))
	n, err := io.ReadFull(p.r, got)
	if string(got[:n]) != s {
		p.t.Errorf("got %.200q, %v; want %.200q", got[:n], err, s)
	}
	return p
}

// rest reads to the end.
func (p *peer) rest() string {
	all, _ := io.ReadAll(p.r)
	return string(all)
}

var dispatches = []Dispatch{DispatchAuto, DispatchPool, DispatchInline}

func eachDispatch(t *testing.T, f func(t *testing.T, d Dispatch)) {
	for _, d := range dispatches {
		t.Run(d.String(), func(t *testing.T) { f(t, d) })
	}
}

func TestServer(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		addr := serve(t, &Server{Dispatch: d})
		p := dial(t, addr)
		p.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n").want("+OK\r\n")
		p.send("*2\r\n$3\r\nget\r\n$1\r\nk\r\n").want("$1\r\nv\r\n")
		p.send("GET none\r\n").want("$-1\r\n")
		p.send("PING\r\nPING hi\r\nping a b\r\n").
			want("+PONG\r\n$2\r\nhi\r\n-ERR wrong number of arguments for 'ping' command\r\n")
		p.send("GET\r\n").want("-ERR wrong number of arguments for 'get' command\r\n")
		p.send("NOPE a b\r\n").want("-ERR unknown command 'NOPE', with args beginning with: 'a' 'b' \r\n")
		p.send("CONFIG\r\nCONFIG X\r\n").want("-ERR wrong number of arguments for 'config' command\r\n" +
			"-ERR unknown subcommand 'X'. Try CONFIG HELP.\r\n")
		p.send("CONFIG GET\r\n").want("-ERR wrong number of arguments for 'config|get' command\r\n")
		p.send("PANIC\r\nPING\r\n").want("-ERR internal error\r\n+PONG\r\n")
		p.send("GET none\r\nHELLO 3\r\nGET none\r\n").want("$-1\r\n%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n")
		p.want("$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n" +
			"$4\r\nmode\r\n$10\r\nstandalone\r\n" +
			"$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n_\r\n")
		p.send("RESET\r\nGET none\r\n").want("+RESET\r\n$-1\r\n")
		p.send("SET a 1\r\nQUIT\r\nSET a 2\r\n").want("+OK\r\n+OK\r\n")
		if rest := p.rest(); rest != "" {
			t.Errorf("after QUIT: %q", rest)
		}
		dial(t, addr).send("GET a\r\n").want("$1\r\n1\r\n")
		if got := dial(t, addr).send("POST / HTTP/1.1\r\nHost: x\r\n\r\nSET a 3\r\n").rest(); got != "" {
			t.Errorf("a browser was answered %q", got)
		}
	})
}

// A pipeline is answered in order, whatever its commands wait for.
func TestPipelineOrder(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		addr := serve(t, &Server{Dispatch: d})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				p := dial(t, addr)
				var in, want strings.Builder
				for j := range 400 {
					text := fmt.Sprintf("%d-%d", i, j)
					switch {
					case j%97 == 3 && d != DispatchInline:
						in.WriteString("SLEEP 2ms\r\n")
						want.WriteString("+OK\r\n")
					case j%3 == 0:
						in.WriteString("PING\r\n")
						want.WriteString("+PONG\r\n")
					default:
						in.Write(wire.AppendCommand(nil, "ECHO", text))
						want.Write(wire.AppendBulk(nil, text))
					}
				}
				for _, piece := range [][]byte{[]byte(in.String())[:in.Len()/2], []byte(in.String())[in.Len()/2:]} {
					p.send(string(piece))
				}
				p.want(want.String())
			})
		}
		wg.Wait()
	})
}

// Large values come in many pieces, and large answers leave in many.
func TestLarge(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		p := dial(t, serve(t, &Server{Dispatch: d}))
		text := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
		go p.send(string(wire.AppendCommand(nil, "ECHO", text)) + "PING\r\n")
		p.want(string(wire.AppendBulk(nil, text)) + "+PONG\r\n")
	})
}

// A peer that does not read its answers is not read, and its commands wait.
func TestSlowReader(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		s := &Server{Dispatch: d, WriteLimit: 64 << 10}
		p := dial(t, serve(t, s))
		const n, size = 2000, 20_000
		go p.send(strings.Repeat(fmt.Sprintf("BIG %d\r\n", size), n))
		time.Sleep(20 * time.Millisecond) // so that the server comes to its limit; the test does not depend on it
		want := string(wire.AppendBulk(nil, strings.Repeat("x", size)))
		for range n {
			if p.want(want); t.Failed() {
				return
			}
		}
		p.send("PING\r\n").want("+PONG\r\n")
	})
}

func TestAuth(t *testing.T) {
	s := &Server{Auth: func(_ *Conn, user, password string) bool { return user == "default" && password == "pw" }}
	addr := serve(t, s)
	p := dial(t, addr)
	p.send("GET k\r\nPING\r\nECHO x\r\n").want(strings.Repeat("-NOAUTH Authentication required.\r\n", 3))
	p.send("AUTH\r\nAUTH a b c\r\nAUTH x\r\n").want("-ERR wrong number of arguments for 'auth' command\r\n" +
		"-ERR syntax error\r\n-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	p.send("HELLO 3\r\n").want("-NOAUTH HELLO must be called")
	p.r.ReadString('\n')
	p.send("AUTH pw\r\nGET k\r\n").want("+OK\r\n$-1\r\n")
	p.send("RESET\r\nGET k\r\n").want("+RESET\r\n-NOAUTH Authentication required.\r\n")
	p.send("HELLO 3 AUTH default pw SETNAME me\r\n").want("%7\r\n")
	for in, want := range map[string]string{
		"*11\r\n":                       "-ERR Protocol error: unauthenticated multibulk length\r\n",
		"*2\r\n$3\r\nGET\r\n$16385\r\n": "-ERR Protocol error: unauthenticated bulk length\r\n",
	} {
		if got := dial(t, addr).send(in).rest(); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestClientCommand(t *testing.T) {
	p := dial(t, serve(t, &Server{}))
	p.send("CLIENT ID\r\nCLIENT GETNAME\r\nCLIENT SETNAME me\r\nCLIENT GETNAME\r\n").
		want(":1\r\n$-1\r\n+OK\r\n$2\r\nme\r\n")
	p.send("CLIENT\r\nCLIENT X\r\nCLIENT ID x\r\n").want("-ERR wrong number of arguments for 'client' command\r\n" +
		"-ERR unknown subcommand 'X'. Try CLIENT HELP.\r\n-ERR wrong number of arguments for 'client|id' command\r\n")
	p.send("CLIENT SETINFO LIB-NAME x\r\nCLIENT SETINFO NOPE x\r\n").want("+OK\r\n-ERR Unrecognized option 'NOPE'\r\n")
	p.send("CLIENT REPLY SKIP\r\nECHO a\r\nECHO b\r\n").want("$1\r\nb\r\n")
	p.send("CLIENT REPLY OFF\r\nECHO a\r\nPING\r\nCLIENT REPLY ON\r\n").want("+OK\r\n")
	p.send("PING\r\n").want("+PONG\r\n")
}

func TestPubSubServer(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		addr := serve(t, &Server{Dispatch: d})
		p, q := dial(t, addr), dial(t, addr)
		p.send("SUBSCRIBE a b\r\n").
			want("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n")
		p.send("PSUBSCRIBE a*\r\n").want("*3\r\n$10\r\npsubscribe\r\n$2\r\na*\r\n:3\r\n")
		p.send("GET k\r\nPING\r\nPING x\r\n").
			want("-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING" +
				" / QUIT / RESET are allowed in this context\r\n" +
				"*2\r\n$4\r\npong\r\n$0\r\n\r\n*2\r\n$4\r\npong\r\n$1\r\nx\r\n")
		q.send("HELLO 3\r\n").want("%7\r\n")
		for range 14 {
			q.r.ReadString('\n')
		}
		q.r.Discard(q.r.Buffered())
		q.send("PUBLISH a hi\r\n").want(":2\r\n")
		p.want("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n" +
			"*4\r\n$8\r\npmessage\r\n$2\r\na*\r\n$1\r\na\r\n$2\r\nhi\r\n")
		q.send("SUBSCRIBE a\r\nPUBSUB NUMSUB a\r\n").
			want(">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*2\r\n$1\r\na\r\n:2\r\n")
		p.send("UNSUBSCRIBE a\r\nUNSUBSCRIBE\r\nPUNSUBSCRIBE\r\nUNSUBSCRIBE\r\n").
			want("*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:2\r\n" +
				"*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:1\r\n*3\r\n$12\r\npunsubscribe\r\n$2\r\na*\r\n:0\r\n" +
				"*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n")
		p.send("GET k\r\n").want("$-1\r\n")
		p.send("SUBSCRIBE z\r\nRESET\r\nGET k\r\n").want("*3\r\n$9\r\nsubscribe\r\n$1\r\nz\r\n:1\r\n+RESET\r\n$-1\r\n")
		q.send("PUBLISH z x\r\n").want(":0\r\n")
	})
}

// What has come when Shutdown is called is answered.
func TestShutdownAnswers(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		begun := make(chan struct{}, 1)
		go1 := make(chan struct{})
		s := &Server{Dispatch: d, Handler: HandlerFunc(func(w *Reply, c *Command) {
			if c.Is(0, "WAIT") {
				begun <- struct{}{}
				<-go1
			}
			w.OK()
		})}
		if d == DispatchInline {
			close(go1) // a handler of this kind does not wait
		}
		p := dial(t, serve(t, s))
		idle := dial(t, strings.Clone(p.RemoteAddr().String())).send("X\r\n").want("+OK\r\n")
		p.send("WAIT\r\nX\r\n")
		<-begun
		done := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			done <- s.Shutdown(ctx)
		}()
		if got := idle.rest(); got != "" {
			t.Errorf("an idle connection got %q", got)
		}
		if d != DispatchInline {
			if n := s.Conns(); n < 1 || n > 2 { // the idle one may not have ended on its loop
				t.Errorf("%d connections while Shutdown waits", n)
			}
			close(go1)
		}
		if got := p.rest(); got != "+OK\r\n+OK\r\n" {
			t.Errorf("the busy one got %q", got)
		}
		p.Close()
		idle.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := s.Conns(); n != 0 {
			t.Errorf("%d connections behind Shutdown", n)
		}
		if _, err := s.Listen("tcp", "127.0.0.1:0"); err != ErrServerClosed {
			t.Error(err)
		}
	})
}

// Malformed input is answered and the connection closed, whatever comes before it.
func TestMalformed(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		addr := serve(t, &Server{Dispatch: d})
		p := dial(t, addr)
		got := p.send("PING\r\n*1\r\n$4\r\nPING\r\n*1\r\n+4\r\nPING\r\n").rest()
		if want := "+PONG\r\n+PONG\r\n-ERR Protocol error: expected '$', got '+'\r\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestPushPolicies(t *testing.T) {
	conns := make(chan *Conn, 1)
	s := &Server{WriteLimit: 32 << 10, Overflow: OverflowFail, PushTimeout: 50 * time.Millisecond,
		OnOpen: func(c *Conn) { conns <- c }}
	addr := serve(t, s)
	message := wire.AppendPush(nil, 1, RESP2)
	message = wire.AppendBulk(message, bytes.Repeat([]byte("m"), 10_000))
	fill := func(policy Overflow) (c *Conn, p *peer, err error) {
		p = dial(t, addr)
		c = <-conns
		if e := c.SetOverflow(policy, 0); e != nil {
			t.Fatal(e)
		}
		for range 2000 {
			if err = c.Push(message); err != nil {
				break
			}
		}
		return c, p, err
	}
	for policy, want := range map[Overflow]string{OverflowFail: "queue is full", OverflowBlock: "made no room for 50ms",
		OverflowClose: "closing or closed", OverflowDropNewest: "", OverflowDropOldest: "", OverflowLatest: ""} {
		c, p, err := fill(policy)
		if want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", policy, err, want)
		}
		if drops := policy.Queues() || policy == OverflowDropNewest; drops != (c.Dropped() > 0) {
			t.Errorf("%v: %d dropped", policy, c.Dropped())
		}
		if policy != OverflowClose {
			go func() { p.send("PING\r\n") }()
			for {
				line, err := p.r.ReadString('\n')
				if err != nil {
					t.Errorf("%v: %v", policy, err)
				}
				if err != nil || line == "+PONG\r\n" {
					break
				}
			}
		}
		p.Close()
	}
}

func TestIdleTimeout(t *testing.T) {
	p := dial(t, serve(t, &Server{IdleTimeout: time.Second}))
	p.send("PING\r\n").want("+PONG\r\n")
	if _, err := p.r.ReadByte(); err == nil {
		t.Error("it was not closed")
	}
}

// A connection must fit the allocator's size class of 48 bytes.
func TestConnIsSmall(t *testing.T) {
	if size := reflect.TypeFor[Conn]().Size(); size > 48 {
		t.Errorf("a Conn has %d bytes, at most 48 are allowed", size)
	}
}

// value reads one reply.
func (p *peer) value() Value {
	p.t.Helper()
	var kept []byte
	for {
		line, err := p.r.ReadBytes('\n')
		kept = append(kept, line...)
		n, v, bad := wire.ParseValue(kept, Limits{})
		if err != nil || bad != nil {
			p.t.Fatalf("reading a reply: %v, %v", err, bad)
		}
		if n > 0 {
			return v
		}
	}
}

// While a transaction is open, the commands about the connection come to the Handler, which keeps
// them and runs them later. RESET and QUIT run at once, and RESET ends the transaction.
func TestTransactionsKeepTheServersCommands(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		var kept [][][]byte
		h := HandlerFunc(func(w *Reply, c *Command) {
			own, good := w.CheckOwn(c)
			switch {
			case own && good:
				var args [][]byte
				for _, a := range c.Args {
					args = append(args, bytes.Clone(a))
				}
				kept = append(kept, args)
				w.Simple("QUEUED")
			case own:
			case c.Is(0, "EXEC"):
				c.Conn.SetTransaction(false)
				w.Array(len(kept) + 1)
				for _, args := range kept {
					w.ServeOwn(&Command{args, c.Conn})
				}
				w.Bulk(c.Args[0])
				kept = nil
			default:
				c.Conn.SetTransaction(true)
				w.OK()
			}
		})
		p := dial(t, serve(t, &Server{Handler: h, Dispatch: d}))
		p.send("PING\r\nBEGIN\r\nPING\r\nCLIENT SETNAME me\r\nclient getname\r\n")
		p.send("AUTH\r\nCLIENT NOPE\r\nEXEC\r\nPING x\r\n")
		p.want("+PONG\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n-ERR wrong number of arguments for " +
			"'auth' command\r\n-ERR unknown subcommand 'NOPE'. Try CLIENT HELP.\r\n" +
			"*4\r\n+PONG\r\n+OK\r\n$2\r\nme\r\n$4\r\nEXEC\r\n$1\r\nx\r\n")
		p.send("BEGIN\r\nRESET\r\nPING\r\nBEGIN\r\nQUIT\r\n")
		p.want("+OK\r\n+RESET\r\n+PONG\r\n+OK\r\n+OK\r\n")
	})
}
