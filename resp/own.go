package resp

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/myriad-go/myriad/resp/wire"
)

// own are the commands that a Server answers itself, because they are about the connection.
var own *Mux

func init() {
	own = &Mux{entries: map[string]*entry{}}
	hangUp := func(w *Reply, _ *Command) { w.conn.Close() }
	for _, c := range []struct {
		name  string
		arity int
		run   HandlerFunc
		help  string
	}{
		{"AUTH", -2, authCommand, "Authenticate the connection."},
		{"HELLO", -1, helloCommand, "Choose the version of the protocol."},
		{"RESET", 1, resetCommand, "Reset the connection."},
		{"PING", -1, pingCommand, "Return PONG, or the message."},
		{"QUIT", -1, func(w *Reply, _ *Command) { w.OK(); w.flushAndClose() }, "Close the connection."},
		// A browser that has been made to speak to this port: nothing it sends is run.
		{"POST", -1, hangUp, ""}, {"HOST:", -1, hangUp, ""},
		{"CLIENT ID", 2, func(w *Reply, _ *Command) { w.Int(int64(w.conn.ID())) },
			"Return the ID of the current connection."},
		{"CLIENT INFO", 2, func(w *Reply, _ *Command) { w.Verbatim("txt", describe(w.conn)) },
			"Return information about the current client connection."},
		{"CLIENT GETNAME", 2, getName, "Return the name of the current connection."},
		{"CLIENT SETNAME", 3, setName, "<name>: assign the name <name> to the current connection."},
		{"CLIENT SETINFO", 4, setInfo, "<option> <value>: set client meta attr: LIB-NAME or LIB-VER."},
		{"CLIENT REPLY", 3, setReply, "(ON|OFF|SKIP): control the replies sent to the current connection."},
		{"CLIENT NO-EVICT", 3, setNothing, "(ON|OFF): protect current client connection from eviction."},
		{"CLIENT NO-TOUCH", 3, setNothing, "(ON|OFF): will not touch LRU/LFU stats when this mode is on."},
	} {
		own.Handle(c.name, c.arity, c.run, c.help)
	}
}

// queueable are those of own that a transaction keeps. The others run at once, as in Redis.
var queueable = map[string]bool{"AUTH": true, "HELLO": true, "CLIENT": true, "PING": true}

// CheckOwn reports whether c is one of the commands that Conn.SetTransaction tells of. If so, and
// its form is wrong, CheckOwn answers that as Redis does when it queues a command; good is then
// false. It does not run the command.
func (w *Reply) CheckOwn(c *Command) (isOwn, good bool) {
	name := upperOf(c.Args[0])
	if !queueable[string(name)] {
		return false, false
	}
	return true, own.entries[string(name)].find(w, c) != nil
}

// ServeOwn answers a command for which CheckOwn has returned true. w must be the Reply of the
// command that runs now; c may be an earlier one of the same connection.
func (w *Reply) ServeOwn(c *Command) { own.ServeRESP(w, c) }

// forbid answers a command that may not be sent now, because the peer has not authenticated, or has
// subscriptions in RESP2. It returns false if the command may be sent even then. e is its entry, if
// it has one.
func (w *Reply) forbid(e *entry, args [][]byte) bool {
	name := string(upperOf(args[0]))
	if !w.conn.is(stateAuthed) {
		switch name {
		case "AUTH", "HELLO", "RESET", "QUIT", "POST", "HOST:":
			return false
		}
		w.Error("NOAUTH Authentication required.")
		return true
	}
	switch name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "PING", "QUIT",
		"RESET":
		return false
	}
	name = strings.ToLower(name)
	if e != nil {
		name = e.name
	}
	w.Error("ERR Can't execute '" + name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET " +
		"are allowed in this context")
	return true
}

func pingCommand(w *Reply, c *Command) {
	switch subscribed := w.conn.state.Load()&(stateSubscribed|stateRESP3) == stateSubscribed; {
	case len(c.Args) > 2:
		w.wrongArity("ping")
	case subscribed:
		w.Array(2)
		w.Text("pong")
		w.Bulk(append(c.Args, nil)[1])
	case len(c.Args) == 2:
		w.Bulk(c.Args[1])
	default:
		w.Simple("PONG")
	}
}

func resetCommand(w *Reply, _ *Command) {
	conn := w.conn
	conn.runEnds()
	conn.mu.Lock()
	conn.set(stateRESP3|stateReplyOff|stateSkip|stateSubscribed|stateTransaction, false)
	conn.set(stateAuthed, conn.lane.live.rules.open)
	if conn.cold != nil {
		conn.cold.name, conn.cold.user, conn.cold.library = "", "", [2]string{}
	}
	conn.mu.Unlock()
	w.proto = RESP2
	w.Simple("RESET")
}

func authCommand(w *Reply, c *Command) {
	args := c.Args
	switch {
	case len(args) > 3:
		w.Error("ERR syntax error")
	case w.conn.lane.live.s.Auth == nil && len(args) == 2:
		w.Error("ERR AUTH <password> called without any password configured for the default user. Are you sure " +
			"your configuration is correct?")
	default:
		user := "default"
		if len(args) == 3 {
			user = string(args[1])
		}
		if w.authenticate(user, string(args[len(args)-1])) {
			w.OK()
		}
	}
}

// authenticate checks a password, and answers if it is wrong.
func (w *Reply) authenticate(user, password string) bool {
	c := w.conn
	check := c.lane.live.s.Auth
	if check == nil && user != "default" || check != nil && !check(c, user, password) {
		w.Error("WRONGPASS invalid username-password pair or user is disabled.")
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(stateAuthed, true)
	if check != nil {
		c.change().user = user
	}
	return true
}

// helloCommand answers HELLO [version [AUTH user password] [SETNAME name]].
func helloCommand(w *Reply, c *Command) {
	conn, proto := w.conn, w.conn.Protocol()
	var credentials [][]byte // user and password
	var name []byte          // nil: it is not to change
	if len(c.Args) > 1 {
		v, ok := wire.ParseInt(c.Args[1])
		switch {
		case !ok:
			w.Error("ERR Protocol version is not an integer or out of range")
			return
		case v != 2 && v != 3:
			w.Error("NOPROTO unsupported protocol version")
			return
		}
		proto = Protocol(v)
		for rest := c.Args[2:]; len(rest) > 0; {
			switch {
			case equalFold(rest[0], "AUTH") && len(rest) >= 3:
				credentials, rest = rest[1:3], rest[3:]
			case equalFold(rest[0], "SETNAME") && len(rest) >= 2:
				if name, rest = rest[1], rest[2:]; !validName(name) {
					w.Error(invalidName)
					return
				}
			default:
				w.Error("ERR Syntax error in HELLO option '" + asText(rest[0], maxName) + "'")
				return
			}
		}
	}
	if credentials != nil && !w.authenticate(string(credentials[0]), string(credentials[1])) {
		return
	}
	if !conn.is(stateAuthed) {
		w.Error("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH " +
			"<user> <pass> option can be used to authenticate the client and select the RESP protocol version at the " +
			"same time")
		return
	}
	conn.mu.Lock()
	conn.set(stateRESP3, proto == RESP3)
	if name != nil {
		conn.change().name = string(name)
	}
	conn.mu.Unlock()
	w.proto = proto
	w.Map(7)
	for _, text := range []string{"server", "redis", "version", conn.lane.live.rules.version, "proto"} {
		w.Text(text)
	}
	w.Int(int64(proto))
	w.Text("id")
	w.Int(int64(conn.ID()))
	for _, text := range []string{"mode", "standalone", "role", "master", "modules"} {
		w.Text(text)
	}
	w.Array(0)
}

const invalidName = "ERR Client names cannot contain spaces, newlines or special characters."

// maxClientName bounds what peers call themselves, in bytes.
const maxClientName = 1024

func validName(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return len(name) <= maxClientName
}

func getName(w *Reply, _ *Command) {
	if name := w.conn.Name(); name != "" {
		w.Text(name)
		return
	}
	w.Null()
}

func setName(w *Reply, c *Command) {
	conn, name := w.conn, c.Args[2]
	if !validName(name) {
		w.Error(invalidName)
		return
	}
	conn.mu.Lock()
	if len(name) > 0 || conn.cold != nil {
		conn.change().name = string(name)
	}
	conn.mu.Unlock()
	w.OK()
}

func setInfo(w *Reply, c *Command) {
	option, value, i := string(upperOf(c.Args[2])), c.Args[3], 0
	switch {
	case option == "LIB-VER":
		i = 1
	case option != "LIB-NAME":
		w.Error("ERR Unrecognized option '" + asText(c.Args[2], 128) + "'")
		return
	}
	if !validName(value) {
		w.Error("ERR " + strings.ToLower(option) + " cannot contain spaces, newlines or special characters.")
		return
	}
	w.conn.mu.Lock()
	w.conn.change().library[i] = string(value)
	w.conn.mu.Unlock()
	w.OK()
}

func setReply(w *Reply, c *Command) {
	conn := w.conn
	conn.mu.Lock()
	defer conn.mu.Unlock()
	switch {
	case c.Is(2, "ON"):
		conn.set(stateReplyOff|stateSkip|stateSkipping, false)
		w.OK()
	case c.Is(2, "OFF"):
		conn.set(stateReplyOff, true)
	case c.Is(2, "SKIP"):
		if !conn.is(stateReplyOff) {
			conn.set(stateSkip, true)
		}
	default:
		w.Error("ERR syntax error")
	}
}

// setNothing is for settings that make no difference here.
func setNothing(w *Reply, c *Command) {
	if !c.Is(2, "ON") && !c.Is(2, "OFF") {
		w.Error("ERR syntax error")
		return
	}
	w.OK()
}

// describe is a line of CLIENT LIST.
func describe(c *Conn) string {
	all, flags, user := c.get(), "N", "default"
	if c.is(stateSubscribed) {
		flags = "P"
	}
	if all.user != "" {
		user = all.user
	}
	return "id=" + strconv.FormatUint(c.ID(), 10) + " addr=" + c.nc.RemoteAddr().String() +
		" laddr=" + c.nc.LocalAddr().String() + " name=" + all.name + " db=0 flags=" + flags +
		" omem=" + strconv.Itoa(c.nc.Queued()) + " user=" + user + " resp=" + strconv.Itoa(int(c.Protocol())) +
		" lib-name=" + all.library[0] + " lib-ver=" + all.library[1] + "\n"
}

// unknown answers a command that there is not.
func (w *Reply) unknown(args [][]byte) {
	const most = 128
	var rest strings.Builder
	for _, a := range args[1:] {
		if rest.Len() >= most {
			break
		}
		fmt.Fprintf(&rest, "'%s' ", asText(a, most-rest.Len()))
	}
	w.Error("ERR unknown command '" + asText(args[0], most) + "', with args beginning with: " + rest.String())
}

// unknownSub answers a subcommand that there is not.
func (w *Reply) unknownSub(container string, sub []byte) {
	w.Error("ERR unknown subcommand '" + asText(sub, 128) + "'. Try " + container + " HELP.")
}

// asText is at most so many bytes of p, up to a NUL.
func asText(p []byte, most int) string {
	text, _, _ := strings.Cut(string(p[:min(len(p), most)]), "\x00")
	return text
}

// wrongArity answers a command with too few or too many arguments. name is "get" or
// "client|setname".
func (w *Reply) wrongArity(name string) {
	w.Error("ERR wrong number of arguments for '" + name + "' command")
}
