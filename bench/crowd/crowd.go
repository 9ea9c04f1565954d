// Package crowd has clients of a push server that is short of time. Each connects, subscribes,
// answers pings, and comes back at once when its connection has ended. They run in processes of
// their own, each one epoll loop on one thread, cheap enough not to be the limit. It shares no code
// with the servers.
//
// A process is told a Spec, and then Orders, as lines of JSON. It says each second, in a Report,
// what has happened. It ends, resetting its connections, when its input does.
package crowd

import (
	"maps"
	"time"
)

// A Talk is what a client says to its server.
type Talk struct {
	Hello   []byte // sent first; it is answered by a head that ends with an empty line and
	Welcome []byte // begins with this
	Join    []byte // sent then, if not empty
	Joined  []byte // a client is in when a message of the server has this in it
	// Socket says that messages are frames of WebSockets behind the head. Without it they are
	// bytes, and clients answer nothing.
	Socket bool
	// Ping is a message of the server that is answered by Pong, which is a whole frame. In a frame
	// of text several messages are lines. In a binary one each has its length before it as a
	// varint, which is a part of Ping.
	Ping, Pong []byte
}

// A Spec is what a process of clients is to do.
type Spec struct {
	Addr    string        // of the server: an IPv4 address and port
	Sources []string      // local addresses to connect from, in turn; none: the kernel chooses
	Most    int           // clients at most
	Opening int           // so many of them are being opened at a time, at most
	Wait    time.Duration // for one of them
	Every   time.Duration // between two reports; 0: a second
	Talk    Talk
}

// An Order changes what a process does.
type Order struct {
	Clients int     // so many are to be in
	Rate    float64 // so many a second begin; 0: all at once
	// Die is how many of those that are in fall silent: they answer nothing more. Their connections
	// stay, as if their machines had lost the network. They do not come back. The server has found
	// a dead client when it has sent a close frame or ended the connection.
	Die int
}

// A Report is what has happened in a process, or in all of them, since the last one.
type Report struct {
	Held      int            // clients that are in
	Opening   int            // clients that are being opened
	Connected int            // clients that have come in
	Ended     int            // connections of clients that were in, which the server has ended
	Failed    int            // attempts to come in
	Answered  int            // pings
	Reasons   map[string]int `json:",omitempty"` // of what has ended or failed

	Silent  int           // clients that have died, and that the server has not found
	Found   int           // clients that have died, and that it has found
	Slowest time.Duration // the longest from a client's death until then

	// Late is how long the latest event waited for this process, at most: it had no processor, or
	// others to handle first. A server may end clients that answer so late.
	Late time.Duration
	CPU  time.Duration // of this process, or of the busiest
	Err  string        `json:",omitempty"` // the process gives up
}

// add adds what has happened in another process.
func (s *Report) add(o Report) {
	s.Held += o.Held
	s.Opening += o.Opening
	s.Silent += o.Silent
	s.happened(o)
	s.CPU = max(s.CPU, o.CPU)
}

// happened adds what is counted since the last Report, and not how things are.
func (s *Report) happened(o Report) {
	s.Connected += o.Connected
	s.Ended += o.Ended
	s.Failed += o.Failed
	s.Answered += o.Answered
	s.Found += o.Found
	s.Slowest = max(s.Slowest, o.Slowest)
	s.Late = max(s.Late, o.Late)
	if len(o.Reasons) == 0 {
		return
	}
	reasons := maps.Clone(s.Reasons)
	if reasons == nil {
		reasons = map[string]int{}
	}
	for reason, n := range o.Reasons {
		reasons[reason] += n
	}
	s.Reasons = reasons
}

// share is the part of an order that process i of n has.
func (o Order) share(i, n int) Order {
	part := func(all int) int { return all*(i+1)/n - all*i/n }
	return Order{Clients: part(o.Clients), Rate: o.Rate / float64(n), Die: part(o.Die)}
}
