// Package hub is one node of a push server without the calls of programs: it holds the sessions of
// clients and the channels that they are subscribed to. All protocols share it, and it names none
// of them: each is a [Door], which is opened with the [Hub].
//
// The contract of a [Door], which is one protocol, is in door.go. form.go has the [Form] in which a
// door's clients get messages, and the [Transport] that carries them.
//
// The life of a client, top to bottom:
//
//   - requests.go says whether its request may come in, admission.go who it is, transports.go opens
//     a WebSocket or a response that does not end; responses.go does all of that for clients that
//     say everything in one request. hooks.go and callbacks.go are what the program
//     has to say.
//   - session.go is the [Session] from its start to its end; operations.go and subscription.go are
//     what a door does with it. sessions.go has the list of them, and drains it. The wheel
//     (wheel.go) calls sessions at their deadlines.
//
// The life of a publication:
//
//   - publish.go checks it, and passes it to the bus.
//   - channel.go receives it from the bus, has it encoded once for each form (encoder.go, by the
//     door's Form.Publications), and offers the bytes to its sessions by reference. channels.go
//     finds the channel.
//   - A client that reads too slowly is disconnected by Session.TooSlow, in session.go, or misses
//     publications under a policy that drops, in slow.go. recover.go finds what clients that return
//     have missed.
//
// move.go moves all of that to the hub of another process, and movestream.go clients that read one
// long response.
//
// comeback.go tells clients that are refused for now when to come back. backlog.go says when the
// node takes no publications. figures.go counts, and refusals.go has what was refused. node.go is
// what all of these files know: names, rules, limits (limits.go), time and randomness.
package hub

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/guard"
	"github.com/myriad-go/myriad/server/push/policy"
	"github.com/myriad-go/myriad/server/push/token"
)

// A Config configures a Hub. All fields without "nil" or "zero" in their comment must be set.
type Config struct {
	Bus     bus.Bus
	OwnsBus bool // Shutdown closes Bus
	Rules   *policy.Table
	Rates   policy.Rates    // zero: no limits
	Tokens  *token.Verifier // nil: clients need no token
	Keys    *guard.Keys
	Origins guard.Origins
	Limits  Limits // zero: the defaults
	Timing  Timing // zero: the defaults

	Forms   []Form // of all doors: see FormsOf
	Hooks   Hooks
	RPC     func(ctx context.Context, client Caller, method string, data []byte) ([]byte, error) // nil: no answer
	Message func(ctx context.Context, client Caller, data []byte)                                // nil: none is taken

	// Late says how late the loops are that carry the connections: see myriad.Engine.Late. nil:
	// they are never late.
	Late func() time.Duration

	Version string // as clients see it
	Clock   Clock
	Random  io.Reader // any goroutine may read it
	// OpenStream begins a response that outlives its handler, for simulation; nil: with
	// web.Detached.
	OpenStream func(w http.ResponseWriter) (ResponseStream, error)
	Logger     *slog.Logger
	// Console says that there is a console, which shows the latest refusals.
	Console bool
}

// A Hub is one node of a push server, without the calls of programs. Its methods, which doors call,
// are those of its parts. A part knows the parts that it needs, and no Hub.
type Hub struct {
	*node         // its name, rules, limits and time
	*gate         // publications, until the node drains
	*figures      // what is counted
	*refusals     // requests and commands that were refused
	*callbacks    // hooks and other functions of the program
	*admission    // who a client is
	*adviser      // when clients may come back that are refused for now
	*requestGuard // rates, keys and origins of HTTP requests
	*transports   // WebSockets and responses that do not end
	*busClient    // publish, history and presence
	*sessions     // the list of clients, and their time

	forms    formTable
	channels *channels
	movers   []StreamMover            // complete when the doors are open
	thawers  map[string]myriad.Thawer // likewise: of their WebSockets
	restored *Restore                 // until Thaw; nil: the hub has no state of another process
	// offersStreams is what OfferStreams was called with.
	offersStreams atomic.Bool
}

// New returns a hub whose clock stands still. The caller opens the doors with it, and then calls
// StartClock. It returns an error if there are more forms than Door allows.
func New(c Config) (*Hub, error) {
	if err := errors.Join(checkForms(c.Forms), c.Rates.Check()); err != nil {
		return nil, err
	}
	n := &node{version: c.Version, rules: c.Rules, limits: c.Limits.WithDefaults(), timing: c.Timing.withDefaults(),
		clock: c.Clock, random: random{c.Random}, log: c.Logger}
	n.id = n.random.newClientID()
	n.rates.Set(c.Rates)
	h := &Hub{node: n, gate: new(gate), figures: new(figures), refusals: &refusals{node: n, console: c.Console},
		forms: newForms(c.Forms)}
	h.callbacks = newCallbacks(n, h.refusals, c.Hooks, c.RPC, c.Message)
	h.admission = &admission{node: n, callbacks: h.callbacks, tokens: c.Tokens}
	h.adviser = newAdviser(n, h.figures)
	h.requestGuard = &requestGuard{node: n, refusals: h.refusals, keys: c.Keys, origins: c.Origins, gate: h.gate,
		adviser: h.adviser}
	h.transports = newTransports(n, c.Hooks.AtOnce, c.OpenStream)
	full := &backlog{queue: n.limits.Queue, log: c.Logger}
	h.busClient = newBusClient(n, c.Bus, c.OwnsBus, h.gate, full, h.figures, h.refusals)
	h.sessions = newSessions(n, h.gate, h.figures, full)
	h.wheel.lateness.of = c.Late
	h.channels = newChannels(n, h.busClient, h.figures, h.forms)
	return h, nil
}

// SubscribersHere returns how many subscribers a channel has on this node.
func (h *Hub) SubscribersHere(channel string) int { return h.channels.subscribers(channel) }

// MatchingChannels lists at most `most` channels of this node whose names are wanted, those with
// the most subscribers first.
func (h *Hub) MatchingChannels(wanted func(name string) bool, most int) ChannelList {
	return h.channels.matching(wanted, most)
}

// Subscriptions returns the number of members of all channels, other than operators.
func (h *Hub) Subscriptions() int { return h.channels.subscriptions() }

// Shutdown drains, and then closes the bus if it is the hub's own: see push.Server.Shutdown.
func (h *Hub) Shutdown(ctx context.Context) error {
	return errors.Join(h.drain(ctx), h.pool.Close(ctx), h.close())
}

// drain disconnects every client with "shutdown", after everything queued for it. It returns when
// all sessions have ended, or with ctx's error. Clients are disconnected in both cases.
func (h *Hub) drain(ctx context.Context) error {
	_ = h.Drain(ctx) // if publications still run then, ctx has ended
	return h.disconnectAll(ctx)
}

// close stops the clock, releases the node's messages and what it has of the bus, and closes its
// own bus. No session may be used afterwards.
func (h *Hub) close() error {
	if !h.stopClock() {
		return nil
	}
	for _, f := range h.forms {
		f.pings.Release()
	}
	return h.busClient.close()
}
