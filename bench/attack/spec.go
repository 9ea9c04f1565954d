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

	// Streams is all floods of HTTP/2, and requests that are costly by their compression. Their
	// connections come again when they are ended.
	Streams Kind = "streams"
	// Held is connections of HTTP/2 that stay: streams without an end, closed windows, slow heads.
	Held Kind = "held"

	Heads     Kind = "heads"     // of Slow: the silent ones, and the heads
	Bodies    Kind = "bodies"    // of Slow
	Readers   Kind = "readers"   // of Slow
	Resets    Kind = "resets"    // of Flood: at once, and in an answer
	Garbage   Kind = "garbage"   // of Flood, with the endless heads
	Pipelines Kind = "pipelines" // of Flood: those that stay
)

// Parts of Streams.
const (
	RapidReset        Kind = "rapid-reset"         // CVE-2023-44487
	MadeResetZero     Kind = "made-reset-zero"     // CVE-2025-8671: WINDOW_UPDATE by 0
	MadeResetOverflow Kind = "made-reset-overflow" // WINDOW_UPDATE beyond the largest window
	MadeResetLength   Kind = "made-reset-length"   // PRIORITY of a wrong length
	MadeResetSelf     Kind = "made-reset-self"     // PRIORITY of a stream that depends on itself
	MadeResetData     Kind = "made-reset-data"     // DATA after END_STREAM
	MadeResetHeaders  Kind = "made-reset-headers"  // HEADERS after END_STREAM
	Refused           Kind = "refused"             // streams beyond those that the server allows
	Continuations     Kind = "continuations"       // CVE-2023-45288: empty CONTINUATION
	LongBlocks        Kind = "long-blocks"         // CONTINUATION of 16 KiB
	Pings             Kind = "pings"               // CVE-2019-9512
	Settings          Kind = "settings"            // CVE-2019-9515
	EmptyData         Kind = "empty-data"          // CVE-2019-9518
	Priorities        Kind = "priorities"          // CVE-2019-9513
	PriorityUpdates   Kind = "priority-updates"    // the same by RFC 9218
	Windows           Kind = "windows"             // WINDOW_UPDATE by 1
	Names             Kind = "names"               // blocks that copy long names inside of the table
	Thrash            Kind = "thrash"              // requests of which each fills the table anew
	Bomb              Kind = "bomb"                // blocks of 8 kB that are 8 MB of fields
)

// Parts of Held.
const (
	Unfinished    Kind = "unfinished"     // requests whose bodies never end
	ClosedWindows Kind = "closed-windows" // CVE-2019-9517: long answers that may not be sent
	ByteWindows   Kind = "byte-windows"   // CVE-2019-9511: long answers, a byte a second
	SlowHeads     Kind = "slow-heads"     // field blocks that go on and on
)

// OverHTTP2 are the parts of Streams and Held, and what ten connections do.
var OverHTTP2 = []struct {
	Kind Kind
	Do   string
}{
	{RapidReset, "open 2,000 streams at once and reset each"},
	{MadeResetZero, "have the server reset 2,000 streams by WINDOW_UPDATE of 0"},
	{MadeResetOverflow, "have the server reset 2,000 streams by too large a window"},
	{MadeResetLength, "have the server reset 2,000 streams by PRIORITY of a wrong length"},
	{MadeResetSelf, "have the server reset 2,000 streams by PRIORITY on themselves"},
	{MadeResetData, "have the server reset 2,000 streams by DATA behind their end"},
	{MadeResetHeaders, "have the server reset 2,000 streams by HEADERS behind their end"},
	{Refused, "open 2,000 streams that the server has to refuse, again and again"},
	{Continuations, "continue a head by empty frames"},
	{LongBlocks, "continue a head by 16 KiB at a time"},
	{Pings, "send 20,000 PING at once"},
	{Settings, "send 2,000 SETTINGS at once"},
	{EmptyData, "send 2,000 empty DATA at once"},
	{Priorities, "send 20,000 PRIORITY at once"},
	{PriorityUpdates, "send 20,000 PRIORITY_UPDATE at once"},
	{Windows, "send 20,000 WINDOW_UPDATE at once"},
	{Names, "copy long names inside of the table of HPACK"},
	{Thrash, "send 1,000 requests a second that fill the table of HPACK"},
	{Bomb, "send 200 requests a second of 8 kB that are 8 MB of fields"},
	{Unfinished, "hold 100 requests open whose bodies never end"},
	{ClosedWindows, "ask for 100 answers of a megabyte and open no window"},
	{ByteWindows, "ask for 100 answers of a megabyte and take a byte a second"},
	{SlowHeads, "send a head that never ends"},
}

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
