package drivertest

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// A Checker is a driver.Driver in front of another one. It holds every call and event against the
// contract and keeps a record of each connection. It belongs to the driver's owner, Wake aside.
type Checker struct {
	driver.Driver // what is checked; only Capabilities and Wake pass it unseen

	OnAccepted     func(l *Conn, s driver.Socket) // default: Attach, and append to Accepted
	OnAcceptFailed func(l *Conn, err error)       // default: ResumeAccept
	Accepted       []*Conn
	Exit           bool // events end the goroutine that polls

	t          T
	loop       uint8
	readBuffer int
	conns      map[driver.ID]*Conn
	slots      map[uint32]*Conn // live ones
	inPoll     bool
	inCall     string // the method that is running
	events     int    // of this Poll
	polls      int
	down       bool
}

// A Conn is the record of a connection or listener.
type Conn struct {
	ID driver.ID

	OnReceived func(p []byte)
	OnEnded    func()
	OnSent     func(n int64)
	OnClosed   func(err error)

	In       []byte // all that was received
	Ended    bool
	Sent     int64 // by Sent
	Queued   int64 // by Send and SendFile: what Sent is to add up to
	Dialed   bool
	Local    driver.Addr
	Remote   driver.Addr // of an accepted one
	DialErr  error
	Over     bool // the last event has come
	Err      error
	Socket   driver.Socket // Detached
	Failures int           // AcceptFailed

	k          *Checker
	listener   bool
	dialing    bool
	leaving    string // Close, Abort, Detach or CloseListener was called
	paused     bool
	sincePause int
	stopped    bool // StopAccept, AcceptFailed
	lastPoll   int  // in which bytes were received
}

// Check puts a Checker in front of d.
func Check(t T, d driver.Driver, loop uint8, readBuffer int) *Checker {
	return &Checker{
		Driver: d, t: t, loop: loop, readBuffer: readBuffer,
		conns: map[driver.ID]*Conn{}, slots: map[uint32]*Conn{},
	}
}

// call marks that a method runs, during which no event may be emitted.
func (k *Checker) call(op string, f func()) {
	if k.down {
		k.t.Fatalf("the test calls %s after Shutdown", op)
	}
	outer := k.inCall
	k.inCall = op
	f()
	k.inCall = outer
}

// begin records a new id.
func (k *Checker) begin(op string, id driver.ID) *Conn {
	k.t.Helper()
	switch {
	case id == 0 || id.Generation() == 0:
		errorf(k.t, "%s returned id %x, which is never live", op, uint64(id))
	case id.Loop() != k.loop:
		errorf(k.t, "%s returned id %x of loop %d instead of %d", op, uint64(id), id.Loop(), k.loop)
	case k.conns[id] != nil:
		errorf(k.t, "%s returned id %x a second time", op, uint64(id))
	case k.slots[id.Slot()] != nil:
		errorf(k.t, "%s took the slot of %x before its last event", op, uint64(k.slots[id.Slot()].ID))
	}
	c := &Conn{ID: id, k: k, lastPoll: -1}
	k.conns[id], k.slots[id.Slot()] = c, c
	return c
}

// ListenOn is Listen, with the record.
func (k *Checker) ListenOn(l driver.Listener) (*Conn, error) {
	var id driver.ID
	var err error
	k.call("Listen", func() { id, err = k.Driver.Listen(l) })
	if err != nil {
		return nil, err
	}
	c := k.begin("Listen", id)
	c.listener = true
	return c, nil
}

// AttachTo is Attach, with the record.
func (k *Checker) AttachTo(s driver.Socket) (*Conn, error) {
	var id driver.ID
	var err error
	k.call("Attach", func() { id, err = k.Driver.Attach(s) })
	if err != nil {
		return nil, err
	}
	return k.begin("Attach", id), nil
}

// DialTo is Dial, with the record.
func (k *Checker) DialTo(addr net.Addr) (*Conn, error) {
	var id driver.ID
	var err error
	k.call("Dial", func() { id, err = k.Driver.Dial(addr) })
	if err != nil {
		return nil, err
	}
	c := k.begin("Dial", id)
	c.dialing = true
	return c, nil
}

// Poll holds the events against the contract.
func (k *Checker) Poll(wait time.Duration) int {
	k.t.Helper()
	k.inPoll, k.events = true, 0
	defer func() { k.inPoll = false }()
	k.polls++
	var ev driver.Events = events{k}
	if k.Exit {
		ev = exiting{events{k}}
	}
	n, err := k.Driver.Poll(wait, ev)
	if err != nil {
		k.t.Fatalf("Poll: %v", err)
	}
	if n != k.events {
		errorf(k.t, "Poll returned %d after %d events", n, k.events)
	}
	return n
}

// Shutdown may be called once more than needed.
func (k *Checker) Shutdown() {
	if k.down {
		return
	}
	k.call("Shutdown", func() {
		if err := k.Driver.Shutdown(); err != nil {
			errorf(k.t, "Shutdown: %v", err)
		}
	})
	k.down = true
	k.Driver.Wake()
}

// Send sends copies of the parts.
func (c *Conn) Send(parts ...[]byte) int64 {
	var chain buf.Chain
	for _, p := range parts {
		chain.Append(p)
	}
	return c.SendChain(&chain)
}

// SendChain is Driver.Send.
func (c *Conn) SendChain(chain *buf.Chain) int64 {
	c.k.t.Helper()
	most := int64(chain.Len())
	var n int64
	c.k.call("Send", func() { n = c.k.Driver.Send(c.ID, chain) })
	if chain.Len() != 0 {
		errorf(c.k.t, "Send left %d bytes in the chain", chain.Len())
		chain.Release()
	}
	if n < 0 || n > most {
		errorf(c.k.t, "Send of %d bytes returned %d as queued", most, n)
	}
	c.Queued += n
	return n
}

// SendMany is Capabilities.SendMany with parts[i] for conns[i], which are conns of k. A conn that
// is over may be among them.
func (k *Checker) SendMany(conns []*Conn, parts [][]byte) {
	k.t.Helper()
	chains := make([]*buf.Chain, len(parts))
	for i, p := range parts {
		chains[i] = new(buf.Chain)
		chains[i].Append(p)
	}
	k.sendManyChains(conns, chains)
}

func (k *Checker) sendManyChains(conns []*Conn, chains []*buf.Chain) {
	k.t.Helper()
	batch, lengths := make([]driver.Outgoing, len(conns)), make([]int, len(conns))
	for i, c := range conns {
		batch[i], lengths[i] = driver.Outgoing{ID: c.ID, Chain: chains[i]}, chains[i].Len()
	}
	k.call("SendMany", func() { k.Driver.Capabilities().SendMany(batch) })
	for i, o := range batch {
		if n := o.Chain.Len(); n != 0 {
			errorf(k.t, "SendMany left %d bytes in a chain", n)
			o.Chain.Release()
		}
		if o.Queued < 0 || o.Queued > int64(lengths[i]) || conns[i].Over && o.Queued != 0 {
			errorf(k.t, "SendMany of %d bytes says that %d are queued", lengths[i], o.Queued)
		}
		conns[i].Queued += o.Queued
	}
}

// SendFile is Driver.SendFile.
func (c *Conn) SendFile(f driver.File, off, n int64) (int64, error) {
	c.k.t.Helper()
	var queued int64
	var err error
	c.k.call("SendFile", func() { queued, err = c.k.Driver.SendFile(c.ID, f, off, n) })
	if queued < 0 || queued > n || err != nil && queued != 0 {
		errorf(c.k.t, "SendFile of %d bytes returned %d as queued, and error %v", n, queued, err)
	}
	c.Queued += queued
	return queued, err
}

// Left is what is queued and not reported sent.
func (c *Conn) Left() int64 { return c.Queued - c.Sent }

// CloseWrite is Driver.CloseWrite.
func (c *Conn) CloseWrite() { c.k.call("CloseWrite", func() { c.k.Driver.CloseWrite(c.ID) }) }

// Pause is Driver.Pause.
func (c *Conn) Pause() {
	c.k.call("Pause", func() { c.k.Driver.Pause(c.ID) })
	if !c.paused {
		c.paused, c.sincePause = true, 0
	}
}

// Resume is Driver.Resume.
func (c *Conn) Resume() {
	c.paused = false
	c.k.call("Resume", func() { c.k.Driver.Resume(c.ID) })
}

// Close is Driver.Close.
func (c *Conn) Close() { c.leave("Close", func() { c.k.Driver.Close(c.ID) }) }

// Abort is Driver.Abort.
func (c *Conn) Abort() { c.leave("Abort", func() { c.k.Driver.Abort(c.ID) }) }

// CloseListener is Driver.CloseListener.
func (c *Conn) CloseListener() { c.leave("CloseListener", func() { c.k.Driver.CloseListener(c.ID) }) }

// StopAccept is Driver.StopAccept.
func (c *Conn) StopAccept() {
	c.k.call("StopAccept", func() { c.k.Driver.StopAccept(c.ID) })
	c.stopped = true
}

// ResumeAccept is Driver.ResumeAccept.
func (c *Conn) ResumeAccept() {
	c.stopped = false
	c.k.call("ResumeAccept", func() { c.k.Driver.ResumeAccept(c.ID) })
}

// Detach is Driver.Detach.
func (c *Conn) Detach() error {
	var err error
	c.k.call("Detach", func() { err = c.k.Driver.Detach(c.ID) })
	if err == nil && c.leaving == "" {
		c.leaving = "Detach"
	}
	return err
}

// leave notes the call before it is made: from then on only the last event may come.
func (c *Conn) leave(op string, f func()) {
	if c.leaving == "" {
		c.leaving = op
	}
	c.k.call(op, f)
}

// pokeStale calls every method with the id of a connection that is over. Nothing may happen.
func (c *Conn) pokeStale() {
	k := c.k
	k.t.Helper()
	if c.listener {
		k.call("StopAccept (stale)", func() { k.Driver.StopAccept(c.ID) })
		k.call("ResumeAccept (stale)", func() { k.Driver.ResumeAccept(c.ID) })
		k.call("CloseListener (stale)", func() { k.Driver.CloseListener(c.ID) })
		return
	}
	for op, f := range map[string]func(driver.ID){
		"CloseWrite": k.Driver.CloseWrite, "Pause": k.Driver.Pause, "Resume": k.Driver.Resume,
		"Close": k.Driver.Close, "Abort": k.Driver.Abort,
	} {
		k.call(op+" (stale)", func() { f(c.ID) })
	}
	k.call("Detach (stale)", func() {
		if err := k.Driver.Detach(c.ID); !errors.Is(err, driver.ErrStale) {
			errorf(k.t, "Detach of a stale id: %v, want ErrStale", err)
		}
	})
	k.call("Send (stale)", c.sendStale)
}

// sendStale checks that the driver gives its reference to the block back, once. It asks the block:
// how many blocks are in use says nothing while other connections write.
func (c *Conn) sendStale() {
	block := buf.From([]byte("stale"))
	var chain buf.Chain
	chain.AppendBlock(block.Retain())
	if n := c.k.Driver.Send(c.ID, &chain); n != 0 {
		errorf(c.k.t, "Send on a stale id queued %d bytes", n)
	}
	if chain.Len() != 0 {
		errorf(c.k.t, "Send on a stale id left the chain with its caller")
		chain.Release()
	}
	defer func() {
		if p := recover(); p != nil {
			errorf(c.k.t, "Send on a stale id kept the block or released it twice: %v", p)
		}
	}()
	block.Reset()
	block.Release()
}

func (c *Conn) String() string {
	return fmt.Sprintf("%x (received %d, queued %d, sent %d, ended %v, paused %v, left by %q, over %v, err %v)",
		uint64(c.ID), len(c.In), c.Queued, c.Sent, c.Ended, c.paused, c.leaving, c.Over, c.Err)
}
