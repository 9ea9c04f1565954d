package drivertest

import (
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// A relay stands in front of a driver and passes everything on, both ways, except where a mutant
// has put something else.
type relay struct {
	driver.Driver
	ev    driver.Events // the owner's, while Poll runs
	extra int           // events that the relay made up, or swallowed if negative, in this Poll

	// instead of the driver's method
	wake                                    func()
	poll                                    func(wait time.Duration) (int, error)
	send                                    func(id driver.ID, c *buf.Chain) int64
	pause, resume, close, abort, closeWrite func(id driver.ID)
	stopAccept, resumeAccept, closeListener func(id driver.ID)
	detach                                  func(id driver.ID) error
	attach                                  func(s driver.Socket) (driver.ID, error)

	// instead of the owner's event
	accepted     func(id driver.ID, s driver.Socket)
	acceptFailed func(id driver.ID, err error)
	dialed       func(id driver.ID, local driver.Addr)
	dialFailed   func(id driver.ID, err error)
	received     func(id driver.ID, p []byte)
	ended        func(id driver.ID)
	sent         func(id driver.ID, n int64)
	closed       func(id driver.ID, err error)
	detached     func(id driver.ID, s driver.Socket)
}

func newRelay(d driver.Driver) *relay {
	r := &relay{Driver: d}
	r.wake = d.Wake
	r.send = d.Send
	r.pause, r.resume, r.close, r.abort, r.closeWrite = d.Pause, d.Resume, d.Close, d.Abort, d.CloseWrite
	r.stopAccept, r.resumeAccept, r.closeListener = d.StopAccept, d.ResumeAccept, d.CloseListener
	r.detach, r.attach = d.Detach, d.Attach
	r.poll = r.pollDriver
	r.accepted = func(id driver.ID, s driver.Socket) { r.ev.Accepted(id, s) }
	r.acceptFailed = func(id driver.ID, err error) { r.ev.AcceptFailed(id, err) }
	r.dialed = func(id driver.ID, local driver.Addr) { r.ev.Dialed(id, local) }
	r.dialFailed = func(id driver.ID, err error) { r.ev.DialFailed(id, err) }
	r.received = func(id driver.ID, p []byte) { r.ev.Received(id, p) }
	r.ended = func(id driver.ID) { r.ev.Ended(id) }
	r.sent = func(id driver.ID, n int64) { r.ev.Sent(id, n) }
	r.closed = func(id driver.ID, err error) { r.ev.Closed(id, err) }
	r.detached = func(id driver.ID, s driver.Socket) { r.ev.Detached(id, s) }
	return r
}

func (r *relay) pollDriver(wait time.Duration) (int, error) {
	r.extra = 0
	n, err := r.Driver.Poll(wait, relayed{r})
	return n + r.extra, err
}

func (r *relay) Poll(wait time.Duration, ev driver.Events) (int, error) {
	r.ev = ev
	return r.poll(wait)
}

func (r *relay) Wake()                                     { r.wake() }
func (r *relay) Send(id driver.ID, c *buf.Chain) int64     { return r.send(id, c) }
func (r *relay) Pause(id driver.ID)                        { r.pause(id) }
func (r *relay) Resume(id driver.ID)                       { r.resume(id) }
func (r *relay) Close(id driver.ID)                        { r.close(id) }
func (r *relay) Abort(id driver.ID)                        { r.abort(id) }
func (r *relay) CloseWrite(id driver.ID)                   { r.closeWrite(id) }
func (r *relay) StopAccept(id driver.ID)                   { r.stopAccept(id) }
func (r *relay) ResumeAccept(id driver.ID)                 { r.resumeAccept(id) }
func (r *relay) CloseListener(id driver.ID)                { r.closeListener(id) }
func (r *relay) Detach(id driver.ID) error                 { return r.detach(id) }
func (r *relay) Attach(s driver.Socket) (driver.ID, error) { return r.attach(s) }

// relayed is the relay as the driver sees it.
type relayed struct{ r *relay }

func (e relayed) Accepted(id driver.ID, s driver.Socket) { e.r.accepted(id, s) }
func (e relayed) AcceptFailed(id driver.ID, err error)   { e.r.acceptFailed(id, err) }
func (e relayed) Dialed(id driver.ID, local driver.Addr) { e.r.dialed(id, local) }
func (e relayed) DialFailed(id driver.ID, err error)     { e.r.dialFailed(id, err) }
func (e relayed) Received(id driver.ID, p []byte)        { e.r.received(id, p) }
func (e relayed) Ended(id driver.ID)                     { e.r.ended(id) }
func (e relayed) Sent(id driver.ID, n int64)             { e.r.sent(id, n) }
func (e relayed) Closed(id driver.ID, err error)         { e.r.closed(id, err) }
func (e relayed) Detached(id driver.ID, s driver.Socket) { e.r.detached(id, s) }

// every is true in each nth call.
func every(n int) func() bool {
	count := 0
	return func() bool {
		count++
		return count%n == 0
	}
}
