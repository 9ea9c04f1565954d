package tlsloop

import (
	"context"
	"crypto/tls"
	"net"
	"reflect"
	"testing"
	"weak"

	"github.com/myriad-go/myriad"
)

// BuffersHeld is how many bytes the buffers of c's TLS have in memory, and how much of a record is
// in them. On the loop.
func BuffersHeld(c *myriad.Conn) (room, part int) {
	if s := c.Layer().(*session); s.rec != nil {
		return cap(s.in), len(s.in)
	}
	records, messages, _ := buffers.of(c.Layer().(*session).tls)
	return records.Cap() + messages.Cap(), records.Len()
}

// BuffersKnown says whether the buffers of crypto/tls are where the package believes them to be,
// and those of some other type.
func BuffersKnown(conn reflect.Type) bool { return lookInside(conn).known }

// KeepBuffers is what an unknown toolchain would do, until the result is called. No engine may run.
func KeepBuffers() (restore func()) {
	was := buffers
	buffers.known = false
	return func() { buffers = was }
}

// Give is what a session does with a whole record, and TakeBack what it does when it is done with
// others' memory.
func Give(tc *tls.Conn, record []byte) bool   { return buffers.put(tc, record) }
func TakeBack(tc *tls.Conn, others ...[]byte) { buffers.takeBack(tc, others...) }
func Begun(tc *tls.Conn) []byte               { records, _, _ := buffers.of(tc); return records.Bytes() }

// TryRecords is what decides whether records go on behind handshakes.
func TryRecords() error { return tryRecords() }

// OwnRecords reports whether c has left its tls.Conn. On the loop.
func OwnRecords(c *myriad.Conn) bool { return c.Layer().(*session).rec != nil }

// HoldsKeys reports whether c's records have keys or AEADs. On the loop, or behind Closed.
func HoldsKeys(c *myriad.Conn) bool {
	r := *c.Layer().(*session).rec
	r.closed = false
	return r != records{}
}

// HoldsKeysOutside reports which keys a connection that has left the engine has.
func HoldsKeysOutside(nc net.Conn) (reading, writing bool) {
	d := nc.(*detached)
	d.in.Lock()
	defer d.in.Unlock()
	d.out.Lock()
	defer d.out.Unlock()
	return !d.rec.reader.Erased(), !d.rec.writer.Erased()
}

// CloseBeside closes a connection that has left the engine, while its Read and its Write have their
// locks and are about to succeed.
func CloseBeside(nc net.Conn) error {
	d := nc.(*detached)
	d.in.Lock()
	d.out.Lock()
	err := d.Close()
	d.unlock(&d.out, d.endWriting)
	d.unlock(&d.in, d.endReading)
	return err
}

// HeldOutside is how many bytes a connection that has left the engine has memory for.
func HeldOutside(nc net.Conn) int {
	d := nc.(*detached)
	d.in.Lock()
	defer d.in.Unlock()
	return cap(d.pipe.in) + cap(d.plain)
}

// ErrUntried is TryRecords' error where crypto/tls chooses another suite.
var ErrUntried = errUntried

// SetMaxSealed has a key seal n records, until the test ends. No engine may run, then and now.
func SetMaxSealed(t testing.TB, n uint64) {
	was := maxSealed
	maxSealed = n
	t.Cleanup(func() { maxSealed = was })
}

// WatchHandshake takes the context of a callback. alive reports whether the handshake is in memory.
// secrets is how many bytes of them the connection still has.
func WatchHandshake(ctx context.Context) (alive func() bool, secrets func() int) {
	h := ctx.Value(handshakeKey{}).(*handshake)
	weakly, box := weak.Make(h), h.secrets
	return func() bool { return weakly.Value() != nil }, func() int {
		return len(box.client) + len(box.server) + cap(box.flight)
	}
}

// A DyingHandshake is one of c, whose conn closes while its last step runs or behind it. On the
// loop of a conn with a tls.Conn.
func DyingHandshake(c *myriad.Conn, duringStep bool) (left int) {
	s := c.Layer().(*session)
	box := &secrets{client: []byte("one"), server: []byte("two")}
	h := &handshake{s: s, conn: c, wire: c.WireFor(s), steppers: steppersOf(c.Loop().Engine()), state: active,
		secrets: box}
	h.steppers.mu.Lock()
	h.steppers.inFlight++
	h.steppers.mu.Unlock()
	if duringStep {
		h.kill()
		h.end()
	} else {
		h.end()
		h.kill()
	}
	return len(box.client) + len(box.server)
}

// NoteTwice gives a key log a line twice, without a user. It returns what is left of the first
// secret and of the line.
func NoteTwice(line string) (secret, rest []byte) {
	s := new(secrets)
	l := keyLog{s, nil}
	_, _ = l.Write([]byte(line))
	first := s.client
	p := []byte(line)
	_, _ = l.Write(p)
	return first, p
}
