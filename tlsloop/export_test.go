package tlsloop

import (
	"crypto/tls"
	"reflect"

	"github.com/myriad-go/myriad"
)

// BuffersHeld is how many bytes the buffers of c's tls.Conn have in memory, and how much of a
// record is in them. On the loop.
func BuffersHeld(c *myriad.Conn) (room, part int) {
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
