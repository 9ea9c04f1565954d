package resp

import "github.com/myriad-go/myriad/resp/wire"

// A Handler answers commands. ServeRESP writes exactly one reply to w, or none for a command whose
// answer is a push message, such as SUBSCRIBE. The commands of one connection come one at a time
// and in order; those of several come at the same time. Neither w nor c may be used after ServeRESP
// has returned, except for c.Conn.
//
// If it panics, the panic is logged, and the peer gets "-ERR internal error" in place of what the
// handler has written. If a part of that is with the peer already, by Reply.Flush, the connection
// is closed instead.
type Handler interface {
	ServeRESP(w *Reply, c *Command)
}

// A HandlerFunc is a function as a Handler.
type HandlerFunc func(w *Reply, c *Command)

// ServeRESP implements Handler.
func (f HandlerFunc) ServeRESP(w *Reply, c *Command) { f(w, c) }

// A Command is what a peer has sent.
type Command struct {
	// Args are the command's name, as it was sent, and its arguments. They are valid until the
	// handler returns.
	Args [][]byte
	// Conn is the connection, which may be kept.
	Conn *Conn
}

// Is reports whether argument i has this text, in whatever case. text is in capital letters.
func (c *Command) Is(i int, text string) bool { return i < len(c.Args) && equalFold(c.Args[i], text) }

// equalFold compares with a text in capital letters.
func equalFold(p []byte, text string) bool {
	if len(p) != len(text) {
		return false
	}
	for i, b := range p {
		if upper(b) != text[i] {
			return false
		}
	}
	return true
}

func upper(b byte) byte {
	if b >= 'a' && b <= 'z' {
		return b - 'a' + 'A'
	}
	return b
}

// upperOf is p in capital letters.
func upperOf(p []byte) []byte { return appendUpper(nil, p) }

func appendUpper[T string | []byte](dst []byte, p T) []byte {
	for i := range len(p) {
		dst = append(dst, upper(p[i]))
	}
	return dst
}

// A Reply takes a handler's answer. What the peer's protocol does not have is sent in place of it
// as Redis does: maps and sets as arrays, truths as 1 and 0, numbers as strings.
//
// While the peer wants no replies (CLIENT REPLY), they are dropped. What a handler writes from the
// first Push on is sent nevertheless, as Redis does.
type Reply struct {
	out   []byte // replies that are not queued
	proto Protocol
	conn  *Conn
	full  bool // WriteLimit was exceeded since the runner began: no more commands run

	// Of the command that runs:
	begin  int  // where its reply begins in out
	push   int  // where its push messages begin, 1 for the first byte of out; 0: there are none
	queued bool // a part of its reply has been queued
}

// next begins the reply to another command.
func (w *Reply) next() { w.begin, w.push, w.queued = len(w.out), 0, false }

// withdraw drops what is left of the reply.
func (w *Reply) withdraw() { w.out, w.push = w.out[:w.begin], 0 }

// silence drops what is left of the reply, but for push messages, if the peer wants none.
func (w *Reply) silence() {
	if !w.conn.is(stateReplyOff | stateSkipping) {
		return
	}
	pushed := w.out[len(w.out):]
	if w.push > 0 {
		pushed = w.out[w.push-1:]
	}
	w.out = append(w.out[:w.begin], pushed...)
}

// flushAndClose has the connection closed behind the replies.
func (w *Reply) flushAndClose() {
	w.Flush()
	w.conn.Close()
}

// Protocol is the peer's version.
func (w *Reply) Protocol() Protocol { return w.proto }

// Simple writes a line of text.
func (w *Reply) Simple(text string) { w.out = wire.AppendSimple(w.out, text) }

// OK writes what most commands answer that have nothing to say.
func (w *Reply) OK() { w.out = append(w.out, "+OK\r\n"...) }

// Error writes an error. Its text should begin with a code, such as "ERR" or "WRONGTYPE".
func (w *Reply) Error(text string) { w.out = wire.AppendError(w.out, text) }

// Int writes an integer.
func (w *Reply) Int(n int64) { w.out = wire.AppendInt(w.out, n) }

// Bulk writes a string of any bytes.
func (w *Reply) Bulk(p []byte) { w.out = wire.AppendBulk(w.out, p) }

// Text writes a string of any bytes.
func (w *Reply) Text(s string) { w.out = wire.AppendBulk(w.out, s) }

// Null writes null.
func (w *Reply) Null() { w.out = wire.AppendNull(w.out, w.proto) }

// NullArray writes null where the command answers an array otherwise.
func (w *Reply) NullArray() { w.out = wire.AppendNullArray(w.out, w.proto) }

// Array begins an array, of which n elements have to be written next.
func (w *Reply) Array(n int) { w.out = wire.AppendArray(w.out, n) }

// Map begins a map, of which n keys have to be written next, each with its value.
func (w *Reply) Map(n int) { w.out = wire.AppendMap(w.out, n, w.proto) }

// Set begins a set, of which n elements have to be written next.
func (w *Reply) Set(n int) { w.out = wire.AppendSet(w.out, n, w.proto) }

// Bool writes a truth.
func (w *Reply) Bool(b bool) { w.out = wire.AppendBool(w.out, b, w.proto) }

// Double writes a number.
func (w *Reply) Double(f float64) { w.out = wire.AppendDouble(w.out, f, w.proto) }

// Verbatim writes a string with its format, which has three letters, such as "txt".
func (w *Reply) Verbatim(format, text string) {
	w.out = wire.AppendVerbatim(w.out, format, text, w.proto)
}

// Value writes any value, also one that has attributes, or a number of any size.
func (w *Reply) Value(v Value) { w.out = wire.AppendValue(w.out, v, w.proto) }

// Push begins a push message, of which n elements have to be written next.
func (w *Reply) Push(n int) {
	if w.push == 0 {
		w.push = len(w.out) + 1
	}
	w.out = wire.AppendPush(w.out, n, w.proto)
}

// Flush queues what has been written, with the replies before it, so that a message which is pushed
// next comes behind it.
func (w *Reply) Flush() {
	w.silence()
	if len(w.out) == 0 {
		return
	}
	w.queued = w.queued || len(w.out) > w.begin
	w.full = w.conn.queue(w.out) || w.full
	w.out, w.begin = w.out[:0], 0
	if w.push > 0 {
		w.push = 1
	}
}
