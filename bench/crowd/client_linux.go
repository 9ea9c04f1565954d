package crowd

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// A state is how far a client has come.
type state uint8

const (
	absent     state = iota // it is not to be in
	waiting                 // it waits for its turn to be opened
	connecting              // its connection is being opened
	greeting                // it has sent Talk.Hello
	joining                 // it has sent Talk.Join
	held                    // it is in
	silent                  // it has died, and the server has not noticed that
	found                   // it has died, and the server has sent a close frame, or ended its connection
)

// A client is in at most once.
type client struct {
	tail  []byte // what has come of a message that is not complete
	since int64  // when its attempt began, or it died: ns on the process's clock
	fd    int32
	state state
}

const (
	maxEvents = 512
	inputSize = 256 << 10
	// mostTail is how much a client keeps of what is not complete.
	mostTail = mostPayload + 16
	// pause is how long a client waits that the server has not let in. One that was in comes back
	// at once.
	pause = 200 * time.Millisecond
	// most is how many reasons are told apart.
	mostReasons = 32
)

// A group is all clients of a process: one epoll loop on one goroutine.
type group struct {
	spec    Spec
	to      *unix.SockaddrInet4
	sources []*unix.SockaddrInet4
	ep      int
	clients []client
	events  []unix.EpollEvent
	input   []byte
	began   time.Time

	wanted int     // clients that are to be in: the first ones
	begun  int     // of these, so many have begun
	rate   float64 // at which they begin; 0: at once
	next   int64   // when the next one begins
	queue  fifo    // clients that come back at once
	paused fifo    // clients that come back after pause
	dials  int     // attempts so far: sources take turns
	taken  int64   // when all events that there were have been taken, the last time

	counts Report
}

func newGroup(s Spec) (*group, error) {
	to, err := netip.ParseAddrPort(s.Addr)
	if err != nil || !to.Addr().Is4() {
		return nil, fmt.Errorf("%q is not an IPv4 address and port", s.Addr)
	}
	if s.Most < 1 || s.Opening < 1 || s.Wait <= 0 {
		return nil, fmt.Errorf("%d clients, %d being opened for %s at most: all must be positive", s.Most, s.Opening,
			s.Wait)
	}
	g := &group{spec: s, to: &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())},
		clients: make([]client, s.Most), events: make([]unix.EpollEvent, maxEvents), input: make([]byte, inputSize),
		began: time.Now()}
	for _, source := range s.Sources {
		from, err := netip.ParseAddr(source)
		if err != nil || !from.Is4() {
			return nil, fmt.Errorf("%q is not an IPv4 address", source)
		}
		g.sources = append(g.sources, &unix.SockaddrInet4{Addr: from.As4()})
	}
	if g.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	return g, nil
}

// close resets all connections.
func (g *group) close() {
	for i := range g.clients {
		if c := &g.clients[i]; c.state >= connecting && c.state != found {
			g.reset(c)
		}
	}
	unix.Close(g.ep)
}

// reset ends a connection, so that no port stays behind in TIME_WAIT.
func (g *group) reset(c *client) {
	_ = unix.SetsockoptLinger(int(c.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(int(c.fd))
	c.tail = nil
}

func (g *group) now() int64 { return int64(time.Since(g.began)) }

// obey takes an order in. Clients that are not wanted any more leave.
func (g *group) obey(o Order) {
	g.wanted, g.rate, g.next = min(o.Clients, len(g.clients)), o.Rate, g.now()
	for i := g.wanted; i < g.begun; i++ {
		switch c := &g.clients[i]; c.state {
		case absent, silent, found:
			continue
		case held:
			g.counts.Held--
			g.reset(c)
			c.state = absent
		case waiting:
			c.state = absent
		default:
			g.counts.Opening--
			g.reset(c)
			c.state = absent
		}
	}
	g.begun = min(g.begun, g.wanted)
	now := g.now()
	for i := g.wanted - 1; i >= 0 && o.Die > 0; i-- {
		if c := &g.clients[i]; c.state == held {
			c.state, c.since = silent, now
			o.Die--
			g.counts.Held--
			g.counts.Silent++
		}
	}
}

// take is the next client whose attempt may begin, or -1.
func (g *group) take(now int64) int {
	for g.paused.n > 0 && g.clients[g.paused.front()].since+int64(pause) <= now {
		g.queue.put(g.paused.take())
	}
	for g.queue.n > 0 {
		if i := int(g.queue.take()); g.clients[i].state == waiting {
			return i
		}
	}
	for g.begun < g.wanted && (g.rate <= 0 || g.next <= now) {
		i := g.begun
		g.begun++
		if g.clients[i].state != absent {
			continue
		}
		if g.rate > 0 {
			g.next += int64(float64(time.Second) / g.rate)
		}
		return i
	}
	return -1
}

// step begins attempts, and handles what has come.
func (g *group) step() error {
	now := g.now()
	for g.counts.Opening < g.spec.Opening {
		i := g.take(now)
		if i < 0 {
			break
		}
		if err := g.open(i, now); err != nil {
			return err
		}
	}
	const longest = 10 * time.Millisecond // an order, a pause or the rate waits no longer
	n, err := unix.EpollWait(g.ep, g.events, int(longest/time.Millisecond))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("epoll_wait: %w", err)
	}
	now = g.now()
	for _, e := range g.events[:max(n, 0)] {
		g.handle(int(e.Fd), e.Events)
	}
	g.counts.Late = max(g.counts.Late, time.Duration(g.now()-g.taken)-longest)
	if n < maxEvents {
		g.taken = now
	}
	return nil
}

// open begins an attempt. It fails if the machine has no more descriptors or ports.
func (g *group) open(i int, now int64) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	c := &g.clients[i]
	c.fd, c.since, c.state = int32(fd), now, connecting
	g.counts.Opening++
	if len(g.sources) > 0 {
		from := g.sources[g.dials%len(g.sources)]
		g.dials++
		// The port is chosen by connect, which may use one again for another server.
		if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1),
			unix.Bind(fd, from)); err != nil {
			return fmt.Errorf("binding to %v: %w", from.Addr, err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	if err := unix.Connect(fd, g.to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		g.lose(i, "connecting: "+err.Error())
		return nil
	}
	// Edge-triggered, it is registered once for all of its life.
	return unix.EpollCtl(g.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(i)})
}

// ended are the events of a connection whose server has ended it.
const ended = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR

// handle handles the events of a client.
func (g *group) handle(i int, events uint32) {
	c := &g.clients[i]
	switch c.state {
	case absent, waiting, found:
		return // of a connection that is gone
	case connecting:
		if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			code, _ := unix.GetsockoptInt(int(c.fd), unix.SOL_SOCKET, unix.SO_ERROR)
			g.lose(i, "connecting: "+unix.Errno(code).Error())
			return
		}
		if events&unix.EPOLLOUT == 0 {
			return
		}
		c.state = greeting
		if !g.write(i, g.spec.Talk.Hello) {
			return
		}
	}
	if events&(unix.EPOLLIN|ended) != 0 {
		g.read(i, events&ended != 0)
	}
}

// write reports whether all was taken. If not, the client is lost: so little always fits unless the
// server has read nothing for a long time.
func (g *group) write(i int, p []byte) bool {
	n, err := unix.Write(int(g.clients[i].fd), p)
	if err == nil && n < len(p) {
		err = errors.New("the server does not read")
	}
	if err != nil {
		g.lose(i, "writing: "+err.Error())
	}
	return err == nil
}

// read reads until nothing is left: the connection is edge-triggered.
//
// A short read leaves nothing behind, unless over says that the connection has ended: the end is no
// event of its own then.
func (g *group) read(i int, over bool) {
	c := &g.clients[i]
	for {
		n, err := unix.Read(int(c.fd), g.input)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			g.lose(i, err.Error())
			return
		case n == 0:
			g.lose(i, "closed by the server")
			return
		}
		data := g.input[:n]
		if len(c.tail) > 0 {
			c.tail = append(c.tail, data...)
			data = c.tail
		}
		rest, alive := g.received(i, data)
		if !alive {
			return
		}
		switch {
		case len(rest) > mostTail:
			g.lose(i, "a message without an end")
			return
		case len(rest) == 0:
			c.tail = nil
		default:
			c.tail = append(c.tail[:0], rest...) // moves towards the front of itself
		}
		if n < len(g.input) && !over {
			return
		}
	}
}

// received takes in what has come, and returns what is not complete. It reports whether the client
// still has its connection.
func (g *group) received(i int, p []byte) (rest []byte, alive bool) {
	c, t := &g.clients[i], &g.spec.Talk
	if c.state == greeting {
		head, behind, whole := bytes.Cut(p, []byte("\r\n\r\n"))
		if !whole {
			return p, true
		}
		if !bytes.HasPrefix(head, t.Welcome) {
			g.lose(i, fmt.Sprintf("the answer %.40q", firstLine(head)))
			return nil, false
		}
		if c.state = joining; len(t.Join) > 0 && !g.write(i, t.Join) {
			return nil, false
		}
		p = behind
		if len(t.Joined) == 0 {
			g.enter(c)
		}
	}
	if !t.Socket {
		if c.state == joining {
			if !bytes.Contains(p, t.Joined) {
				return p, true
			}
			g.enter(c)
		}
		return nil, true
	}
	for {
		opcode, payload, size, err := nextFrame(p)
		switch {
		case err != nil:
			g.lose(i, err.Error())
			return nil, false
		case size == 0:
			return p, true
		}
		p = p[size:]
		if !g.frame(i, opcode, payload) {
			return nil, false
		}
	}
}

// frame takes in a frame. It reports whether the client still has its connection.
func (g *group) frame(i int, opcode byte, payload []byte) bool {
	c, t := &g.clients[i], &g.spec.Talk
	if c.state == silent && opcode != closing {
		return true
	}
	switch opcode {
	case closing:
		code := 0
		if len(payload) >= 2 {
			code = int(payload[0])<<8 | int(payload[1])
		}
		g.lose(i, fmt.Sprintf("close %d %.40s", code, payload[min(2, len(payload)):]))
		return false
	case ping:
		g.counts.Answered++
		return g.write(i, Frame(pong, payload))
	}
	if c.state == joining && bytes.Contains(payload, t.Joined) {
		g.enter(c)
	}
	if bytes.Equal(payload, t.Ping) {
		g.counts.Answered++
		return g.write(i, t.Pong)
	}
	for len(payload) > 0 {
		var one []byte
		if one, payload = nextMessage(opcode, payload); bytes.Equal(one, t.Ping) {
			g.counts.Answered++
			if !g.write(i, t.Pong) {
				return false
			}
		}
	}
	return true
}

// enter notes that a client is in.
func (g *group) enter(c *client) {
	c.state = held
	g.counts.Opening--
	g.counts.Held++
	g.counts.Connected++
}

// lose is called when the server has ended a client's connection or says that it does, or when an
// attempt has failed.
func (g *group) lose(i int, reason string) {
	c := &g.clients[i]
	g.reset(c)
	if c.state == silent {
		c.state = found
		g.counts.Silent--
		g.counts.Found++
		g.counts.Slowest = max(g.counts.Slowest, time.Duration(g.now()-c.since))
		return
	}
	wasIn := c.state == held
	c.state = waiting
	if wasIn {
		g.counts.Held--
		g.counts.Ended++
		g.queue.put(int32(i))
	} else {
		g.counts.Opening--
		g.counts.Failed++
		c.since = g.now()
		g.paused.put(int32(i))
	}
	if _, known := g.counts.Reasons[reason]; !known && len(g.counts.Reasons) >= mostReasons {
		reason = "other"
	}
	if g.counts.Reasons == nil {
		g.counts.Reasons = map[string]int{}
	}
	g.counts.Reasons[reason]++
}

// expire ends attempts that have taken longer than Spec.Wait.
func (g *group) expire() {
	now := g.now()
	for i := range g.clients[:g.begun] {
		c := &g.clients[i]
		if c.state >= connecting && c.state <= joining && now-c.since > int64(g.spec.Wait) {
			g.lose(i, "not in within "+g.spec.Wait.String())
		}
	}
}

// report is what has happened since the last report.
func (g *group) report() Report {
	s := g.counts
	g.counts = Report{Held: s.Held, Opening: s.Opening, Silent: s.Silent}
	return s
}

func firstLine(p []byte) []byte {
	line, _, _ := bytes.Cut(p, []byte("\r\n"))
	return line
}

// A fifo is a first-in, first-out queue of clients.
type fifo struct {
	ring     []int32
	first, n int
}

func (q *fifo) put(i int32) {
	if q.n == len(q.ring) {
		grown := make([]int32, max(64, 2*q.n))
		for k := range q.n {
			grown[k] = q.ring[(q.first+k)%len(q.ring)]
		}
		q.ring, q.first = grown, 0
	}
	q.ring[(q.first+q.n)%len(q.ring)] = i
	q.n++
}

func (q *fifo) front() int32 { return q.ring[q.first] }

func (q *fifo) take() int32 {
	i := q.ring[q.first]
	q.first = (q.first + 1) % len(q.ring)
	q.n--
	return i
}
