package tlsloop

import (
	"crypto/tls"
	"reflect"

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
func HoldsKeys(c *myriad.Conn) bool { return *c.Layer().(*session).rec != records{} }
