// Package load drives servers with HTTP, WebSocket or raw bytes, over as many connections as there
// are descriptors. It runs in a separate process with one working thread. It shares no code with
// the servers, and must be cheaper than any of them. It builds requests once, compares answers
// without parsing, and allocates nothing while the clock runs.
//
// A driver process is told a Spec, opens its connections and says Ready. Then each Order that it is
// given is answered by a Result. All of them are lines of JSON. It ends, resetting its connections,
// when its input does.
package load

import (
	"time"

	"github.com/myriad-go/myriad/bench/proc"
)

// A Mode is a way of loading a server.
type Mode string

const (
	// Closed keeps Depth requests under way on every connection and sends the next ones when all of
	// them are answered.
	Closed Mode = "closed"
	// Open sends Rate requests per second, evenly, on whatever connections are free. Latency is
	// counted from the moment at which a request was to be sent, also if all connections were busy
	// then.
	Open Mode = "open"
	// In Broadcast the first connection sends a request whose reply every connection receives. It
	// sends the next one when the last connection has the reply. Its latency is the time until
	// then.
	Broadcast Mode = "broadcast"
	// Exchange has every connection send one request, once. Between Exchanges connections are idle.
	Exchange Mode = "exchange"
	// Publish keeps every publisher busy, while all connections receive what each of them
	// publishes. Replies are those to publishers; a publication that some connection has not
	// received in the end is an error.
	Publish Mode = "publish"
)

// A Spec is what a driver process is to do.
type Spec struct {
	Addr   string
	Conns  int
	Server int  // the pid whose CPU time counts
	Family bool // that of its descendants, too
	Talk   Talk

	// Publishers are connections on top of Conns that say Talk.Publication. In a Broadcast one of
	// them does; if there is none, the first connection publishes.
	Publishers int
}

// A Talk is what is said on a connection.
type Talk struct {
	Hello    []byte // sent first, if not empty; it is answered by a head that ends with an empty line and
	Welcome  []byte // begins with this
	Join     []byte // sent then, or first without a Hello, if not empty
	Joined   []byte // what the server says last before it waits, if it says anything behind the head
	Request  []byte
	Requests int // in Request: pipelined, each with a reply
	// Preface is what each connection begins with, if not empty. In the framing Streams Request is
	// frames, whose streams are numbered anew each time.
	Preface []byte
	Reply   Reply
	Slow    []byte // a request that the server takes its time for, with a reply like the others
	TLS     bool   // all of it through TLS; certificates are not verified

	Publication *Talk // what is said on a connection that publishes
	// Addr is where connections that publish go; "": where all others go.
	Addr string
}

// A Reply is recognised by its size, which never changes, and by how it begins and ends. What
// frames it, and may join it with others, is not a part of it. Size is 0 if it changes, in the
// framings Lines, Answers and Numbers.
type Reply struct {
	Size           int
	Prefix, Suffix []byte
	Framing        Framing
}

// Ready says that the connections stand, and what opening them has cost.
type Ready struct {
	Err     string
	Elapsed time.Duration
	Server  proc.Times
	Driver  time.Duration
}

// An Order starts a Mode at once and counts what happens between two moments of the monotonic
// clock. Exchange ignores them.
type Order struct {
	Mode Mode
	Rate float64 // of Open: requests per second
	// of Open: so many of a hundred requests are slow ones, spread irregularly; their latency does
	// not count
	Slow       int
	Start, End int64 // nanoseconds
}

// A Result is what was counted.
type Result struct {
	Err     string // if not empty, nothing else means anything
	Replies int64
	Elapsed time.Duration
	Server  proc.Times    // used by the server
	Driver  time.Duration // CPU time used by this process
	// Unanswered requests of Open were to be sent while the clock ran and had no reply long after.
	// They are in Latency with their age.
	Unanswered int64
	Latency    []byte // an HDR histogram of nanoseconds, EncodeV2
	// Late is, of requests of Open for which a connection was free, how long after they were due
	// they left: the driver's own fault.
	Late []byte
	// Deliveries of a Broadcast: from the moment of publishing to each connection's own. Latency is
	// until the last has it.
	Deliveries []byte
}
