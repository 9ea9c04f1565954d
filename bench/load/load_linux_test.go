package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/myriad-go/myriad/bench/proc"
)

var (
	ping = []byte("ping")
	pong = []byte("pong")
)

// server hands each connection to serve, and ends them all with the test.
func server(t *testing.T, serve func(c net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	var mu sync.Mutex
	conns := map[net.Conn]struct{}{}
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[c] = struct{}{}
			mu.Unlock()
			serving.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for c := range conns {
			c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return ln.Addr().String()
}

// each calls f for every ping until the connection ends or f says no.
func each(f func(c net.Conn) bool) func(c net.Conn) {
	return func(c net.Conn) {
		for p := make([]byte, len(ping)); ; {
			if _, err := io.ReadFull(c, p); err != nil || !bytes.Equal(p, ping) || !f(c) {
				return
			}
		}
	}
}

func answers(c net.Conn) bool {
	_, err := c.Write(pong)
	return err == nil
}

func table(conns, requests int) Spec {
	return Spec{Conns: conns, Server: os.Getpid(), Talk: Talk{
		Request: bytes.Repeat(ping, requests), Requests: requests, Reply: Reply{Size: len(pong), Prefix: pong},
	}}
}

func soon(mode Mode, d time.Duration) Order {
	begin := proc.Monotonic() + int64(20*time.Millisecond)
	return Order{Mode: mode, Start: begin, End: begin + int64(d)}
}

// opened is a driver with its connections, until the test ends.
func opened(t *testing.T, addr string, spec Spec) *driver {
	t.Helper()
	spec.Addr = addr
	d, err := open(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

// enough runs orders, each twice as long as the one before, until one has had that many replies and
// at least half of its time. Other load of the machine may consume a short window.
func (d *driver) enough(mode Mode, length time.Duration, replies int64) Result {
	for {
		r := d.obey(soon(mode, length))
		if r.Err != "" || r.Replies >= replies && r.Elapsed >= length/2 || length > 5*time.Second {
			return r
		}
		length *= 2
	}
}

// show is a result without its histogram.
func show(r Result) Result {
	r.Latency = nil
	return r
}

func latency(t *testing.T, r Result) *hdrhistogram.Histogram {
	t.Helper()
	h, err := hdrhistogram.Decode(r.Latency)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Every request is answered once, and both sides agree on the counts: the server has received the
// counted requests, and those before and after the window.
func TestClosed(t *testing.T) {
	for _, requests := range []int{1, 16} {
		var served atomic.Int64
		addr := server(t, each(func(c net.Conn) bool {
			served.Add(1)
			return answers(c)
		}))
		r := opened(t, addr, table(20, requests)).enough(Closed, 200*time.Millisecond, 20)
		if r.Err != "" || r.Replies < 20 || r.Replies > served.Load() || latency(t, r).TotalCount() != r.Replies {
			t.Errorf("%d at once: %+v, the server has served %d", requests, show(r), served.Load())
		}
		if r.Server.Total <= 0 || r.Driver <= 0 || r.Elapsed < 100*time.Millisecond {
			t.Errorf("%d at once: %+v", requests, show(r))
		}
	}
}

// Replies may come in any pieces.
func TestClosedPieces(t *testing.T) {
	addr := server(t, each(func(c net.Conn) bool {
		_ = c.(*net.TCPConn).SetNoDelay(true)
		for i := range pong {
			if _, err := c.Write(pong[i : i+1]); err != nil {
				return false
			}
		}
		return true
	}))
	if r := opened(t, addr, table(3, 4)).enough(Closed, 100*time.Millisecond, 12); r.Err != "" || r.Replies < 12 {
		t.Errorf("%+v", show(r))
	}
}

// A stall is felt by every request that was due meanwhile, though only as many could be sent as
// there are connections. Without that (coordinated omission) a stall of 300 ms would show in two
// latencies out of hundreds.
func TestOpenOmitsNothing(t *testing.T) {
	t.Parallel()
	const stall, rate = 300 * time.Millisecond, 1000
	var stalled sync.Once
	began := time.Now()
	var mu sync.Mutex // what stalls is the whole server
	addr := server(t, each(func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(began) > 150*time.Millisecond {
			stalled.Do(func() { time.Sleep(stall) })
		}
		return answers(c)
	}))
	d := opened(t, addr, table(2, 1))
	o := soon(Open, 600*time.Millisecond)
	o.Rate = rate
	r := d.obey(o)
	h := latency(t, r)
	// those that a slow machine leaves unanswered are among them
	if r.Err != "" || h.TotalCount() < 599 || h.TotalCount() > 601 {
		t.Fatalf("%+v, %d latencies of 600 requests", show(r), h.TotalCount())
	}
	waited := 0 // for more than half of the stall: those that were due in its first half
	for _, bar := range h.Distribution() {
		if bar.From > int64(stall/2) {
			waited += int(bar.Count)
		}
	}
	if waited < rate*int(stall/2/time.Millisecond)/1000-5 {
		t.Errorf("%d requests waited longer than %v, when %v passed without an answer at %d per second", waited,
			stall/2, stall, rate)
	}
}

// Requests that a server never answers are in the figures too.
func TestOpenUnanswered(t *testing.T) {
	t.Parallel()
	addr := server(t, each(func(net.Conn) bool { return true }))
	for _, late := range []time.Duration{0, time.Second} { // the order comes so much after its start
		d := opened(t, addr, table(5, 1))
		o := soon(Open, 100*time.Millisecond)
		o.Start, o.End, o.Rate = o.Start-int64(late), o.End-int64(late), 1000
		r := d.obey(o)
		if h := latency(t, r); r.Err != "" || r.Unanswered != 100 || h.Min() < int64(time.Second) {
			t.Errorf("%v late: %+v, the least latency is %v", late, show(r), time.Duration(h.Min()))
		}
	}
}

func TestBroadcast(t *testing.T) {
	var mu sync.Mutex
	var members []net.Conn
	addr := server(t, func(c net.Conn) {
		mu.Lock()
		members = append(members, c)
		mu.Unlock()
		each(func(net.Conn) bool {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range members {
				answers(m)
			}
			return true
		})(c)
	})
	d := opened(t, addr, table(30, 1))
	for joined := 0; joined < 30; { // a connection stands before its server knows
		mu.Lock()
		joined = len(members)
		mu.Unlock()
	}
	r := d.enough(Broadcast, 100*time.Millisecond, 30)
	if n := latency(t, r).TotalCount(); r.Err != "" || n < 1 || r.Replies < 30*(n-1) {
		t.Errorf("%+v, %d broadcasts", show(r), n)
	}
}

// Each connection is used once for each Exchange, also when there are more than are opened at a
// time.
func TestExchange(t *testing.T) {
	var served atomic.Int64
	addr := server(t, each(func(c net.Conn) bool {
		served.Add(1)
		return answers(c)
	}))
	spec := table(wave+50, 1)
	spec.Addr = addr
	d, err := open(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	for round := range int64(2) {
		r := d.obey(Order{Mode: Exchange})
		if r.Err != "" || r.Replies != wave+50 || served.Load() != (round+1)*(wave+50) {
			t.Errorf("round %d: %+v, the server has served %d", round, show(r), served.Load())
		}
	}
}

// Whatever a server does wrong ends the run.
func TestFaults(t *testing.T) {
	var n atomic.Int64
	late := func(f func(c net.Conn) bool) func(net.Conn) {
		n.Store(0)
		return each(func(c net.Conn) bool {
			if n.Add(1) > 100 {
				return f(c)
			}
			return answers(c)
		})
	}
	for want, serve := range map[string]func(c net.Conn) bool{
		`a reply of "pang"`: func(c net.Conn) bool { _, err := c.Write([]byte("pang")); return err == nil },
		"an unsolicited reply": func(c net.Conn) bool {
			_,
				err := c.Write([]byte("pongpong"))
			return err == nil
		},
		"the server closed": func(net.Conn) bool { return false },
		"reading a reply":   func(c net.Conn) bool { _ = c.(*net.TCPConn).SetLinger(0); return false },
	} {
		r := opened(t, server(t, late(serve)), table(1, 1)).enough(Closed, time.Second, math.MaxInt64)
		if !strings.Contains(r.Err, want) || r.Replies != 0 {
			t.Errorf("%q became %+v", want, show(r))
		}
	}
}

func TestHello(t *testing.T) {
	for _, tt := range []struct{ answer, err string }{
		{"HTTP/1.1 101 Welcome\r\nA: b\r\n\r\n", ""},
		{"HTTP/1.1 404 No\r\n\r\n", "hello was answered by"},
		{"HTTP/1.1 101 Welcome\r\n\r\nmore", "speaks before"},
		{strings.Repeat("x", 9000), "hello was answered by"},
		{"", "closed the connection instead"},
	} {
		addr := server(t, func(c net.Conn) {
			if _, err := io.ReadFull(c, make([]byte, 5)); err != nil || tt.answer == "" {
				return
			}
			_, _ = io.WriteString(c, tt.answer)
			_, _ = io.Copy(io.Discard, c)
		})
		spec := table(2, 1)
		spec.Addr, spec.Talk.Hello, spec.Talk.Welcome = addr, []byte("hello"), []byte("HTTP/1.1 101 ")
		d, err := open(spec)
		if tt.err == "" && err != nil || tt.err != "" && !strings.Contains(fmt.Sprint(err), tt.err) {
			t.Errorf("%.40q: %v, not %q", tt.answer, err, tt.err)
		}
		d.close()
	}
}

// Without a Hello, connections begin with Join, and stand after what the server says then.
func TestJoinWithoutHello(t *testing.T) {
	for _, tt := range []struct{ answer, err string }{
		{"joined\r\n", ""}, {"not yet, joined\r\n", ""}, {strings.Repeat("x", 9000), "does not end with"},
	} {
		addr := server(t, func(c net.Conn) {
			if _, err := io.ReadFull(c, make([]byte, len("join"))); err != nil {
				return
			}
			_, _ = io.WriteString(c, tt.answer)
			_, _ = io.Copy(io.Discard, c)
		})
		spec := table(2, 1)
		spec.Addr, spec.Talk.Join, spec.Talk.Joined = addr, []byte("join"), []byte("joined\r\n")
		d, err := open(spec)
		if tt.err == "" && err != nil || tt.err != "" && !strings.Contains(fmt.Sprint(err), tt.err) {
			t.Errorf("%.40q: %v, not %q", tt.answer, err, tt.err)
		}
		d.close()
	}
}

// The process speaks JSON, refuses what it does not understand, and ends with its input.
func TestProcess(t *testing.T) {
	spec := table(2, 1)
	spec.Addr = server(t, each(answers))
	var in, out bytes.Buffer
	e := json.NewEncoder(&in)
	for _, v := range []any{spec, Order{Mode: Exchange}, Order{Mode: "dance", End: 1}, Order{Mode: Closed}} {
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	if err := serve(&in, &out); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&out)
	var ready Ready
	var rs [3]Result
	if err := d.Decode(&ready); err != nil || ready.Err != "" {
		t.Fatal(ready, err)
	}
	for i := range rs {
		if err := d.Decode(&rs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if rs[0].Replies != 2 || !strings.Contains(rs[1].Err, "dance") || rs[2].Err == "" {
		t.Errorf("%+v", rs)
	}
	for _, text := range []string{"", "{", `{"Addr":"nowhere"}`} {
		out.Reset()
		if err := serve(strings.NewReader(text), &out); err == nil && !strings.Contains(out.String(), "not an IPv4") {
			t.Errorf("the spec %q was taken: %s", text, &out)
		}
	}
}

func TestFrames(t *testing.T) {
	for _, size := range []int{0, 125, 126, 65535, 65536} {
		p := bytes.Repeat([]byte("x"), size)
		client, server := ClientFrame(p), ServerFrame(p)
		if len(client) != len(server)+4 || !bytes.HasSuffix(server, p) || client[0] != 0x81 ||
			client[1] != server[1]|0x80 {
			t.Errorf("%d bytes: client %x, server %x", size, client[:min(14, len(client))],
				server[:min(14, len(server))])
		}
		key, masked := client[len(client)-size-4:][:4], client[len(client)-size:]
		for i, b := range masked {
			if b^key[i%4] != p[i] {
				t.Fatalf("%d bytes: byte %d is masked wrongly", size, i)
			}
		}
	}
}

// What is published is counted one by one, also where the server joins it; and what it keeps to
// itself, or sends twice, is missed.
func TestPublish(t *testing.T) {
	lines := func(n int) string { return string(ServerFrame([]byte(strings.Repeat("news\n", n)[:5*n-1]))) }
	for _, tt := range []struct {
		deliver func(n int) string // so many publications at once
		err     string
	}{
		{lines, ""},
		{func(n int) string { return strings.Repeat(lines(1), n) }, ""},
		{func(n int) string { return lines(max(n-1, 1)) }, "deliveries are missing"},
		{func(n int) string { return lines(n + 1) }, "unsolicited reply"},
		{func(n int) string { return strings.Replace(lines(n), "w", "u", 1) }, `a reply of "neus"`},
	} {
		publication := table(1, 1).Talk
		spec := Spec{Addr: server(t, joining(3, tt.deliver)), Conns: 5, Server: os.Getpid(), Publishers: 1, Talk: Talk{
			Hello: []byte("join"), Reply: Reply{Size: 4, Prefix: []byte("news"), Framing: Lines},
			Publication: &publication,
		}}
		d, err := open(spec)
		if err != nil {
			t.Fatal(err)
		}
		if tt.err == "deliveries are missing" {
			d.late = 100 * time.Millisecond
		}
		r := d.enough(Publish, 50*time.Millisecond, 3)
		d.close()
		if tt.err == "" && (r.Err != "" || r.Replies < 3) || !strings.Contains(r.Err, tt.err) {
			t.Errorf("%s: %+v", tt.err, show(r))
		}
	}
}

// joining answers each publication at once, and delivers several together, or what there is when no
// more come.
func joining(several int, deliver func(n int) string) func(c net.Conn) {
	var mu sync.Mutex
	var members []net.Conn
	return func(c net.Conn) {
		held := 0
		for p := make([]byte, len(ping)); ; {
			if held > 0 {
				_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			}
			_, err := io.ReadFull(c, p)
			_ = c.SetReadDeadline(time.Time{})
			mu.Lock()
			switch {
			case err == nil && string(p) == "join":
				members = append(members, c)
				_, _ = io.WriteString(c, "\r\n\r\n")
			case err == nil:
				held++
				answers(c)
			}
			if held == several || err != nil && held > 0 {
				for _, m := range members {
					_, _ = io.WriteString(m, deliver(held))
				}
				held = 0
			}
			mu.Unlock()
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		}
	}
}

// A request that is due while a connection is free is late by the driver's own fault. While none is
// free it is the server's.
func TestDriverNotesItsOwnLateness(t *testing.T) {
	w, err := newWindow(nil, Order{Mode: Open, Start: 0, End: int64(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	e := &evenly{driver: &driver{window: w}, interval: float64(time.Millisecond), next: 3}
	e.noteLate(int64(10 * time.Millisecond))
	if e.free.n = 1; w.late.TotalCount() != 0 {
		t.Error("late, although no connection was free")
	}
	if e.noteLate(int64(3*time.Millisecond) - 1); w.late.TotalCount() != 0 {
		t.Error("late before it was due")
	}
	e.noteLate(int64(10 * time.Millisecond))
	late, err := hdrhistogram.Decode(w.result().Late)
	if err != nil || late.TotalCount() != 1 || late.Max() < int64(7*time.Millisecond) ||
		late.Max() > int64(7010*time.Microsecond) {
		t.Errorf("%v, %v; want one of 7 ms", late, err)
	}
}
