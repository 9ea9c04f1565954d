package tlsloop

import (
	"bytes"
	"crypto/tls"
	"io"
	"reflect"
	"unsafe"
)

// lentLen is the size of a lent buffer, so that crypto/tls never allocates a larger one. It is the
// largest record and the room behind it that bytes.Buffer.ReadFrom asks for.
const lentLen = headerLen + maxCiphertext + bytes.MinRead

// An inside has the offsets of a tls.Conn's buffers: for the record that is being read, for the
// messages of a handshake, and for plaintext that Read has not returned, which lies in the first.
// They never shrink: an idle connection would hold 1.5 to 21 kB (docs/adr/0015).
type inside struct {
	records, messages, plain uintptr
	known                    bool // this toolchain has them, by these names and of these types
}

// buffers is asked of the toolchain that has built the program. If it is not known, every tls.Conn
// keeps its buffers.
var buffers = lookInside(reflect.TypeFor[tls.Conn]())

func lookInside(conn reflect.Type) (in inside) {
	var found [3]bool
	in.records, found[0] = offset(conn, "rawInput", reflect.TypeFor[bytes.Buffer]())
	in.messages, found[1] = offset(conn, "hand", reflect.TypeFor[bytes.Buffer]())
	in.plain, found[2] = offset(conn, "input", reflect.TypeFor[bytes.Reader]())
	in.known = found == [3]bool{true, true, true}
	return in
}

func offset(conn reflect.Type, field string, is reflect.Type) (uintptr, bool) {
	f, ok := conn.FieldByName(field)
	return f.Offset, ok && f.Type == is && len(f.Index) == 1
}

// of returns the buffers of tc. The caller must be one that may call its Read.
func (in inside) of(tc *tls.Conn) (records, messages *bytes.Buffer, plain *bytes.Reader) {
	p := unsafe.Pointer(tc)
	return (*bytes.Buffer)(unsafe.Add(p, in.records)), (*bytes.Buffer)(unsafe.Add(p, in.messages)),
		(*bytes.Reader)(unsafe.Add(p, in.plain))
}

// lend has tc put the next record into mem, unless a part of one lies elsewhere already.
func (in inside) lend(tc *tls.Conn, mem []byte) {
	if !in.known {
		return
	}
	if records, _, plain := in.of(tc); records.Len() == 0 && plain.Len() == 0 {
		*records = *bytes.NewBuffer(mem[:0])
	}
}

// put gives tc a whole record without a copy, unless tc holds the part of one. tc decrypts it in
// place, and no longer refers to it once Read has returned its plaintext.
func (in inside) put(tc *tls.Conn, record []byte) bool {
	if !in.known {
		return false
	}
	records, _, plain := in.of(tc)
	if records.Len() > 0 || plain.Len() > 0 {
		return false
	}
	*records = *bytes.NewBuffer(record)
	return true
}

// takeBack removes tc's empty buffers, and all memory that was lent or put. A part of a record
// moves to a block with room for the whole record.
func (in inside) takeBack(tc *tls.Conn, others ...[]byte) {
	if !in.known {
		return
	}
	records, messages, plain := in.of(tc)
	if messages.Len() == 0 {
		*messages = bytes.Buffer{}
	}
	var rest []byte
	if plain.Len() > 0 { // of an adopted conn whose Read had little room
		rest, _ = io.ReadAll(plain)
	}
	plain.Reset(rest)
	part := records.Bytes()
	if len(part) == 0 {
		*records = bytes.Buffer{}
		return
	}
	for _, mem := range others {
		if within(part, mem) {
			*records = *bytes.NewBuffer(append(make([]byte, 0, roomFor(part)), part...))
			return
		}
	}
}

// within reports whether part, which is not empty, lies in mem.
func within(part, mem []byte) bool {
	if len(mem) == 0 {
		return false
	}
	first, start := uintptr(unsafe.Pointer(&part[0])), uintptr(unsafe.Pointer(&mem[0]))
	return first >= start && first < start+uintptr(len(mem))
}

// roomFor is what the record that part begins needs, as crypto/tls asks for it.
func roomFor(part []byte) int {
	if len(part) < headerLen {
		return headerLen + bytes.MinRead
	}
	return max(len(part), headerLen+min(int(part[3])<<8|int(part[4]), maxCiphertext)+bytes.MinRead)
}
