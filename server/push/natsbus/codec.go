package natsbus

import (
	"encoding/binary"
	"errors"
	"hash/fnv"

	"github.com/myriad-go/myriad/server/push/bus"
)

// This file is the form of messages between nodes. A message is a byte that says what it is, and
// then fields: texts with their length before them (uvarint), and numbers (uvarint).

// A form is the first byte of a message.
type form byte

const (
	formPublication form = 'p'
	formForgotten   form = 'f' // a tombstone: what was before it in the channel is dropped
	formNotice      form = 'n'
	formEpoch       form = 'e' // begins or confirms an epoch of a log
	formMark        form = 'm' // a message that only takes a sequence number
	formAnswer      form = 'a'
	formBeat        form = 'b' // a node's sign of life
)

var errMalformed = errors.New("natsbus: a message between nodes is malformed")

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// hasVersion is set in the kind of a publication that has a Version behind it.
const hasVersion = 0x80

// appendPublication appends p. Its ID and position travel beside it.
func appendPublication(dst []byte, p *bus.Publication) []byte {
	dst = append(dst, byte(formPublication), byte(p.Kind))
	if v := p.Version; v != nil {
		dst[len(dst)-1] |= hasVersion
		dst = appendText(binary.AppendUvarint(dst, v.Number), v.Epoch)
	}
	dst = appendText(appendText(dst, p.Client), p.User)
	dst = binary.AppendUvarint(dst, uint64(len(p.Tags)))
	for name, value := range p.Tags {
		dst = appendText(appendText(dst, name), value)
	}
	return append(dst, p.Data...) // the rest of the message
}

func appendNotice(dst []byte, n *bus.Notice) []byte {
	joined := byte(0)
	if n.Joined {
		joined = 1
	}
	return appendInfo(append(dst, byte(formNotice), joined), n.ClientInfo)
}

func appendInfo(dst []byte, c bus.ClientInfo) []byte {
	dst = appendText(appendText(dst, c.Client), c.User)
	return appendText(appendText(dst, string(c.ConnInfo)), string(c.ChanInfo))
}

// A reader takes fields off the front of a message. After a field that is missing or too long,
// wrong is set and all further fields are zero.
type reader struct {
	rest  []byte
	wrong bool
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.wrong = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.wrong, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text() string { return string(r.bytes()) }

// bytes returns a view of a text, or nil if it is empty.
func (r *reader) bytes() []byte {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.wrong, r.rest = true, nil
		return nil
	}
	if n == 0 {
		return nil
	}
	p := r.rest[:n:n]
	r.rest = r.rest[n:]
	return p
}

// publication reads what appendPublication has appended, behind its form. Data is a view.
func (r *reader) publication() (p bus.Publication) {
	kind := r.byte()
	if p.Kind = bus.Kind(kind &^ hasVersion); p.Kind > bus.Binary {
		r.wrong = true // of a version that this one does not understand
	}
	if kind&hasVersion != 0 {
		p.Version = &bus.Version{Number: r.number(), Epoch: r.text()}
	}
	p.Client, p.User = r.text(), r.text()
	n := r.number()
	if n > uint64(len(r.rest)) { // each tag has at least two bytes
		r.wrong = true
		return p
	}
	if n > 0 {
		p.Tags = make(map[string]string, n)
	}
	for range n {
		name := r.text()
		p.Tags[name] = r.text()
	}
	p.Data = r.rest
	return p
}

func (r *reader) notice() (n bus.Notice) {
	joined := r.byte()
	n.Joined, r.wrong = joined == 1, r.wrong || joined > 1
	n.ClientInfo = r.info()
	return n
}

func (r *reader) info() (c bus.ClientInfo) {
	c.Client, c.User = r.text(), r.text()
	c.ConnInfo, c.ChanInfo = r.bytes(), r.bytes()
	return c
}

// hash64 is the same on all nodes.
func hash64(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s)) // it never fails
	return h.Sum64()
}
