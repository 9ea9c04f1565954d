package load

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"
)

// A Kind is a way to load a server.
type Kind string

// The kinds of load.
const (
	HTTP  Kind = "http"  // requests and their replies
	Echo  Kind = "echo"  // WebSocket messages that the server sends back
	Idle  Kind = "idle"  // WebSockets that are only held
	Push  Kind = "push"  // publications that reach subscribers
	Redis Kind = "redis" // commands of the Redis protocol
	// Arrivals are subscribers of a push server that come, and leave as soon as they are
	// subscribed. The reply to an arrival is that it is subscribed.
	Arrivals Kind = "arrivals"
)

// A Plan says what load to make. The zero value of each field but Kind, URL and Duration works.
type Plan struct {
	Kind Kind
	// URL is the server's: http, https, ws, wss, or redis://HOST:PORT.
	URL string
	// Connections is how many are open: those that make requests or, for Push, the subscribers'.
	// For Arrivals it is how many are under way at a time at most. 0: 100.
	Connections int
	// Rate is how many requests, messages or publications are due in a second, over all
	// connections. 0: each connection sends when it has the last reply; for Push: 10 publications,
	// for Arrivals: 100.
	Rate float64
	// Warmup is for how long load is made before it counts.
	Warmup time.Duration
	// Duration is for how long it counts.
	Duration time.Duration
	// Timeout is how long a connection may take to open, and a reply to come. After it the
	// connection is closed and a new one opened. A request that was due for as long and has found
	// no free connection has failed. At the end of a run the last publications may take as long to
	// reach all subscribers. 0: 10 s.
	Timeout time.Duration
	// Sources are local addresses to connect from, in turn. One source has about 28,000 ports for
	// one address of a server.
	Sources []string
	// Addresses are where connections go, in turn, as HOST:PORT: the nodes of a cluster. What they
	// send still names the host of URL. Empty: the host of URL alone.
	Addresses []string
	// Loops is how many event loops a process has. 0: one for each two processors.
	Loops int
	// Insecure accepts any certificate.
	Insecure bool
	// Opening is how many connections a process opens at a time. 0: 256. A connection that waits
	// for its next attempt is not among them. That wait is random: up to 0.4 s after a loss, up to
	// twice as long after each failure in a row, and at most 20 s.
	Opening int
	// Pace has each process open connections only as fast as the server keeps up. It begins with 20
	// a second. The rate grows while attempts end within 250 ms. It falls when one takes longer or
	// fails, and when the server ends connections.
	Pace bool

	// Method, Header ("Name: value") and Body are those of HTTP requests. Method is GET by default,
	// or POST with a Body. Header is also sent with WebSocket handshakes and streams of events.
	Method string
	Header []string
	Body   string
	// Pipeline is how many HTTP requests or Redis commands are sent at once. 0: 1.
	Pipeline int

	// HTTP2 has HTTP requests made by HTTP/2: with https by ALPN, else by prior knowledge. Each
	// connection has Streams of them under way at a time, or as many as the server allows. 0: 1.
	// Pipeline must be 1.
	HTTP2   bool
	Streams int

	// Size is how many bytes a message or a publication has. 0: 128; 64 is the least for Push.
	Size int

	// Message is what WebSockets send, as text, in place of Size random letters. With Rooms it has
	// {id}, by which members tell messages apart. Empty: for Rooms {id} alone.
	Message string
	// Join is what each member of a room sends first, as text. Empty: nothing.
	//
	// With Rooms, {room} in URL, Message and Join is the number of the room, from 0, and {n} that
	// of the connection.
	Join string

	// Protocol is how subscribers speak to a push server: Centrifuge (the default), Events or
	// Mercure. Rooms is for any server of WebSockets that passes messages on.
	Protocol Protocol
	// Channels is how many channels, or rooms, there are. Subscribers are spread over them, and
	// each is published to by a connection of its own. 0: 1.
	Channels int
	// Prefix is what the channels' names begin with; a number follows. Empty: "load".
	Prefix string
	// Key is the API key of publishers, and Token that of subscribers. For Mercure, Key is the
	// publisher's token.
	Key, Token string
	// Recover has subscribers ask for what they have missed when they come back.
	Recover bool
	// Retry has publishers make a publication again if it was refused with status 503, or if the
	// connection has ended before the reply. They do so for at most Timeout. Each publication has
	// an idempotency key, so the server makes it once. Not for Mercure, which has no such keys, and
	// Rooms.
	Retry bool
	// Storm closes all subscribers' connections each time it has passed, and measures how long it
	// takes until all are back. 0: never.
	Storm time.Duration

	// Command is what is sent to Redis, as words. Empty: SET key:1 and a value of Size bytes.
	Command []string
}

// A Protocol is how subscribers speak to a push server.
type Protocol string

// The protocols of subscribers.
const (
	Centrifuge Protocol = "centrifuge" // the Centrifuge client protocol in JSON over WebSocket
	Events     Protocol = "sse"        // Server-Sent Events of myriad serve
	Mercure    Protocol = "mercure"    // Server-Sent Events of a Mercure hub
	Rooms      Protocol = "rooms"      // WebSockets whose server passes Message on to the others of a room
)

const (
	smallestPublication = 64
	largestMessage      = 1 << 20
	mostConnections     = 10_000_000
	longestRun          = 30 * 24 * time.Hour
)

// withDefaults fills in what was left out.
func (p Plan) withDefaults() Plan {
	p.Connections = cmp.Or(p.Connections, 100)
	p.Timeout = cmp.Or(p.Timeout, 10*time.Second)
	p.Opening = cmp.Or(p.Opening, 256)
	p.Loops = cmp.Or(p.Loops, max(1, runtime.GOMAXPROCS(0)/2))
	p.Pipeline, p.Streams = cmp.Or(p.Pipeline, 1), cmp.Or(p.Streams, 1)
	p.Size = cmp.Or(p.Size, 128)
	p.Protocol = cmp.Or(p.Protocol, Centrifuge)
	p.Channels = cmp.Or(p.Channels, 1)
	p.Prefix = cmp.Or(p.Prefix, "load")
	if p.Method == "" {
		p.Method = http.MethodGet
		if p.Body != "" {
			p.Method = http.MethodPost
		}
	}
	if p.Kind == Push && p.Rate == 0 {
		p.Rate = 10
	}
	if p.Kind == Arrivals && p.Rate == 0 {
		p.Rate = 100
	}
	if p.Protocol == Rooms {
		p.Message = cmp.Or(p.Message, idPlace)
	}
	return p
}

// check reports everything that is wrong with a plan that has its defaults.
func (p Plan) check() error {
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	refuse(p.Connections < 1 || p.Connections > mostConnections, "%d connections: give 1 to %d", p.Connections,
		mostConnections)
	refuse(!(p.Rate >= 0) || p.Rate > 1e8, "a rate of %g in a second: give 0 to 100,000,000", p.Rate)
	refuse(p.Duration <= 0 || p.Duration > longestRun, "a duration of %s: give one up to %s", p.Duration, longestRun)
	refuse(p.Warmup < 0 || p.Warmup > longestRun, "a warm-up of %s: give one up to %s", p.Warmup, longestRun)
	refuse(p.Timeout < time.Millisecond, "a timeout of %s: give a millisecond at least", p.Timeout)
	refuse(p.Loops < 1 || p.Loops > 255, "%d loops: give 1 to 255", p.Loops)
	refuse(p.Opening < 1 || p.Opening > 10_000, "%d connections to open at a time: give 1 to 10,000", p.Opening)
	refuse(p.Size < 1 || p.Size > largestMessage, "messages of %d bytes: give 1 to %d", p.Size, largestMessage)
	refuse(p.Pipeline < 1 || p.Pipeline > 1024, "a pipeline of %d: give 1 to 1024", p.Pipeline)
	refuse(p.Streams < 1 || p.Streams > 10_000, "%d streams: give 1 to 10,000", p.Streams)
	refuse(p.HTTP2 && p.Kind != HTTP, "HTTP/2 for the kind %s: it is for http", p.Kind)
	refuse(p.HTTP2 && p.Pipeline > 1, "a pipeline of %d over HTTP/2: give streams instead", p.Pipeline)
	refuse(!p.HTTP2 && p.Streams > 1, "%d streams without HTTP/2: HTTP/1 has a pipeline", p.Streams)
	for _, name := range connectionFields {
		refuse(p.HTTP2 && hasHeader(p.Header, name), "the header %s: HTTP/2 forbids it", name)
	}
	refuse(p.Channels < 1 || p.Channels > 100_000, "%d channels: give 1 to 100,000", p.Channels)
	refuse(p.Storm < 0, "a storm each %s: give a positive time, or 0 for none", p.Storm)
	refuse(p.Kind == Push && p.Size < smallestPublication,
		"publications of %d bytes: they carry a number and a time, so give %d at least",
		p.Size, smallestPublication)
	rooms := p.Kind == Push && p.Protocol == Rooms
	refuse(p.Protocol == Rooms && !rooms, "the protocol rooms for the kind %s: it is for push", p.Kind)
	refuse(rooms && !strings.Contains(p.Message, idPlace), "the message %.100q has no %s: members of a room tell "+
		"messages apart by it", p.Message, idPlace)
	refuse(rooms && p.Recover, "rooms cannot recover: members do not know what they have missed")
	refuse(p.Retry && (p.Kind != Push || p.Protocol != Centrifuge && p.Protocol != Events),
		"publications that are made "+
			"again for the kind %s and the protocol %s: it is for push, with centrifuge or sse", p.Kind, p.Protocol)
	refuse(!rooms && p.Join != "", "a message to join with, without rooms")
	refuse(p.Message != "" && !rooms && p.Kind != Echo, "a message for the kind %s: it is for WebSockets", p.Kind)
	refuse(max(len(p.Message), len(p.Join)) > largestMessage, "a message of %d bytes: give %d at most",
		max(len(p.Message), len(p.Join)), largestMessage)
	for name, text := range map[string]string{"message": p.Message, "message to join with": p.Join} {
		refuse(!utf8.ValidString(text), "the %s %.100q is not UTF-8", name, text)
	}
	for _, line := range p.Header {
		name, _, found := strings.Cut(line, ":")
		refuse(!found || name == "" || strings.ContainsAny(line, "\r\n"), "the header %q: write \"Name: value\"",
			line)
	}
	for _, source := range p.Sources {
		_, err := netip.ParseAddr(source)
		refuse(err != nil, "the source %q: give an IP address of this machine", source)
	}
	for _, address := range p.Addresses {
		_, _, err := net.SplitHostPort(address)
		refuse(err != nil, "the address %q: write HOST:PORT", address)
	}
	if _, err := p.target(); err != nil {
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// schemes are the URL schemes of each kind of load.
var schemes = map[Kind][]string{
	HTTP: {"http", "https"}, Echo: {"ws", "wss", "http", "https"}, Idle: {"ws", "wss", "http", "https"},
	Push: {"http", "https"}, Arrivals: {"http", "https"}, Redis: {"redis"},
}

// target is the parsed URL.
func (p Plan) target() (*url.URL, error) {
	allowed, known := schemes[p.Kind]
	if p.Protocol == Rooms {
		allowed = schemes[Echo]
	}
	if !known {
		return nil, fmt.Errorf("there is no kind of load %q: use http, echo, idle, push, arrivals or redis", p.Kind)
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, fmt.Errorf("the URL: %w: write %s://HOST:PORT", err, allowed[0])
	}
	for _, scheme := range allowed {
		if u.Scheme == scheme && u.Hostname() != "" {
			return u, nil
		}
	}
	return nil, fmt.Errorf("the URL %q: write %s://HOST:PORT", p.URL, allowed[0])
}

// secure reports whether the server speaks TLS.
func secure(u *url.URL) bool { return u.Scheme == "https" || u.Scheme == "wss" }

// address is the host and port to connect to.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[secure(u)]
		if u.Scheme == "redis" {
			port = "6379"
		}
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// share is the part of a plan that worker i of n has. The last worker has what is left over.
func (p Plan) share(i, n int) Plan {
	p.Connections = p.Connections*(i+1)/n - p.Connections*i/n
	if p.Kind != Push {
		p.Rate /= float64(n)
	}
	p.Sources, p.Addresses = shareOf(p.Sources, i, n), shareOf(p.Addresses, i, n)
	return p
}

// shareOf is the part of a list that worker i of n has. If there are fewer than n, each has all.
func shareOf(list []string, i, n int) []string {
	if len(list) < n {
		return list
	}
	return list[len(list)*i/n : len(list)*(i+1)/n]
}
