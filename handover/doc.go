// Package handover moves the live connections of a program to another process of it: an upgrade
// that its clients notice as a pause. docs/adr/0035 says why it works so.
//
// The old process calls Give with a Program: its engine, the servers whose connections move, and
// its own state. The new process calls Take with the same names, prepares, and calls Taken.GoOn:
//
//	old                                new
//	hello: formats of all parts   →
//	                              ←    accept, or refuse: nothing has moved
//	(connections are frozen)
//	states, connections, all      →
//	                              ←    have: "I have all", or refuse
//	go                            →    (connections go on)
//
// The old process decides. It has everything until it has said go: if the new one refuses, fails or
// dies, the old one goes on. The cost was a pause. If the old one dies when the new one has said
// that it has all, the new one goes on. If it dies before that and has sent all states, the new one
// goes on with the connections that have come (Linux). At no time do both read from a connection.
//
// Connections that are not at rest stay in the old process, which goes on with them. While
// Given.MoveRest waits, each follows when it comes to rest, over the same channel:
//
//	connections, all              →
//	                              ←    have, or refuse
//	go                            →    (these connections go on)
//
// Then the program's shutdown ends the others. It also ends connections of servers that are not
// named, and those whose protocol does not move: these are told at once (myriad.Leaver).
package handover

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/myriad-go/myriad"
)

// A Program says what of a program moves. Both processes name the same things alike.
type Program struct {
	Engine *myriad.Engine
	// Servers are those whose connections move: the Thawer of a websocket.Options, a web.Server or
	// a resp.Server.
	Servers map[string]myriad.Thawer
	// States are the program's own. They are frozen in the order of their names, when all
	// connections are frozen, and thawed in that order before the first connection.
	States map[string]State
	// RestWait is how long Give waits for connections to come to rest while others are frozen
	// already, which lengthens their pause. 0: 50 ms. Negative: not at all. Those that take longer
	// may follow without a pause for the others, by Given.MoveRest. Their clients miss what the new
	// process sends to all meanwhile. If they must not, the program ends such connections when Give
	// has returned, and FreezeValue fails for them.
	RestWait time.Duration
	// Timeout bounds each wait for the other process: for one message of it, and until it has taken
	// one. A state is many messages. 0: 10 s.
	Timeout time.Duration

	piece int // bytes of a state in a message; 0: statePiece
}

// A State is something of the program's own that moves with its connections. It is a stream of any
// length, of which neither process has more than a piece in memory: the old process sends what
// Freeze writes while the new one reads it. The calls come on the goroutine of Give or Take, one at
// a time.
type State interface {
	// Formats are the names of what Thaw reads, such as "rooms/1". The first is the one that Freeze
	// writes.
	Formats() []string
	// Freeze stops the state from changing, and writes it down. What it still has to write to
	// connections, it writes before it returns. A Write to w waits until the other process takes
	// more, and fails if that has refused or died. If Freeze returns an error, the hand-over fails,
	// and Freeze has let the state go on: neither GoOn nor Moved is called.
	Freeze(w io.Writer) error
	// Thaw reads the state in the new process, from r until io.EOF. Nothing of it is visible to
	// others yet. What Thaw leaves of r is thrown away. Any other error of r ends the hand-over. If
	// Thaw returns an error, the new process refuses, and neither GoOn nor Moved is called.
	Thaw(format string, r io.Reader) error
	// GoOn is called in the process that goes on with the state, before its connections do: in the
	// old one if it does not move, in the new one if it does.
	GoOn()
	// Moved is called in the process that does not go on, after Freeze or Thaw has returned nil.
	Moved()
}

// Errors of Give, Take and Taken.GoOn, beside those of the network.
var (
	// ErrRefused says that the other process has refused; the error has its reason.
	ErrRefused = errors.New("the other process refuses")
	// ErrFormat says that the two processes do not understand each other's formats.
	ErrFormat = errors.New("format is not understood")
	// ErrProtocol says that a message was not one that may come now.
	ErrProtocol = errors.New("unexpected message")
)

const (
	defaultRestWait = 50 * time.Millisecond
	defaultTimeout  = 10 * time.Second
)

func (p *Program) restWait() time.Duration {
	if p.RestWait == 0 {
		return defaultRestWait
	}
	return max(0, p.RestWait)
}

// within is the end of a wait that begins now.
func (p *Program) within() time.Time { return p.Engine.System().Now().Add(p.patience()) }

// patience is Timeout, or its default.
func (p *Program) patience() time.Duration {
	if p.Timeout > 0 {
		return p.Timeout
	}
	return defaultTimeout
}

// serverNames and stateNames are in the order in which both sides go through them.
func (p *Program) serverNames() []string { return slices.Sorted(maps.Keys(p.Servers)) }
func (p *Program) stateNames() []string  { return slices.Sorted(maps.Keys(p.States)) }

// check fails for a Program that cannot be named in messages.
func (p *Program) check() error {
	if p.Engine == nil {
		return errors.New("handover: Program.Engine is nil")
	}
	seen := map[myriad.Thawer]string{}
	for _, name := range p.serverNames() {
		s := p.Servers[name]
		if other, twice := seen[s]; twice {
			return fmt.Errorf("handover: the servers %q and %q are the same", other, name)
		}
		seen[s] = name
		if err := checkName(name, len(s.Formats())); err != nil {
			return err
		}
	}
	for _, name := range p.stateNames() {
		if err := checkName(name, len(p.States[name].Formats())); err != nil {
			return err
		}
	}
	if n := len(p.Servers) + len(p.States); n > maxNames {
		return fmt.Errorf("handover: %d servers and states, at most %d can be named", n, maxNames)
	}
	return nil
}

func checkName(name string, formats int) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("handover: the name %q must have 1 to %d bytes", name, maxName)
	case formats == 0:
		return fmt.Errorf("handover: %q has no format", name)
	}
	return nil
}
