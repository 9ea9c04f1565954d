package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// output is what a connection has still to send: bytes, then at most one piece of a file.
type output struct {
	chain  buf.Chain
	shadow []byte // what the chain held when it was sent: a block that changes afterwards is a mistake
	file   driver.File
	off    int64
	left   int64
	sent   int64 // not reported yet
	pump   bool  // planned
}

// idle reports whether everything has been sent and reported.
func (o *output) idle() bool { return o.empty() && o.sent == 0 }

func (o *output) empty() bool { return o.chain.Len() == 0 && o.file == nil }

func (o *output) queued() int64 { return int64(o.chain.Len()) + o.left }

func (o *output) drop() {
	o.chain.Release()
	o.shadow = nil
	if o.file != nil {
		o.file.Close()
		o.file = nil
	}
	o.left, o.sent = 0, 0
}

// Send implements driver.Driver.
func (d *Driver) Send(id driver.ID, chain *buf.Chain) int64 {
	d.enter("Send")
	defer d.exit()
	c := d.conn("Send", id)
	if c == nil || c.sendErr != nil {
		chain.Release()
		return 0
	}
	c.mustBeLive("Send")
	c.mustTakeOutput("Send")
	if chain.Len() == 0 {
		chain.Release()
		return 0
	}
	d.w.spend(d.w.o.Costs.Send)
	direct := c.out.empty()
	was := len(c.out.shadow)
	c.out.shadow = chain.AppendTo(c.out.shadow)
	d.w.noteBytes(d.name, "send", uint64(id), c.out.shadow[was:])
	n := int64(chain.Len())
	chain.Move(&c.out.chain)
	if direct {
		n -= c.transfer()
	}
	c.planPump()
	return n
}

// SendMany implements driver.Capabilities.
func (d *Driver) SendMany(batch []driver.Outgoing) {
	for i := range batch {
		batch[i].Queued = d.Send(batch[i].ID, batch[i].Chain)
	}
}

// SendFile implements driver.Driver.
func (d *Driver) SendFile(id driver.ID, f driver.File, off, n int64) (int64, error) {
	d.enter("SendFile")
	defer d.exit()
	c := d.conn("SendFile", id)
	if c == nil || c.sendErr != nil || n <= 0 {
		f.Close()
		return 0, nil
	}
	c.mustBeLive("SendFile")
	c.mustTakeOutput("SendFile")
	d.note("sendfile", c, n)
	d.w.spend(d.w.o.Costs.Send)
	c.out.file, c.out.off, c.out.left = f, off, n
	if c.out.chain.Len() == 0 {
		n -= c.transfer()
	}
	c.planPump()
	return n, nil
}

func (c *conn) mustBeLive(op string) {
	if c.state != live {
		c.d.refuse("%s on %x before Dialed: a connection begins with that", op, uint64(c.id()))
	}
}

func (c *conn) mustTakeOutput(op string) {
	switch {
	case c.closeWrite:
		c.d.refuse("%s on %x after CloseWrite", op, uint64(c.id()))
	case c.out.file != nil || c.out.left > 0:
		c.d.refuse("%s on %x while SendFile is not reported sent", op, uint64(c.id()))
	}
}

// transfer gives the socket what it takes now, and returns how much that was.
func (c *conn) transfer() int64 {
	e, w := c.e, c.d.w
	if e.reset != nil {
		c.sendFails(e.reset)
		return 0
	}
	if e.closed || e.room() == 0 || c.out.empty() {
		return 0
	}
	room := e.room()
	if w.chance(w.o.ShortSend) {
		room = w.rng.IntN(room + 1)
	}
	n := 0
	for n < room && c.out.chain.Len() > 0 {
		n += c.transferBytes(room - n)
	}
	if n < room && c.out.chain.Len() == 0 && c.out.file != nil {
		n += c.transferFile(room - n)
	}
	return int64(n)
}

func (c *conn) transferBytes(room int) int {
	p := c.out.chain.First()
	p = p[:min(len(p), room)]
	if !bytes.Equal(p, c.out.shadow[:len(p)]) {
		c.d.refuse("bytes of %x changed after Send: the blocks belong to the driver until they are sent",
			uint64(c.id()))
	}
	c.e.write(p)
	c.out.shadow = c.out.shadow[len(p):]
	n := len(p)
	c.out.chain.Discard(n)
	return n
}

func (c *conn) transferFile(room int) int {
	p := make([]byte, min(int64(room), c.out.left))
	n, err := c.out.file.ReadAt(p, c.out.off)
	c.e.write(p[:n])
	c.out.off += int64(n)
	c.out.left -= int64(n)
	if c.out.left == 0 {
		c.out.file.Close()
		c.out.file = nil
	} else if err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("sim: the file ended %d bytes before what was promised: %w", c.out.left,
				io.ErrUnexpectedEOF)
		}
		c.sendFails(err)
	}
	return n
}

// sendFails drops what is queued; what the peer had sent is still delivered, then Closed with err.
func (c *conn) sendFails(err error) {
	if c.sendErr == nil {
		c.sendErr = err
		c.d.w.noteErr(c.d.name, "send failed", uint64(c.id()), c.out.queued(), err)
	}
	c.out.drop()
	c.tellOwner()
}

// planPump sees to it that the queue goes on, when there is room, and the FIN behind it.
func (c *conn) planPump() {
	w := c.d.w
	if c.out.pump || c.out.empty() || c.e.room() == 0 {
		return
	}
	c.out.pump = true
	gen := c.gen
	w.after(w.latency(), delivery, func() {
		if c.gen == gen && c.state == live {
			c.out.pump = false
			c.pump()
		}
	})
}

// pump goes on sending.
func (c *conn) pump() {
	if c.e.reset != nil {
		return
	}
	if n := c.transfer(); n > 0 && c.sendErr == nil {
		c.out.sent += n
		c.tellOwner()
	}
	if c.out.empty() && c.closeWrite {
		c.e.closeWrite()
	}
	c.planPump()
}

// resetError is what Closed reports of a connection that broke.
func (c *conn) resetError() error {
	switch {
	case c.sendErr != nil:
		return c.sendErr
	case c.e.reset != nil:
		return c.e.reset
	}
	return syscall.ECONNRESET
}
