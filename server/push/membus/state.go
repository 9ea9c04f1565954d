package membus

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/receipts"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// This file writes what a frozen bus has, and fills the bus of another process with it. Times are
// absolute: what expires does so at the same moment as without the move.

// The parts of the state of a bus. Publications follow their topic.
const (
	topicPart       = "bus.topic.1"       // a channel with a history, the least recently used first
	publicationPart = "bus.publication.1" // one of it, the oldest first
	receiptPart     = "bus.receipt.1"     // the result of a publication that had an ID, the oldest first
)

// StateParts are the parts of what WriteState writes and Restore takes.
func StateParts() []string { return []string{topicPart, publicationPart, receiptPart} }

var (
	errNotFrozen = errors.New("membus: the bus is not frozen: call Freeze")
	errNotEmpty  = errors.New("membus: the bus has been used: restore a new one")
)

// WriteState writes all that the bus has besides its receivers, who subscribe again. The bus is
// frozen.
func (b *Bus) WriteState(w *snapshot.Writer) error {
	if !b.isFrozen() {
		return errNotFrozen
	}
	for _, t := range b.histories() {
		if err := b.writeTopic(w, t); err != nil {
			return err
		}
	}
	for _, r := range b.receipts.Receipts() {
		if err := w.Record(receiptPart, appendReceipt(nil, r)); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bus) isFrozen() bool {
	b.frozen.mu.Lock()
	defer b.frozen.mu.Unlock()
	return b.frozen.thawed != nil
}

// histories returns the topics with a history: those that the LRU does not list, then its list.
func (b *Bus) histories() []*topic {
	listed := b.lru.all()
	known := make(map[*topic]struct{}, len(listed))
	for _, t := range listed {
		known[t] = struct{}{}
	}
	var all []*topic
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for _, t := range s.topics {
			if _, is := known[t]; !is {
				all = append(all, t)
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b *topic) int { return strings.Compare(a.name, b.name) })
	return append(all, listed...)
}

// writeTopic writes a topic and its publications, if it has a history.
func (b *Bus) writeTopic(w *snapshot.Writer, t *topic) error {
	t.mu.Lock()
	if t.stream == nil {
		t.mu.Unlock()
		return nil
	}
	st := *t.stream
	st.items = slices.Clone(st.items) // expire may drop some while they are written
	head := savedTopic{name: t.name, epoch: t.epoch, hasReceivers: t.hasReceivers, listed: b.lru.has(t), stream: &st}
	t.mu.Unlock()
	record := head.append(nil)
	if err := w.Record(topicPart, record); err != nil {
		return err
	}
	for i := range st.items {
		record = appendKept(record[:0], &st.items[i])
		if err := w.Record(publicationPart, record); err != nil {
			return err
		}
	}
	return nil
}

func (s *lru) has(t *topic) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.entry.at != nil
}

// A savedTopic is a topic as a record has it, and its stream with the publications that follow.
type savedTopic struct {
	name, epoch          string
	hasReceivers, listed bool
	stream               *stream
	left                 int // publications that have not been read
}

func (s *savedTopic) append(dst []byte) []byte {
	st := s.stream
	dst = snapshot.AppendText(snapshot.AppendText(dst, s.name), s.epoch)
	dst = snapshot.AppendBool(snapshot.AppendBool(dst, s.hasReceivers), s.listed)
	dst = snapshot.AppendText(dst, st.epoch)
	dst = snapshot.AppendInt(snapshot.AppendNumber(dst, uint64(st.keep.Size)), int64(st.keep.Age))
	dst = snapshot.AppendNumber(dst, st.top)
	dst = snapshot.AppendText(snapshot.AppendNumber(dst, st.last.Number), st.last.Epoch)
	return snapshot.AppendNumber(dst, uint64(len(st.items)))
}

func parseTopic(record []byte) (s savedTopic, err error) {
	f := snapshot.NewFields(record)
	st := new(stream)
	s = savedTopic{name: f.Text(), epoch: f.Text(), hasReceivers: f.Bool(), listed: f.Bool(), stream: st}
	st.epoch = f.Text()
	st.keep = bus.Retention{Size: int(f.NumberUpTo(math.MaxInt, "a history's size")), Age: time.Duration(f.Int())}
	st.top = f.Number()
	st.last = bus.Version{Number: f.Number(), Epoch: f.Text()}
	s.left = int(f.NumberUpTo(min(st.top, uint64(st.keep.Size)), "the number of a history's publications"))
	if st.keep.Size == 0 || st.epoch == "" {
		f.Fail("a history has no size or no epoch")
	}
	return s, f.Done()
}

// appendKept appends a publication. Its position follows from its place.
func appendKept(dst []byte, k *kept) []byte {
	return snapshot.AppendPublication(snapshot.AppendInt(dst, k.at), &k.Publication)
}

func parseKept(record []byte) (k kept, err error) {
	f := snapshot.NewFields(record)
	k.at = f.Int()
	k.Publication = f.Publication()
	return k, f.Done()
}

func appendReceipt(dst []byte, r receipts.Receipt[bus.Position]) []byte {
	dst = snapshot.AppendInt(append(dst, r.Key[:]...), r.Ends)
	return snapshot.AppendText(snapshot.AppendNumber(dst, r.Result.Offset), r.Result.Epoch)
}

func parseReceipt(record []byte) (r receipts.Receipt[bus.Position], err error) {
	f := snapshot.NewFields(record)
	f.Fixed(r.Key[:])
	r.Ends = f.Int()
	r.Result = bus.Position{Offset: f.Number(), Epoch: f.Text()}
	return r, f.Done()
}

// A Restore fills a bus with the state of another. The limits are those of the new bus: above them
// it forgets what the old one would have forgotten first.
type Restore struct {
	bus  *Bus
	open *savedTopic // whose publications follow; nil: none
}

// Restore begins to fill a bus, which is frozen and empty. When all records are in, and the
// receivers have subscribed, the caller calls Done and then Thaw. A history whose receivers have
// not subscribed by Thaw is kept like that of any channel without subscribers.
func (b *Bus) Restore() (*Restore, error) {
	if !b.isFrozen() {
		return nil, errNotFrozen
	}
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		used, closed := len(s.topics) > 0, s.closed
		s.mu.Unlock()
		switch {
		case closed:
			return nil, bus.ErrClosed
		case used:
			return nil, errNotEmpty
		}
	}
	if b.receipts.Len() > 0 {
		return nil, errNotEmpty
	}
	b.startSweeps()
	return &Restore{bus: b}, nil
}

// Record takes a record of one of StateParts, in the order of WriteState. It keeps nothing of body.
// After an error the bus is useless.
func (r *Restore) Record(part string, body []byte) (err error) {
	if part != publicationPart {
		if err := r.Done(); err != nil {
			return err
		}
	}
	switch part {
	case topicPart:
		err = r.topic(body)
	case publicationPart:
		err = r.publication(body)
	case receiptPart:
		err = r.receipt(body)
	default:
		err = snapshot.ErrUnknown
	}
	if err != nil {
		return fmt.Errorf("membus: %s: %w", part, err)
	}
	return nil
}

// Done returns an error if publications are missing.
func (r *Restore) Done() error {
	if r.open != nil {
		return fmt.Errorf("membus: %w: %d publications of %q are missing", snapshot.ErrMalformed, r.open.left,
			r.open.name)
	}
	return nil
}

func (r *Restore) topic(body []byte) error {
	s, err := parseTopic(body)
	if err != nil {
		return err
	}
	if s.left > 0 {
		r.open = &s
		return nil
	}
	return r.close(&s)
}

func (r *Restore) publication(body []byte) error {
	s := r.open
	if s == nil {
		return fmt.Errorf("%w: it has no topic", snapshot.ErrMalformed)
	}
	k, err := parseKept(body)
	if err != nil {
		return err
	}
	st := s.stream
	s.left--
	k.Position = bus.Position{Offset: st.top - uint64(s.left), Epoch: st.epoch}
	st.items = append(st.items, k)
	for st.bytes += k.size(); st.bytes > r.bus.config.HistoryBytes; {
		st.drop()
	}
	if s.left > 0 {
		return nil
	}
	r.open = nil
	return r.close(s)
}

// close adds a topic that is complete.
func (r *Restore) close(saved *savedTopic) error {
	b := r.bus
	t := &topic{name: saved.name, epoch: saved.epoch, frozen: true, stream: saved.stream,
		hasReceivers: saved.hasReceivers, expected: saved.hasReceivers}
	s := &b.shards[b.shard(t.name)]
	s.mu.Lock()
	twice, closed := s.topics[t.name] != nil, s.closed
	if !twice && !closed {
		s.topics[t.name] = t
	}
	s.mu.Unlock()
	switch {
	case closed:
		return bus.ErrClosed
	case twice:
		return fmt.Errorf("%w: the topic %q comes twice", snapshot.ErrMalformed, t.name)
	case saved.hasReceivers && !saved.listed && t.stream.bytes == 0:
		return nil // it has lost its history, and keeps its position for its receivers
	}
	t.mu.Lock()
	victims := b.lru.touch(t, t.stream.bytes)
	t.mu.Unlock()
	b.evict(victims)
	return nil
}

func (r *Restore) receipt(body []byte) error {
	one, err := parseReceipt(body)
	if err == nil && !r.bus.receipts.Restore(one) {
		err = fmt.Errorf("%w: it comes twice", snapshot.ErrMalformed)
	}
	return err
}
