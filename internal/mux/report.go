package mux

import (
	"fmt"
	"net"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/pace"
)

// A Log gets what the peers of a Config's connections do wrong: the first fault of a kind, and then
// one in reportPeriod, so that no peer can fill a log. Faults are of one kind if they have the same
// code and the same scope, a stream or a connection. Create it with NewLog.
type Log struct {
	report func(Fault)
	kinds  [2 * (h2.HTTP11Required + 1)]pace.Reports
}

// reportPeriod is how often a Log tells of one kind of fault at most.
const reportPeriod = 10 * time.Second

// NewLog makes a Log that hands faults to report, which is called on a loop and must not block.
func NewLog(report func(Fault)) *Log { return &Log{report: report} }

// A Fault is an error by which this end has closed a stream or a connection. With NoError it is
// something that this end has mended.
type Fault struct {
	Remote net.Addr
	Stream uint32 // 0: of the connection
	Code   h2.Code
	Reason string // of the peer's words it has a field's name at most, cut and quoted
	Times  uint64 // faults of this kind since the last one that was told of, with this one
}

// String is a line for a log, which lacks the name of the package that writes it.
func (f Fault) String() string {
	text := fmt.Sprintf("HTTP/2 with %v", f.Remote)
	if f.Stream != 0 {
		text += fmt.Sprintf(", stream %d", f.Stream)
	}
	if f.Code != h2.NoError {
		text += fmt.Sprintf(": %v", f.Code)
	}
	text += ": " + f.Reason
	if f.Times > 1 {
		text += fmt.Sprintf(" (and %d more)", f.Times-1)
	}
	return text
}

// add reports a fault of a connection, unless one of its kind was reported shortly before.
func (l *Log) add(now time.Time, of *myriad.Conn, f Fault) {
	kind := 2 * min(f.Code, h2.HTTP11Required)
	if f.Stream != 0 {
		kind++
	}
	if n, due := l.kinds[kind].Next(now, reportPeriod); due {
		f.Remote, f.Times = of.RemoteAddr(), n
		l.report(f)
	}
}
