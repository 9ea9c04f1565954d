package sim

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/fnv"
	"strings"
	"time"
)

// A record is one line of the trace: at a time, an actor, a driver's connection or a peer did
// something.
type record struct {
	at   time.Duration
	who  string
	what string
	id   uint64
	n    int64
	sum  uint32 // of the bytes concerned
	err  string
}

func (r record) String() string {
	s := fmt.Sprintf("%12v %-14s %-12s %x n=%d", r.at, r.who, r.what, r.id, r.n)
	if r.sum != 0 {
		s += fmt.Sprintf(" crc=%08x", r.sum)
	}
	if r.err != "" {
		s += " err=" + r.err
	}
	return s
}

// trace hashes everything and keeps the end.
type trace struct {
	sum  hash.Hash64
	ring []record
	n    int
	buf  []byte
}

func (t *trace) init(lines int) {
	t.sum = fnv.New64a()
	t.ring = make([]record, 0, min(max(lines, 1), 1<<20))
}

func (t *trace) add(r record) {
	b := t.buf[:0]
	b = binary.LittleEndian.AppendUint64(b, uint64(r.at))
	b = binary.LittleEndian.AppendUint64(b, r.id)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.n))
	b = binary.LittleEndian.AppendUint32(b, r.sum)
	b = append(append(append(append(b, r.who...), r.what...), 0), r.err...)
	t.buf = b
	t.sum.Write(b)
	if len(t.ring) < cap(t.ring) {
		t.ring = append(t.ring, r)
	} else {
		t.ring[t.n%cap(t.ring)] = r
	}
	t.n++
}

func (t *trace) tail(lines int) string {
	var b strings.Builder
	for i := max(0, t.n-min(lines, len(t.ring))); i < t.n; i++ {
		fmt.Fprintln(&b, t.ring[i%cap(t.ring)])
	}
	return b.String()
}

// Trace is the end of what has happened, one line for each call and event, at most
// Options.TraceLines of them.
func (w *World) Trace() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trace.tail(len(w.trace.ring))
}

// Hash covers everything that has happened since the beginning, with its time and its bytes.
func (w *World) Hash() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trace.sum.Sum64()
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (w *World) note(who, what string, id uint64, n int64) { w.noteErr(who, what, id, n, nil) }

func (w *World) noteBytes(who, what string, id uint64, p []byte) {
	w.trace.add(record{at: w.now.Sub(Epoch), who: who, what: what, id: id, n: int64(len(p)),
		sum: crc32.Checksum(p, castagnoli)})
}

func (w *World) noteErr(who, what string, id uint64, n int64, err error) {
	r := record{at: w.now.Sub(Epoch), who: who, what: what, id: id, n: n}
	if err != nil {
		r.err = err.Error()
	}
	w.trace.add(r)
}
