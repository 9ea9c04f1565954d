package resp

import (
	"fmt"
	"strconv"
	"strings"
)

// own are the commands that a Server answers itself, because they are about the connection.
var own map[string]func(*work)

func init() {
	own = map[string]func(*work){
		"AUTH": (*work).auth, "HELLO": (*work).hello, "RESET": (*work).reset, "QUIT": (*work).quit,
		"CLIENT": (*work).client, "PING": (*work).ping, "POST": (*work).attack, "HOST:": (*work).attack,
	}
}

// queueable are those of own that a transaction keeps. The others run at once, as in Redis.
var queueable = map[string]bool{"AUTH": true, "HELLO": true, "CLIENT": true, "PING": true}

// CheckOwn reports whether c is one of the commands that Conn.SetTransaction tells of. If so, and
// its form is wrong, CheckOwn answers that as Redis does when it queues a command; good is then
// false. It does not run the command.
func (w *Reply) CheckOwn(c *Command) (own, good bool) {
	name := string(upperOf(c.Args[0]))
	if !queueable[name] {
		return false, false
	}
	before := len(w.out)
	switch {
	case name == "AUTH" && len(c.Args) < 2:
		w.wrongArity("auth")
	case name == "CLIENT":
		w.clientCommand(c.Args)
	}
	return true, len(w.out) == before
}

// ServeOwn answers a command for which CheckOwn has returned true. w must be the Reply of the
// command that runs now; c may be an earlier one of the same connection.
func (w *Reply) ServeOwn(c *Command) {
	task, now := w.task, w.task.cmd
	defer func() { task.cmd = now }()
	task.cmd = *c
	own[string(upperOf(c.Args[0]))](task)
}

// serve answers one command.
func (w *work) serve() {
	c, n, l := w.c, w.name, w.c.lane.live
	var self func(*work)
	var e *entry
	if n != nil {
		self, e = n.own, n.entry
	}
	if self != nil && l.mux == nil && c.is(stateTransaction) && queueable[n.text] {
		self = nil
	}
	if self == nil && l.mux != nil {
		if e == nil {
			w.reply.unknown(w.cmd.Args)
			return
		}
		if e = e.find(&w.reply, &w.cmd); e == nil {
			return
		}
	}
	if state := c.state.Load(); state&stateAuthed == 0 || state&(stateSubscribed|stateRESP3) == stateSubscribed {
		if w.forbidden(e, state&stateAuthed != 0) {
			return
		}
	}
	switch {
	case self != nil:
		self(w)
	case e != nil:
		e.run(&w.reply, &w.cmd)
	case l.s.Handler != nil:
		l.s.Handler.ServeRESP(&w.reply, &w.cmd)
	default:
		w.reply.unknown(w.cmd.Args)
	}
}

// forbidden answers a command that may not be sent now. e is its entry, if it has one.
func (w *work) forbidden(e *entry, authed bool) bool {
	args := w.cmd.Args
	name := string(upperOf(args[0]))
	if !authed {
		switch name {
		case "AUTH", "HELLO", "RESET", "QUIT", "POST", "HOST:":
			return false
		}
		w.reply.Error("NOAUTH Authentication required.")
		return true
	}
	switch name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "PING", "QUIT",
		"RESET":
		return false
	}
	name = strings.ToLower(name)
	switch {
	case e != nil:
		name = e.name
	case name == "client" && len(args) > 1:
		sub := upperOf(args[1])
		if known, ok := clientCommands[string(sub)]; !ok || len(args) != known.arity {
			return false // it is answered what is wrong with it
		}
		name += "|" + strings.ToLower(string(sub))
	}
	w.reply.Error("ERR Can't execute '" + name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET " +
		"are allowed in this context")
	return true
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

func (w *work) ping() {
	args := w.cmd.Args
	switch {
	case len(args) > 2:
		w.reply.wrongArity("ping")
	case w.c.state.Load()&(stateSubscribed|stateRESP3) == stateSubscribed:
		w.reply.Array(2)
		w.reply.Text("pong")
		w.reply.Text(string(last(args, 1)))
	case len(args) == 2:
		w.reply.Bulk(args[1])
	default:
		w.reply.out = append(w.reply.out, "+PONG\r\n"...)
	}
}

// last is argument i, or empty.
func last(args [][]byte, i int) []byte {
	if i < len(args) {
		return args[i]
	}
	return nil
}

func (w *work) quit() {
	w.reply.OK()
	w.close()
}

// attack is for a browser that has been made to speak to this port: nothing it sends is run.
func (w *work) attack() { w.c.Close() }

func (w *work) reset() {
	c := w.c
	if len(w.cmd.Args) > 1 {
		w.reply.wrongArity("reset")
		return
	}
	c.runEnds()
	c.mu.Lock()
	c.unset(stateRESP3 | stateReplyOff | stateSkip | stateSubscribed | stateTransaction)
	if !c.lane.live.open {
		c.unset(stateAuthed)
	}
	if c.more != nil {
		c.more.name, c.more.user, c.more.library = "", "", [2]string{}
	}
	c.mu.Unlock()
	w.reply.proto = RESP2
	w.reply.Simple("RESET")
}

func (w *work) auth() {
	args := w.cmd.Args
	switch {
	case len(args) < 2:
		w.reply.wrongArity("auth")
	case len(args) > 3:
		w.reply.Error("ERR syntax error")
	case w.c.lane.live.s.Auth == nil && len(args) == 2:
		w.reply.Error("ERR AUTH <password> called without any password configured for the default user. Are you sure " +
			"your configuration is correct?")
	default:
		user := "default"
		if len(args) == 3 {
			user = string(args[1])
		}
		if w.authenticate(user, string(args[len(args)-1])) {
			w.reply.OK()
		}
	}
}

// authenticate checks a password, and answers if it is wrong.
func (w *work) authenticate(user, password string) bool {
	c := w.c
	check := c.lane.live.s.Auth
	if check == nil && user != "default" || check != nil && !check(c, user, password) {
		w.reply.Error("WRONGPASS invalid username-password pair or user is disabled.")
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(stateAuthed)
	if check != nil {
		c.rare().user = user
	}
	return true
}

// A greeting is what HELLO asks for.
type greeting struct {
	proto          Protocol
	user, password []byte
	auth           bool
	name           []byte
	named          bool
}

func (w *work) hello() {
	g, bad := parseHello(w.cmd.Args)
	c := w.c
	if g.proto == 0 {
		g.proto = c.Protocol()
	}
	if bad != "" {
		w.reply.Error(bad)
		return
	}
	if g.auth && !w.authenticate(string(g.user), string(g.password)) {
		return
	}
	if !c.is(stateAuthed) {
		w.reply.Error("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH " +
			"<user> <pass> option can be used to authenticate the client and select the RESP protocol version at the " +
			"same time")
		return
	}
	c.mu.Lock()
	c.unset(stateRESP3)
	if g.proto == RESP3 {
		c.set(stateRESP3)
	}
	if g.named {
		c.rare().name = string(g.name)
	}
	c.mu.Unlock()
	w.reply.proto = g.proto
	w.introduce()
}

// introduce answers HELLO.
func (w *work) introduce() {
	r := &w.reply
	r.Map(7)
	r.Text("server")
	r.Text("redis")
	r.Text("version")
	r.Text(w.c.lane.live.version())
	r.Text("proto")
	r.Int(int64(r.proto))
	r.Text("id")
	r.Int(int64(w.c.ID()))
	r.Text("mode")
	r.Text("standalone")
	r.Text("role")
	r.Text("master")
	r.Text("modules")
	r.Array(0)
}

// likeRedis is the version of Redis whose answers these are.
const likeRedis = "7.0.15"

func (l *live) version() string {
	if l.s.Version == "" {
		return likeRedis
	}
	return l.s.Version
}

// parseHello reads HELLO [version [AUTH user password] [SETNAME name]].
func parseHello(args [][]byte) (g greeting, bad string) {
	if len(args) < 2 {
		return g, ""
	}
	v, ok := parseInt(args[1])
	switch {
	case !ok:
		return g, "ERR Protocol version is not an integer or out of range"
	case v != 2 && v != 3:
		return g, "NOPROTO unsupported protocol version"
	}
	g.proto = Protocol(v)
	for rest := args[2:]; len(rest) > 0; {
		switch {
		case equalFold(rest[0], "AUTH") && len(rest) >= 3:
			g.auth, g.user, g.password = true, rest[1], rest[2]
			rest = rest[3:]
		case equalFold(rest[0], "SETNAME") && len(rest) >= 2:
			g.named, g.name = true, rest[1]
			if !validName(rest[1]) {
				return g, invalidName
			}
			rest = rest[2:]
		default:
			return g, "ERR Syntax error in HELLO option '" + asText(rest[0], maxName) + "'"
		}
	}
	return g, ""
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

// describe is a line of CLIENT LIST.
func (c *Conn) describe() string {
	subscribed := "N"
	if c.is(stateSubscribed) {
		subscribed = "P"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.more
	if m == nil {
		m = new(more)
	}
	user := m.user
	if user == "" {
		user = "default"
	}
	return "id=" + strconv.FormatUint(c.ID(), 10) + " addr=" + c.nc.RemoteAddr().String() +
		" laddr=" + c.nc.LocalAddr().String() + " name=" + m.name + " db=0 flags=" + subscribed +
		" omem=" + strconv.Itoa(c.nc.Queued()) + " user=" + user + " resp=" + strconv.Itoa(int(c.Protocol())) +
		" lib-name=" + m.library[0] + " lib-ver=" + m.library[1] + "\n"
}
