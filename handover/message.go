package handover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

// This file is what the two processes say to each other.

// A channel takes messages to the other process, in order. Its methods are for one goroutine at a
// time.
type channel interface {
	// send sends m, all or nothing. Its sockets and its listener stay the caller's.
	send(m message) error
	// receive waits for a message, whose sockets and listener are the caller's. It fails with
	// io.EOF when the other process has closed its end, or has died, and all that it has sent was
	// received.
	receive() (message, error)
	// stopReceiving has further sends of the other process fail. What it has sent before is
	// received still, and then io.EOF. So afterwards it is decided whether a message has come. The
	// kernel has to keep this promise, which Linux does.
	stopReceiving()
	// otherEnded reports, after the end of the channel, whether the other process has ended, and
	// with it all that it had open. It waits for that a little. False: it lives, or the kernel does
	// not tell.
	otherEnded() bool
	// setDeadline is when send and receive fail with os.ErrDeadlineExceeded.
	setDeadline(t time.Time)
	close()
}

// A message is one step of the protocol in doc.go.
type message struct {
	kind     kind
	body     []byte
	sockets  []driver.Socket
	listener driver.Listener
}

// drop closes what a received message has.
func (m *message) drop() {
	for _, s := range m.sockets {
		_ = s.Close()
	}
	if m.listener != nil {
		_ = m.listener.Close()
	}
}

type kind byte

const (
	hello    kind = 1 + iota // old: body is a list of names and formats
	accept                   // new
	refuse                   // either: body is the reason
	listener                 // old: body is network and address for Listen, and whether it is paused
	state                    // old: body is the number of a state, and the next piece of it
	conns                    // old: body is a list of records, one for each socket
	all                      // old: body is how many connections were sent
	have                     // new: from here on the connections are its own
	goOn                     // old
)

func (k kind) String() string {
	names := [...]string{"", "hello", "accept", "refuse", "listener", "state", "conns", "all", "have", "go"}
	if int(k) < len(names) && k > 0 {
		return names[k]
	}
	return fmt.Sprintf("message %d", byte(k))
}

// Limits of messages.
const (
	maxConns   = 80 << 20 // bytes of conns: a record of 64 MiB, and more
	maxPiece   = 1 << 20  // bytes of state
	maxOther   = 4 << 10  // bytes of other messages
	maxName    = 64
	maxNames   = 1024
	maxAddr    = 1024 // bytes of a listener's address
	maxReason  = 1024
	maxRecords = 250       // in a message: the kernel takes 253 descriptors at a time
	maxBatch   = 4 << 20   // bytes of records, unless one alone has more
	statePiece = 256 << 10 // bytes of a state in one message
)

// maxBody bounds the body of a message, in bytes: what a process keeps in memory of the other one.
func (k kind) maxBody() uint32 {
	switch k {
	case conns:
		return maxConns
	case state:
		return maxPiece
	case hello:
		return (maxNames + 2) * (3*maxName + 8)
	default:
		return maxOther
	}
}

// version is that of this protocol, which hello begins with.
const version = 1

// An item is a server or a state as hello names it.
type item struct {
	what   string // "server" or "state"
	name   string
	format string // which the old process writes
}

// items are what hello says of a program.
func (p *Program) items() []item {
	list := []item{{"engine", "records", myriad.FormatOfRecords}}
	for _, name := range p.serverNames() {
		list = append(list, item{"server", name, p.Servers[name].Formats()[0]})
	}
	for _, name := range p.stateNames() {
		list = append(list, item{"state", name, p.States[name].Formats()[0]})
	}
	return list
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendItems(list []item) []byte {
	b := binary.AppendUvarint([]byte{version}, uint64(len(list)))
	for _, it := range list {
		for _, s := range []string{it.what, it.name, it.format} {
			b = appendString(b, s)
		}
	}
	return b
}

var errShort = errors.New("it is cut off")

// A reader takes the body of a message apart. The first error stays.
type reader struct {
	p   []byte
	err error
}

func (r *reader) uint(most uint64) uint64 {
	v, n := binary.Uvarint(r.p)
	if n <= 0 || v > most {
		if r.p = nil; r.err == nil {
			r.err = errShort
			if n > 0 {
				r.err = fmt.Errorf("%d, at most %d is allowed", v, most)
			}
		}
		return 0
	}
	r.p = r.p[n:]
	return v
}

func (r *reader) bytes(most int) []byte {
	n := r.uint(uint64(most))
	if n > uint64(len(r.p)) {
		if r.p = nil; r.err == nil {
			r.err = errShort
		}
		return nil
	}
	b := r.p[:n:n]
	r.p = r.p[n:]
	return b
}

// end is the first error, or that something is left.
func (r *reader) end(k kind) error {
	if r.err == nil && len(r.p) > 0 {
		r.err = fmt.Errorf("%d bytes are left", len(r.p))
	}
	if r.err != nil {
		return fmt.Errorf("handover: %v: %w: %w", k, ErrProtocol, r.err)
	}
	return nil
}

func parseItems(body []byte) ([]item, error) {
	if len(body) == 0 || body[0] != version {
		return nil, fmt.Errorf("handover: %w: the protocol of the other process is not %d", ErrFormat, version)
	}
	r := &reader{p: body[1:]}
	n := r.uint(maxNames + 1)
	var list []item
	for range n {
		it := item{what: string(r.bytes(maxName)), name: string(r.bytes(maxName)), format: string(r.bytes(maxName))}
		if r.err != nil {
			break
		}
		list = append(list, it)
	}
	return list, r.end(hello)
}

// understand returns why p cannot take what the other process has; nil if it can.
func (p *Program) understand(list []item) error {
	for _, it := range list {
		var formats []string
		switch it.what {
		case "engine":
			formats = []string{myriad.FormatOfRecords}
		case "server":
			if s, ok := p.Servers[it.name]; ok {
				formats = s.Formats()
			}
		case "state":
			if s, ok := p.States[it.name]; ok {
				formats = s.Formats()
			}
		}
		if formats == nil {
			return fmt.Errorf("handover: %w: there is no %s %q in the new process", ErrFormat, it.what, it.name)
		}
		if !contains(formats, it.format) {
			return fmt.Errorf("handover: %w: %s %q comes as %q, the new process reads %q", ErrFormat, it.what, it.name,
				it.format, formats)
		}
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, other := range list {
		if other == s {
			return true
		}
	}
	return false
}
