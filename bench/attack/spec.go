// Package attack is clients that mean harm, in a process of their own. It shares no code with what
// it attacks.
//
// The process is told a Spec, as a line of JSON, attacks, says "attacking" when everybody has
// begun, and ends, with all of its connections, when its input does. It runs at the lowest
// priority: on a real network attackers do not share processors with their victim.
package attack

// A Kind is a mix of attacks.
type Kind string

const (
	// Slow is connections that stay: silent ones, and those that send a head, send a body or read
	// an answer a byte a second.
	Slow Kind = "slow"
	// Flood is connections that come and go, some hundreds a second: reset at once or in an answer,
	// with garbage, with endless heads; and some that stay and pipeline without reading.
	Flood Kind = "flood"

	Heads     Kind = "heads"     // of Slow: the silent ones, and the heads
	Bodies    Kind = "bodies"    // of Slow
	Readers   Kind = "readers"   // of Slow
	Resets    Kind = "resets"    // of Flood: at once, and in an answer
	Garbage   Kind = "garbage"   // of Flood, with the endless heads
	Pipelines Kind = "pipelines" // of Flood: those that stay
)

// A Spec is whom to attack, and how.
type Spec struct {
	Addr string
	Kind Kind
}

// Paths that the victim serves: Large with a long answer, Upload by reading all of a body.
const (
	Large  = "/large"
	Upload = "/upload"
)
