// Package attack is clients that mean harm, in a process of their own. It shares no code with what
// it attacks.
//
// The process reads a Spec, one line of JSON, and attacks. It prints "attacking" when all its peers
// have begun. At the end of its input it ends with all of its connections. It runs at the lowest
// priority: on a real network attackers do not share processors with their victim.
package attack

// A Kind is a mix of attacks.
type Kind string

const (
	// Slow is connections that stay: silent ones, and those that send a head, send a body or read
	// an answer a byte a second.
	Slow Kind = "slow"
	// Flood opens and closes some hundreds of connections per second: reset at once or during an
	// answer, with garbage, with endless heads. Other connections stay open and pipeline without
	// reading.
	Flood Kind = "flood"

	// Streams is floods of HTTP/2, from connections that come again when they are ended: streams
	// that are reset, or made the server reset, endless field blocks, and control frames.
	Streams Kind = "streams"

	Heads     Kind = "heads"     // of Slow: the silent ones, and the heads
	Bodies    Kind = "bodies"    // of Slow
	Readers   Kind = "readers"   // of Slow
	Resets    Kind = "resets"    // of Flood: at once, and in an answer
	Garbage   Kind = "garbage"   // of Flood, with the endless heads
	Pipelines Kind = "pipelines" // of Flood: those that stay
)

// A Spec is an attack and its target.
type Spec struct {
	Addr string
	Kind Kind
}

// Paths that the victim serves: Large with a long answer, Upload by reading all of a body.
const (
	Large  = "/large"
	Upload = "/upload"
)
