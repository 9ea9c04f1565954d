package myriad

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// briefly is how long a bridge's reader waits for more before it leaves its connection to a
// Watcher.
const briefly = 10 * time.Millisecond

// A direction is one way of a bridge.
type direction struct {
	b        *bridge
	src, dst net.Conn
	watch    driver.Watch // of src; nil: its goroutine waits itself
	idle     bool         // guarded by bridge.resting: it has no goroutine
}

// run is the time of one goroutine: until the end, or until nothing comes for a while.
func (d *direction) run() { d.goOn(d.copy) }

// goOn runs a direction's next part, which says whether what ended it was src's error. The net.Conn
// is a user's, and a *tls.Conn has callbacks in its configuration. A panic there, or the end of the
// goroutine, costs this connection alone.
func (d *direction) goOn(part func() (fromSource bool, err error)) {
	returned, fromSource, err := false, true, error(nil)
	defer func() {
		if v := recover(); !returned {
			d.b.engine.cfg.Logger.Error("myriad: panic in an adopted net.Conn",
				"conn", fmt.Sprintf("%T", d.b.outer), "panic", v, "stack", string(debug.Stack()))
			fromSource, err = d == &d.b.in, fmt.Errorf("myriad: panic in an adopted net.Conn: %v", v)
		}
		if err == errRest {
			d.watch.Arm()
			return
		}
		d.end(fromSource, err)
	}()
	fromSource, err = part()
	returned = true
}

// errRest is copy's result when the direction has become idle.
var errRest = errors.New("nothing to copy")

// copy copies until the end of src or an error, and says whether the error was that of src.
func (d *direction) copy() (fromSource bool, err error) {
	block := buf.Get(bridgeBuffer)
	defer block.Release()
	p := block.Extend()
	for {
		d.hurry()
		n, err := d.src.Read(p)
		if n > 0 {
			if _, err := d.dst.Write(p[:n]); err != nil {
				return false, err
			}
		}
		switch {
		case err == nil:
		case err == io.EOF:
			return true, nil
		case d.watch == nil || !errors.Is(err, os.ErrDeadlineExceeded):
			return true, err
		case d.rest():
			return true, errRest
		case d != &d.b.out || d.b.wasAborted():
			return true, err
		}
	}
}

// hurry has the next read end soon, unless the end is near: then what the engine has sent is read
// to its end, and bridge.end has set all other deadlines.
func (d *direction) hurry() {
	if d.watch == nil {
		return
	}
	d.b.resting.Lock()
	defer d.b.resting.Unlock()
	switch {
	case !d.b.over:
		_ = d.src.SetReadDeadline(d.b.engine.sys.Now().Add(briefly))
	case d == &d.b.out && !d.b.wasAborted():
		_ = d.src.SetReadDeadline(time.Time{})
	}
}

// rest makes the direction idle if it may be: the goroutine has only to arm the watch and to go.
func (d *direction) rest() bool {
	d.b.resting.Lock()
	defer d.b.resting.Unlock()
	d.idle = !d.b.over
	return d.idle
}

// awake gives an idle direction a goroutine.
func (d *direction) awake() {
	d.b.resting.Lock()
	defer d.b.resting.Unlock()
	d.rouse()
}

// rouse is awake for callers that hold resting.
func (d *direction) rouse() {
	if d.idle {
		d.idle = false
		d.b.engine.sys.Go(d.run)
	}
}

// end is called once, by the direction's last goroutine.
func (d *direction) end(fromSource bool, err error) {
	if d.watch != nil {
		d.watch.Close()
	}
	if d == &d.b.in {
		d.b.inputEnded(err)
	} else {
		d.b.outputEnded(fromSource, err)
	}
	d.b.done()
}
