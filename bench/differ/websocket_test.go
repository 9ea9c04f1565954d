// Package differ compares this project's protocols with other libraries' by giving both the same
// bytes. It has tests only.
package differ

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lxzan/gws"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

const (
	request = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: " +
		"13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
	maxMessage = 4096
	patience   = 30 * time.Second
)

// A listener receives a connection's messages, and finally its end.
type listener struct {
	heard []string
	ended chan bool
}

// ours is a server of package websocket. One connection is made at a time.
type ours struct {
	addr string
	now  *listener
}

func startOurs(t testing.TB) *ours {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	o := &ours{}
	ln, err := e.Listen("tcp", "127.0.0.1:0", websocket.Handler(&websocket.Options{
		Dispatch: web.DispatchInline, MaxMessage: maxMessage, Compression: websocket.Compression{Enabled: true},
		OnMessage: func(_ *websocket.Conn, op websocket.Op, p []byte) {
			o.now.heard = append(o.now.heard, fmt.Sprintf("%d %x", op, p))
		},
		OnClose: func(*websocket.Conn, error) { o.now.ended <- true },
	}))
	if err != nil {
		t.Fatal(err)
	}
	o.addr = ln.Addr().String()
	return o
}

// receive sends the wire's bytes, cut in two, and returns the messages that arrived.
func (o *ours) receive(t testing.TB, wire []byte, cut int) []string {
	t.Helper()
	o.now = &listener{ended: make(chan bool, 1)}
	nc, err := net.Dial("tcp", o.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(nc, request)
	in := bufio.NewReader(nc)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	_, _ = nc.Write(wire[:cut]) // it may have ended the connection already
	_, _ = nc.Write(wire[cut:])
	_ = nc.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, in)
	<-o.now.ended
	return o.now.heard
}

// theirs receives through gws.
type theirs struct {
	gws.BuiltinEventHandler
	heard []string
}

func (h *theirs) OnMessage(_ *gws.Conn, m *gws.Message) {
	defer m.Close()
	h.heard = append(h.heard, fmt.Sprintf("%d %x", m.Opcode, m.Bytes()))
}

// wireConn is a connection on which everything has arrived already.
type wireConn struct {
	net.Conn
	in *bytes.Reader
}

func (c *wireConn) Read(p []byte) (int, error)     { return c.in.Read(p) }
func (*wireConn) Write(p []byte) (int, error)      { return len(p), nil }
func (*wireConn) Close() error                     { return nil }
func (*wireConn) SetDeadline(time.Time) error      { return nil }
func (*wireConn) SetReadDeadline(time.Time) error  { return nil }
func (*wireConn) SetWriteDeadline(time.Time) error { return nil }
func (*wireConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*wireConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

func receiveTheirs(t testing.TB, wire []byte) []string {
	t.Helper()
	h := &theirs{}
	upgrader := gws.NewUpgrader(h, &gws.ServerOption{
		CheckUtf8Enabled: true, ReadMaxPayloadSize: maxMessage, PermessageDeflate: gws.PermessageDeflate{Enabled: true},
	})
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(request)))
	if err != nil {
		t.Fatal(err)
	}
	nc := &wireConn{in: bytes.NewReader(wire)}
	conn, err := upgrader.UpgradeFromConn(nc, bufio.NewReader(nc), r)
	if err != nil {
		t.Fatal(err)
	}
	conn.ReadLoop()
	return h.heard
}

// A script is turned into frames: most of them right, because what is wrong ends the comparison.
type script struct {
	p    []byte
	wire []byte
	open bool // a message is
}

func (s *script) next() byte {
	if len(s.p) == 0 {
		return 0
	}
	b := s.p[0]
	s.p = s.p[1:]
	return b
}

func (s *script) take(n int) []byte {
	n = min(n, len(s.p))
	p := s.p[:n]
	s.p = s.p[n:]
	return p
}

func (s *script) frame(first byte, payload []byte) {
	s.wire = append(s.wire, first)
	switch n := len(payload); {
	case n < 126:
		s.wire = append(s.wire, 0x80|byte(n))
	default:
		s.wire = binary.BigEndian.AppendUint16(append(s.wire, 0x80|126), uint16(n))
	}
	key := [4]byte{s.next(), 2, 3, 4}
	s.wire = append(s.wire, key[:]...)
	for i, b := range payload {
		s.wire = append(s.wire, b^key[i%4])
	}
}

func packed(p []byte) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, 6) // the level is in its range
	_, _ = w.Write(p)
	_ = w.Flush()
	return bytes.TrimSuffix(b.Bytes(), []byte{0, 0, 0xff, 0xff})
}

func (s *script) step() {
	kind := s.next()
	op := 1 + kind>>7
	if s.open {
		op = 0
	}
	switch kind & 15 {
	case 0: // a ping between whatever
		s.frame(0x89, s.take(int(s.next()&63)))
	case 1: // any frame at all, but for RSV2 and RSV3, which gws lets pass
		s.frame(s.next()&^0x30, s.take(int(s.next())))
	case 2: // a raw byte
		s.wire = append(s.wire, s.next())
	case 3, 4, 5: // the beginning or the middle of a message
		s.frame(op, s.text(kind))
		s.open = true
	case 6: // a compressed message, repeated so that it is worth it
		if !s.open {
			s.frame(0xc0|op, packed(bytes.Repeat(s.text(kind), 1+int(s.next()&7))))
		}
	case 7: // what claims to be compressed
		if !s.open {
			s.frame(0xc0|op, s.take(int(s.next()&31)))
		}
	default:
		s.frame(0x80|op, s.text(kind))
		s.open = false
	}
}

// text is mostly UTF-8.
func (s *script) text(kind byte) []byte {
	p := s.take(int(s.next()))
	if kind&16 == 0 {
		return []byte(strings.ToValidUTF8(string(p), "é"))
	}
	return p
}

func FuzzWebSocketAgainstGWS(f *testing.F) {
	f.Add([]byte("\x08\x05hello\x01\x83\x03foo\x02\x08\x03bar\x00\x06\x09aaaaaaaaa\x03\x01"), uint16(7))
	f.Add([]byte("\x03\x02\xc3\xa9\x01\x00\x02pp\x01\x08\x04tail\x01\x88\x03bin\x04"), uint16(20))
	f.Add([]byte("\x18\x02\xc3\x28\x01\x08\x02ok\x01"), uint16(3))
	f.Add([]byte("\x01\x88\x02\x03\xe8\x01\x08\x02no\x01"), uint16(9))
	o := startOurs(f)
	f.Fuzz(func(t *testing.T, p []byte, cut uint16) {
		s := &script{p: p}
		for len(s.p) > 0 && len(s.wire) < 8<<10 {
			s.step()
		}
		if len(s.wire) == 0 {
			return
		}
		got, want := o.receive(t, s.wire, int(cut)%len(s.wire)), receiveTheirs(t, s.wire)
		if !slices.Equal(got, want) {
			t.Errorf("for %x\nours:   %q\ntheirs: %q", s.wire, got, want)
		}
	})
}
