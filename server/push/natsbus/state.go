package natsbus

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/receipts"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// This file writes what a frozen bus has besides the logs, and fills the bus of another process
// with it.

// The parts of the state of a bus.
const (
	nodePart    = "nats.node.1"    // this node
	otherPart   = "nats.other.1"   // another one that was heard
	logPart     = "nats.log.1"     // a log, and the place up to which it was followed
	receiptPart = "nats.receipt.1" // the result of a publication that had an ID, the oldest first
)

// StateParts are the parts of what WriteState writes and Restore takes.
func (*Bus) StateParts() []string { return []string{nodePart, otherPart, logPart, receiptPart} }

// appendNode appends what has to be the same in the process that takes this one's place: otherwise
// it would go on in other logs, or with the store of another node.
func (c *Config) appendNode(dst []byte) []byte {
	store := ""
	if c.Server != nil {
		store = absolute(c.Server.config.Dir)
	}
	dst = snapshot.AppendText(snapshot.AppendText(dst, c.Node), c.Prefix)
	dst = snapshot.AppendText(snapshot.AppendBool(dst, c.Server != nil), store)
	return snapshot.AppendNumber(snapshot.AppendText(dst, absolute(c.Dir)), uint64(c.Parts))
}

func absolute(dir string) string {
	if dir == "" {
		return ""
	}
	if full, err := filepath.Abs(dir); err == nil {
		return full
	}
	return dir
}

// WriteState writes how far the logs are followed, which nodes there are, and which IDs of
// publications are remembered. The bus is frozen.
func (b *Bus) WriteState(w *snapshot.Writer) error {
	if !b.gate.isFrozen() {
		return errNotFrozen
	}
	if err := w.Record(nodePart, b.config.appendNode(nil)); err != nil {
		return err
	}
	now := time.Now()
	var record []byte
	for name, s := range b.session.nodes.all() {
		record = snapshot.AppendInt(snapshot.AppendText(record[:0], name), int64(now.Sub(s.at)))
		record = snapshot.AppendInt(record, int64(now.Sub(s.since)))
		if err := w.Record(otherPart, snapshot.AppendBool(record, !s.away && !s.behind)); err != nil {
			return err
		}
	}
	places, err := b.session.logs.places()
	if err != nil {
		return err
	}
	for id, p := range places {
		if err := w.Record(logPart, p.append(id.append(record[:0]))); err != nil {
			return err
		}
	}
	for _, r := range b.receipts.Receipts() {
		record = snapshot.AppendInt(append(record[:0], r.Key[:]...), r.Ends)
		record = snapshot.AppendText(snapshot.AppendNumber(record, r.Result.Offset), r.Result.Epoch)
		if err := w.Record(receiptPart, record); err != nil {
			return err
		}
	}
	return nil
}

func (id logID) append(dst []byte) []byte {
	dst = snapshot.AppendInt(snapshot.AppendNumber(dst, uint64(id.keep.Size)), int64(id.keep.Age))
	return snapshot.AppendNumber(snapshot.AppendNumber(dst, uint64(id.part)), uint64(id.parts))
}

func (p place) append(dst []byte) []byte {
	dst = snapshot.AppendInt(snapshot.AppendNumber(dst, p.last), p.lastAt)
	dst = snapshot.AppendNumber(snapshot.AppendText(dst, p.epoch), p.epochAt)
	return snapshot.AppendInt(dst, p.markAt)
}

// A restore fills a bus with the state of another.
type restore struct {
	bus    *Bus
	node   bool // it has come, and is this one
	places map[logID]place
	nodes  map[string]seenNode
}

// Restore begins to fill a bus that Await has made, and that is frozen.
func (b *Bus) Restore() (snapshot.Taker, error) {
	switch {
	case !b.gate.isFrozen():
		return nil, errNotFrozen
	case !b.awaits || b.receipts.Len() > 0:
		return nil, errors.New("natsbus: only a bus of Await takes the place of another one")
	}
	return &restore{bus: b, places: make(map[logID]place), nodes: make(map[string]seenNode)}, nil
}

// Record takes a record of one of StateParts. It keeps nothing of body. After an error the bus is
// useless.
func (r *restore) Record(part string, body []byte) (err error) {
	f := snapshot.NewFields(body)
	switch part {
	case nodePart:
		if mine := r.bus.config.appendNode(nil); string(mine) != string(f.Rest()) {
			return errOtherNode
		}
		r.node = true
	case otherPart:
		name, age, fit, is := f.Text(), time.Duration(f.Int()), time.Duration(f.Int()), f.Bool()
		if now := time.Now(); len(r.nodes) < maxNodes {
			r.nodes[name] = seenNode{at: now.Add(-max(age, 0)), since: now.Add(-max(fit, 0)), behind: !is}
		}
	case logPart:
		r.log(f)
	case receiptPart:
		var one receipts.Receipt[bus.Position]
		f.Fixed(one.Key[:])
		one.Ends = f.Int()
		one.Result = bus.Position{Offset: f.Number(), Epoch: f.Text()}
		if !f.Failed() && !r.bus.receipts.Restore(one) {
			f.Fail("a receipt comes twice")
		}
	default:
		f.Fail("natsbus does not write it")
	}
	if err := f.Done(); err != nil {
		return fmt.Errorf("natsbus: %s: %w", part, err)
	}
	return nil
}

var errOtherNode = errors.New("natsbus: the process that takes the place of another one has to have the same node, " +
	"folder and cluster: restart it to change them")

func (r *restore) log(f *snapshot.Fields) {
	var id logID
	id.keep.Size, id.keep.Age = int(f.NumberUpTo(math.MaxInt, "a history's size")), time.Duration(f.Int())
	id.part = int(f.NumberUpTo(maxParts, "the part of a history"))
	id.parts = int(f.NumberUpTo(maxParts, "the parts of a history"))
	p := place{known: true, last: f.Number(), lastAt: f.Int(), epoch: f.Text(), epochAt: f.Number(), markAt: f.Int()}
	switch _, twice := r.places[id]; {
	case f.Failed():
	case twice, id.keep.Size == 0, id.keep.Age <= 0, id.part >= id.parts, p.epoch == "":
		f.Fail("a log is malformed, or comes twice")
	case len(r.places) >= maxRetentions*maxParts:
		f.Fail("there are too many logs")
	default:
		r.places[id] = p
	}
}

// Done starts NATS with the folder of the other process, and connects to it. If that fails, the
// other process can go on. When it returns nil, receivers can subscribe; Thaw goes on with the
// logs.
func (r *restore) Done() error {
	if !r.node {
		return fmt.Errorf("natsbus: %w: the node is missing", snapshot.ErrMalformed)
	}
	b := r.bus
	b.session.logs.goOnFrom(r.places)
	b.session.nodes.goOn(r.nodes)
	if err := b.connectFrozen(); err != nil {
		return err
	}
	b.gate.setRestored()
	return nil
}
