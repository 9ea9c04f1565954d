package clients

import (
	"bufio"
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A swarm is many clients in one goroutine over epoll, so that it leaves the processor to the
// server that it measures. It runs in a child process, which reads orders from standard input, one
// to a line:
//
//	join N KIND      open N clients, "ws" or "sse" (or "bare": only upgraded), subscribed to "crowd";
//	                 answer "joined MICROSECONDS"
//	expect BYTES     wait until each client has received that many more bytes;
//	                 answer "armed", then "done UNIX-NANOSECONDS"
//	count N          the same for N publications to WebSocket clients
//	leave            reset all connections
//	back N OFFSET    open N WebSocket clients that recover from that offset;
//	                 answer "back MICROSECONDS MISSING"
type swarm struct {
	addr    syscall.SockaddrInet4
	host    string
	epoll   int
	clients map[int32]*bee
	epoch   string

	first   []byte // each client's first message
	second  []byte // its message after the head of the answer
	answer  []byte // a part of the last answer
	unready int    // clients that wait for it
	opened  int
	wanted  int
	missing int // recoveries that miss something
	recover []byte

	need   int  // bytes that each client has to receive; 0: not counted
	short  int  // clients that have not received them
	counts bool // publications instead of bytes
}

// A bee is one client of a swarm.
type bee struct {
	fd    int32
	stage int8
	got   int
	seen  int8   // how much of publicationMark the last bytes match
	buf   []byte // used until it is ready
}

const (
	beeConnecting = iota
	beeUpgrading
	beeSubscribing
	beeReady
)

// leave resets all connections, so that none stays in TIME_WAIT.
func (s *swarm) leave() error {
	for fd := range s.clients {
		if err := syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER,
			&syscall.Linger{Onoff: 1}); err != nil {
			return err
		}
		if err := syscall.Close(int(fd)); err != nil {
			return err
		}
	}
	clear(s.clients)
	return nil
}

const mostOpening = 400 // fewer than the server's backlog

func newSwarm(addr string) (*swarm, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	epoll, err := syscall.EpollCreate1(0)
	if err != nil {
		return nil, err
	}
	return &swarm{addr: syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}, host: addr, epoll: epoll,
		clients: make(map[int32]*bee)}, nil
}

func init() { otherCrowds["swarm"] = runSwarm }

// runSwarm is the child process.
func runSwarm() error {
	s, err := newSwarm(os.Getenv("MYRIAD_CROWD_ADDR"))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if err := s.obey(words); err != nil {
			return fmt.Errorf("%v: %w", words, err)
		}
	}
	return nil
}

func (s *swarm) obey(words []string) error {
	number := func(i int) int {
		n, err := strconv.Atoi(words[i])
		if err != nil {
			panic(err)
		}
		return n
	}
	switch words[0] {
	case "join":
		s.say(words[2])
		began := time.Now()
		err := s.open(number(1))
		fmt.Println("joined", time.Since(began).Microseconds())
		return err
	case "expect", "count":
		s.need, s.short, s.counts = number(1), len(s.clients), words[0] == "count"
		for _, b := range s.clients {
			b.got = 0
		}
		fmt.Println("armed")
		err := s.run(func() bool { return s.short == 0 })
		fmt.Println("done", time.Now().UnixNano())
		s.need = 0
		return err
	case "leave":
		err := s.leave()
		fmt.Println("left")
		return err
	case "back":
		s.say("ws")
		s.recover = []byte(`"recovered":true`)
		s.second = frame(connectLine + "\n" +
			fmt.Sprintf(`{"id":2,"subscribe":{"channel":"crowd","recover":true,"epoch":%q,"offset":%d}}`, s.epoch,
				number(2)))
		began := time.Now()
		err := s.open(number(1))
		fmt.Println("back", time.Since(began).Microseconds(), s.missing)
		return err
	}
	return fmt.Errorf("unknown")
}

const connectLine = `{"id":1,"connect":{"name":"js"}}`

// say sets the messages of clients of a kind, and the end of the last answer.
func (s *swarm) say(kind string) {
	s.recover, s.missing = nil, 0
	if kind == "bare" { // an upgrade and nothing else, to see what the machine takes for that
		s.say("ws")
		s.second, s.answer = nil, []byte("Sec-WebSocket-Accept: ")
		return
	}
	if kind == "sse" {
		s.first = []byte("GET /events?channel=crowd HTTP/1.1\r\nHost: " + s.host +
			"\r\nAccept: text/event-stream\r\n\r\n")
		s.second, s.answer = nil, []byte("retry: ")
		return
	}
	s.first = []byte("GET /connection/websocket HTTP/1.1\r\nHost: " + s.host +
		"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
	s.second = frame(connectLine + "\n" + `{"id":2,"subscribe":{"channel":"crowd"}}`)
	s.answer = []byte(`{"id":2,"subscribe":{`)
}

// frame masks with zeros.
func frame(text string) []byte {
	if len(text) < 126 {
		return append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)
	}
	head := []byte{0x81, 0x80 | 126, byte(len(text) >> 8), byte(len(text))}
	return append(append(head, 0, 0, 0, 0), text...)
}

func (s *swarm) open(n int) error {
	s.wanted, s.opened, s.unready = n, 0, n
	return s.run(func() bool {
		for s.opened < s.wanted && s.opened-(s.wanted-s.unready) < mostOpening {
			if err := s.connect(); err != nil {
				panic(err)
			}
			s.opened++
		}
		return s.unready == 0
	})
}

// sources is the number of source addresses of a swarm. With one address a third of its ports would
// be in use, and connect would spend most of its time in search of a free port.
const sources = 16

// bindAddressNoPort is IP_BIND_ADDRESS_NO_PORT: connect chooses the port.
const bindAddressNoPort = 24

func (s *swarm) connect() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, bindAddressNoPort, 1); err != nil {
		return err
	}
	if err := syscall.Bind(fd,
		&syscall.SockaddrInet4{Addr: [4]byte{127, 0, 1, byte(s.opened%sources + 1)}}); err != nil {
		return err
	}
	if err := syscall.Connect(fd, &s.addr); err != nil && err != syscall.EINPROGRESS {
		return err
	}
	b := &bee{fd: int32(fd)}
	s.clients[b.fd] = b
	// On one machine the connection is established when connect returns, so the swarm need not wait
	// for EPOLLOUT, which would be most of a client's cost.
	events := uint32(syscall.EPOLLIN)
	switch err := s.greet(b); err {
	case nil:
	case syscall.EAGAIN:
		events |= syscall.EPOLLOUT
	default:
		return err
	}
	return syscall.EpollCtl(s.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: events, Fd: b.fd})
}

// greet sends a client's first message.
func (s *swarm) greet(b *bee) error {
	if _, err := syscall.Write(int(b.fd), s.first); err != nil {
		return err
	}
	b.stage = beeUpgrading
	if s.second == nil {
		b.stage = beeSubscribing
	}
	return nil
}

// run handles events until so returns true, or the time limit for a crowd has passed.
func (s *swarm) run(so func() bool) error {
	deadline := time.Now().Add(crowdPatience)
	events := make([]syscall.EpollEvent, 1024)
	scratch := make([]byte, 64<<10)
	for !so() {
		n, err := syscall.EpollWait(s.epoll, events, 1000)
		if err != nil && err != syscall.EINTR {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d are not ready, %d have not received all", s.unready, s.short)
		}
		for _, e := range events[:max(n, 0)] {
			if b := s.clients[e.Fd]; b != nil {
				if err := s.handle(b, scratch); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *swarm) handle(b *bee, scratch []byte) error {
	if b.stage == beeConnecting {
		if err := syscall.EpollCtl(s.epoll, syscall.EPOLL_CTL_MOD, int(b.fd),
			&syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: b.fd}); err != nil {
			return err
		}
		return s.greet(b)
	}
	n, err := syscall.Read(int(b.fd), scratch)
	switch {
	case err == syscall.EAGAIN:
		return nil
	case err != nil || n == 0:
		return fmt.Errorf("the server has ended a connection in stage %d: %v, after %q", b.stage, err, b.buf)
	case b.stage == beeReady:
		s.count(b, scratch[:n])
		return nil
	}
	return s.prepare(b, scratch[:n])
}

// publicationMark occurs once in each publication. Its first byte occurs in it only at the
// beginning and the end.
const publicationMark = `"pub":`

func (s *swarm) count(b *bee, p []byte) {
	if s.need == 0 {
		return
	}
	before := b.got
	if s.counts {
		b.countPublications(p)
	} else {
		b.got += len(p)
	}
	if before < s.need && b.got >= s.need {
		s.short--
	}
}

func (b *bee) countPublications(p []byte) {
	for _, x := range p {
		switch {
		case x == publicationMark[b.seen]:
			b.seen++
		case x == publicationMark[0]:
			b.seen = 1
		default:
			b.seen = 0
		}
		if int(b.seen) == len(publicationMark) {
			b.got++
			b.seen = 0
		}
	}
}

// prepare handles the answers to a client's first messages.
func (s *swarm) prepare(b *bee, p []byte) error {
	b.buf = append(b.buf, p...)
	if b.stage == beeUpgrading {
		_, rest, found := bytes.Cut(b.buf, []byte("\r\n\r\n"))
		if !found {
			return nil
		}
		if !bytes.HasPrefix(b.buf, []byte("HTTP/1.1 101 ")) {
			return fmt.Errorf("answered with %q", b.buf)
		}
		b.buf, b.stage = append([]byte(nil), rest...), beeSubscribing
		_, err := syscall.Write(int(b.fd), s.second)
		return err
	}
	if !bytes.Contains(b.buf, s.answer) || s.recover != nil && !bytes.Contains(b.buf, []byte(`"was_recovering"`)) {
		return nil
	}
	if s.recover != nil && (!bytes.Contains(b.buf, s.recover) || bytes.Count(b.buf,
		[]byte(`{"data":`)) != missedBySwarm) {
		s.missing++
	}
	if _, rest, found := bytes.Cut(b.buf, []byte(`"epoch":"`)); found {
		s.epoch = string(rest[:max(bytes.IndexByte(rest, '"'), 0)])
	}
	b.stage, b.buf = beeReady, nil
	s.unready--
	return nil
}
