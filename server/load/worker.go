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
	audience *audience      // of Kind Push
	last     []atomic.Int64 // of Kind Push: the number of each channel's last publication
	connect  []byte

	sockets []*websocket.DialOptions // of WebSockets, one for each lane

	opening chan struct{} // a place for each connection that is being opened
	tasks   sync.WaitGroup
	ctx     context.Context // ends when nothing is to be opened any more
	cancel  context.CancelFunc
}

// newWorker starts the loops of a worker. The caller calls close.
func newWorker(p *part) (*worker, error) {
	u, err := p.target()
	if err != nil {
		return nil, err
	}
	w := &worker{plan: p, target: u, opening: make(chan struct{}, p.Opening), connect: connectCommand(p.Token)}
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
	if p.Kind == Push {
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
	done, cancel := context.WithCancel(context.Background())
	cancel() // what is open is aborted
	for _, e := range w.engines {
		_ = e.Shutdown(done) // it says that it had to abort
	}
	w.tasks.Wait()
}

// openAll begins to open all connections.
func (w *worker) openAll() {
	w.tasks.Go(func() {
		for i := range w.plan.Connections {
			if w.plan.Kind == Push {
				w.openLater(0, func() error { return w.openSubscriber(&w.audience.subscribers[i]) })
			} else {
				w.openLater(0, w.openLink)
			}
		}
		if w.plan.Publishes {
			for i := range w.plan.Channels {
				w.openLater(0, func() error { return w.openPublisher(i) })
			}
		}
	})
}

// retryAfter is how long a connection that could not be opened, or was lost, waits before it is
// opened again; somewhat longer for each, so that not all of them come at once.
const retryAfter = 200 * time.Millisecond

// openLater opens one connection when there is a place to do so, after a wait. It tries again until
// it succeeds or the run ends. It waits for the place.
func (w *worker) openLater(after time.Duration, open func() error) {
	select {
	case w.opening <- struct{}{}:
	case <-w.ctx.Done():
		return
	}
	w.tasks.Go(func() {
		defer func() { <-w.opening }()
		for w.pause(after) {
			err := open()
			if err == nil {
				return
			}
			if w.ctx.Err() == nil {
				w.lanes[0].failed("connecting: " + reasonOf(err))
			}
			after = retryAfter + rand.N(retryAfter)
		}
	})
}

// again opens a connection that was lost. Any goroutine; it does not wait.
func (w *worker) again(open func() error) {
	if w.ctx.Err() == nil {
		w.tasks.Go(func() { w.openLater(retryAfter+rand.N(retryAfter), open) })
	}
}

// pause waits, and reports whether the run goes on.
func (w *worker) pause(d time.Duration) bool {
	if d == 0 {
		return w.ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-w.ctx.Done():
		return false
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

// openLink opens a connection that makes requests.
func (w *worker) openLink() error {
	i := w.place()
	switch w.plan.Kind {
	case Echo, Idle:
		return w.openSocket(i, w.target, nil)
	case Redis:
		return w.serve(i, w.wire(i, newRedisTalk(w.plan), w.openLink))
	}
	if w.mux != nil {
		return w.serve(i, newMuxConn(w.lanes[i], w.mux, func() { w.again(w.openLink) }))
	}
	request := httpRequest(w.plan.Plan, w.target)
	return w.serve(i, w.wire(i, newHTTPTalk(request, w.plan.Pipeline, w.plan.Method == "HEAD"), w.openLink))
}

// wire is a link that is opened again when it is lost.
func (w *worker) wire(place int, t talk, open func() error) *wireLink {
	return &wireLink{lane: w.lanes[place], talk: t, gone: func() { w.again(open) }}
}

// openPublisher opens the connection that publishes to one channel.
func (w *worker) openPublisher(channel int) error {
	if w.plan.Protocol == Rooms {
		return w.openSpeaker(channel)
	}
	const i = 0 // all publishers share a lane, so that the rate is theirs together
	t := newPublishTalk(w.plan, w.target, w.audience.topics[channel], &w.last[channel])
	return w.serve(i, w.wire(i, t, func() error { return w.openPublisher(channel) }))
}

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
	if w.audience.left(s) && w.ctx.Err() == nil {
		w.lanes[0].dropped(err)
	}
	w.again(func() error { return w.openSubscriber(s) })
}

// open is how many connections there are, and subscribers only if they are subscribed.
func (w *worker) open() (n int) {
	for _, l := range w.lanes {
		n += l.open()
	}
	if w.audience != nil {
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

// start begins to send. What is due is sent by the pacer, and by lanes that have a reply. What
// counts begins at from.
func (w *worker) start(at, from time.Time) {
	if w.audience != nil {
		w.audience.start(from)
	}
	rate, lanes := w.plan.Rate/float64(w.plan.Pipeline), w.lanes
	switch {
	case w.plan.Kind == Idle, w.plan.Kind == Push && !w.plan.Publishes:
		return
	case w.plan.Kind == Push:
		lanes = lanes[:1]
	}
	for i, l := range lanes {
		l.start(at, from, rate, i, len(lanes))
	}
	if rate > 0 {
		w.tasks.Go(func() { w.pace(at, rate) })
	}
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
