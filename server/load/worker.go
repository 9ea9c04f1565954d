package load

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
	"github.com/myriad-go/myriad/websocket"
)

// A part is one worker's share of a plan.
type part struct {
	Plan
	First     int           // the number of its first connection
	Speakers  int           // the number of the first connection that sends to a room
	Run       uint64        // a random number of the run, which is in the ids of messages
	Publishes bool          // it has the publishers
	Every     time.Duration // between its updates
	Beat      time.Duration // between two timers that it starts to see how late they fire
	Watched   bool          // the updates are shown as they come
}

// A worker makes the load of one part, in this process.
type worker struct {
	plan   *part
	target *url.URL
	tls    *tls.Config
	mux    *muxRequest // with Plan.HTTP2

	engines  []*myriad.Engine // one for each lane
	lanes    []*lane
	next     atomic.Uint32  // connections, by which lanes take turns
	dials    atomic.Uint32  // by which sources and addresses take turns
	audience *audience      // of Kind Push, and Arrivals
	arrivals []arrival      // of Kind Arrivals
	last     []atomic.Int64 // of Kind Push: the number of each channel's last publication
	connect  []byte

	sockets []*websocket.DialOptions // of WebSockets, one for each lane

	opener *opener
	places int // descriptors for connections: less than are wanted if the limit is lower
	tasks  sync.WaitGroup
	ctx    context.Context // ends when nothing is to be opened any more
	cancel context.CancelFunc
}

// newWorker starts the loops of a worker. The caller calls close.
func newWorker(p *part) (*worker, error) {
	u, err := p.target()
	if err != nil {
		return nil, err
	}
	w := &worker{plan: p, target: u, connect: connectCommand(p.Token)}
	w.places = min(w.wanted(), connectionLimit())
	w.ctx, w.cancel = context.WithCancel(context.Background())
	if secure(u) {
		w.tls = &tls.Config{ServerName: u.Hostname(), InsecureSkipVerify: p.Insecure,
			//nolint:gosec // it is asked for
			ClientSessionCache: tls.NewLRUClientSessionCache(64)}
	}
	if p.HTTP2 {
		w.mux = newMuxRequest(p.Plan, u)
		if w.tls != nil {
			w.tls.NextProtos = []string{"h2"}
		}
	}
	if p.Kind == Push || p.Kind == Arrivals {
		w.audience, w.last = newAudience(p), make([]atomic.Int64, p.Channels)
	}
	message := make([]byte, p.Size)
	for i := range message {
		message[i] = 'a' + byte(rand.IntN(26))
	}
	if p.Message != "" {
		message = []byte(p.Message)
	}
	for range p.Loops {
		// Our own failures are counted; the engine's log would repeat them for each connection.
		e, err := myriad.Start(myriad.Config{Loops: 1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			w.close()
			return nil, err
		}
		l := newLane(p, message)
		w.engines, w.lanes = append(w.engines, e), append(w.lanes, l)
		w.sockets = append(w.sockets, w.socketOptions(l, e))
	}
	return w, nil
}

// close ends all connections and loops.
func (w *worker) close() {
	w.cancel()
	if w.audience != nil {
		w.audience.abort()
	}
	done, cancel := context.WithCancel(context.Background())
	cancel() // what is open is aborted
	for _, e := range w.engines {
		_ = e.Shutdown(done) // it says that it had to abort
	}
	w.tasks.Wait()
}

// openAll begins to open all connections, as far as there are descriptors: those that publish
// first, because without them a run has nothing to measure.
func (w *worker) openAll() {
	var all []dialer
	if w.plan.Publishes {
		for i := range w.plan.Channels {
			all = append(all, &publisher{channel: i})
		}
	}
	next := 0
	fresh := func() dialer {
		i := next
		if next++; next > w.places {
			return nil
		}
		switch {
		case i < len(all):
			return all[i]
		case w.plan.Kind == Push:
			return &w.audience.subscribers[i-len(all)]
		}
		return new(requester)
	}
	var pace *pacer
	if w.plan.Pace {
		pace = newPacer()
	}
	w.opener = newOpener(w.plan.Opening, pace, fresh)
	if w.plan.Kind == Arrivals {
		w.expect()
		return
	}
	w.tasks.Go(func() { w.opener.run(w.ctx, w.launch) })
}

// launch makes an attempt of the opener.
func (w *worker) launch(d dialer) {
	w.tasks.Go(func() {
		began := time.Now()
		err := d.open(w)
		if err != nil && w.ctx.Err() == nil {
			w.lanes[0].failed("connecting: " + reasonOf(err))
		}
		w.opener.ended(d, began, time.Now(), err)
	})
}

// again has a connection opened again that has ended. taken says whether the server had taken it
// in. Any goroutine; it does not wait.
func (w *worker) again(d dialer, taken bool) {
	if taken {
		d.dialing().succeeded()
	} else {
		d.dialing().failed()
	}
	w.reopen(d)
}

// reopen has a connection opened again that has ended, after the wait that its state asks for. Any
// goroutine; it does not wait.
func (w *worker) reopen(d dialer) {
	if w.ctx.Err() == nil {
		w.opener.again(d, time.Now())
	}
}

// place picks the lane of the next connection, by its number.
func (w *worker) place() int { return int(w.next.Add(1)) % len(w.lanes) }

// dial opens a TCP connection from the next source.
func (w *worker) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, w.plan.Timeout)
	defer cancel()
	// A probe every 15 s on each of very many connections would be most of what the kernel does.
	d, turn, to := net.Dialer{Control: control, KeepAlive: -1}, int(w.dials.Add(1)), address(w.target)
	if n := len(w.plan.Addresses); n > 0 {
		to = w.plan.Addresses[turn%n]
	}
	if n := len(w.plan.Sources); n > 0 {
		source, err := netip.ParseAddr(w.plan.Sources[turn%n])
		if err != nil {
			return nil, err
		}
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	return d.DialContext(ctx, "tcp", to)
}

// serve opens a connection of bytes and has h serve it, through TLS if the URL says so.
func (w *worker) serve(place int, h myriad.Handler) error {
	nc, err := w.dial(w.ctx)
	if err != nil {
		return err
	}
	if w.tls != nil { // a failed handshake closes h
		h = tlsloop.Options{Timeout: w.plan.Timeout, Failed: func(*myriad.Conn, error, uint64) {}}.Client(w.tls, h)
	}
	_, err = w.engines[place].AdoptWait(nc, nil, h)
	return err
}

// A requester is a connection that makes requests, as the opener knows it.
type requester struct{ state dialState }

func (r *requester) dialing() *dialState { return &r.state }

func (r *requester) open(w *worker) error {
	i := w.place()
	switch w.plan.Kind {
	case Echo, Idle:
		return w.openSocket(i, w.target, r)
	case Redis:
		return w.serve(i, w.wire(i, newRedisTalk(w.plan), r))
	}
	if w.mux != nil {
		return w.serve(i, newMuxConn(w.lanes[i], w.mux, r, w.again))
	}
	request := httpRequest(w.plan.Plan, w.target)
	return w.serve(i, w.wire(i, newHTTPTalk(request, w.plan.Pipeline, w.plan.Method == "HEAD"), r))
}

// wire is a link that is opened again when it is lost.
func (w *worker) wire(place int, t talk, d dialer) *wireLink {
	return &wireLink{lane: w.lanes[place], talk: t, dialer: d, reopen: w.reopen}
}

func (s *subscriber) dialing() *dialState { return &s.state }

func (s *subscriber) open(w *worker) error { return w.openSubscriber(s) }

// openSubscriber opens the connection of a subscriber.
func (w *worker) openSubscriber(s *subscriber) error {
	i := w.place()
	switch w.plan.Protocol {
	case Centrifuge:
	case Rooms:
		at, err := w.roomURL(s.channel(), int(s.number))
		if err != nil {
			return err
		}
		return w.openSocket(i, at, s)
	default:
		return w.serve(i, &streamLink{worker: w, lane: w.lanes[i], subscriber: s})
	}
	at := *w.target
	if at.Path == "" || at.Path == "/" {
		at.Path = "/connection/websocket"
	}
	return w.openSocket(i, &at, s)
}

// left is called when the connection of a subscriber has ended.
func (w *worker) left(s *subscriber, err error) {
	if w.arrivals != nil {
		w.arrivals[s.number-w.audience.first].left(err)
		return
	}
	unasked, taken := w.audience.left(s)
	if unasked && w.ctx.Err() == nil {
		w.lanes[0].dropped(err)
		w.opener.lost(time.Now())
	}
	w.again(s, taken)
}

// open is how many connections there are, and subscribers only if they are subscribed.
func (w *worker) open() (n int) {
	for _, l := range w.lanes {
		n += l.open()
	}
	if w.audience != nil && w.arrivals == nil {
		n += w.audience.open()
	}
	return n
}

// wanted is how many connections there are to be.
func (w *worker) wanted() int {
	if w.plan.Publishes {
		return w.plan.Connections + w.plan.Channels
	}
	return w.plan.Connections
}

// start begins to send, on the connections that there are. What is due is sent by the pacer, and by
// lanes that have a reply. What counts begins at from. absent is how many subscribers of each
// channel are not there; nil: none.
func (w *worker) start(at, from time.Time) (absent []int) {
	w.opener.settle()
	if w.plan.Kind == Push {
		absent = w.audience.start(from)
	}
	rate, lanes := w.plan.Rate/float64(w.plan.Pipeline), w.lanes
	switch {
	case w.plan.Kind == Idle, w.plan.Kind == Push && !w.plan.Publishes:
		return absent
	case w.plan.Kind == Push:
		lanes = lanes[:1]
	}
	for i, l := range lanes {
		l.start(at, from, rate, i, len(lanes))
	}
	if rate > 0 {
		w.tasks.Go(func() { w.pace(at, rate) })
	}
	return absent
}

// finestPace is the shortest time between two looks at what is due. coarsestPace is how long the
// pacer sleeps before it looks whether the run has ended.
const (
	finestPace   = 100 * time.Microsecond
	coarsestPace = 100 * time.Millisecond
)

// pace has the lanes look whenever something is due, until the run ends.
func (w *worker) pace(at time.Time, rate float64) {
	step := max(time.Duration(float64(time.Second)/rate), finestPace)
	for next := at; w.ctx.Err() == nil; {
		wake := time.Now().Add(coarsestPace)
		if wake.Before(next) {
			sleepUntil(wake)
			continue
		}
		sleepUntil(next)
		now := time.Now()
		for _, l := range w.lanes {
			l.tick(now)
		}
		if next = next.Add(step); next.Before(now) {
			next = now // it was late: there is nothing to catch up with
		}
	}
}

// underWay is how many connections wait for a reply.
func (w *worker) underWay() (n int) {
	for _, l := range w.lanes {
		n += l.underWay()
	}
	return n
}
