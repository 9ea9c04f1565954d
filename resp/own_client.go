package resp

import "strings"

// A clientCommand is a subcommand of CLIENT. Arity counts both words.
type clientCommand struct {
	arity int
	run   func(*work)
	help  [2]string
}

var clientCommands map[string]clientCommand

func init() {
	clientCommands = map[string]clientCommand{
		"ID":      {2, (*work).clientID, [2]string{"ID", "Return the ID of the current connection."}},
		"GETNAME": {2, (*work).clientGetName, [2]string{"GETNAME", "Return the name of the current connection."}},
		"SETNAME": {3, (*work).clientSetName, [2]string{"SETNAME <name>",
			"Assign the name <name> to the current connection."}},
		"SETINFO": {4, (*work).clientSetInfo, [2]string{"SETINFO <option> <value>",
			"Set client meta attr: LIB-NAME or LIB-VER."}},
		"INFO": {2, (*work).clientInfo, [2]string{"INFO",
			"Return information about the current client connection."}},
		"REPLY": {3, (*work).clientReply, [2]string{"REPLY (ON|OFF|SKIP)",
			"Control the replies sent to the current connection."}},
		"NO-EVICT": {3, (*work).clientSwitch, [2]string{"NO-EVICT (ON|OFF)",
			"Protect current client connection from eviction."}},
		"NO-TOUCH": {3, (*work).clientSwitch, [2]string{"NO-TOUCH (ON|OFF)",
			"Will not touch LRU/LFU stats when this mode is on."}},
		"HELP": {2, (*work).clientHelp, [2]string{"HELP", "Print this help."}},
	}
}

// clientOrder is that of HELP.
var clientOrder = []string{"ID", "INFO", "GETNAME", "SETNAME", "SETINFO", "REPLY", "NO-EVICT", "NO-TOUCH", "HELP"}

func (w *work) client() {
	if sub, ok := w.reply.clientCommand(w.cmd.Args); ok {
		sub.run(w)
	}
}

// clientCommand returns the subcommand of CLIENT in args, or answers what is wrong with it.
func (w *Reply) clientCommand(args [][]byte) (sub clientCommand, ok bool) {
	if len(args) < 2 {
		w.wrongArity("client")
		return sub, false
	}
	sub, known := clientCommands[string(upperOf(args[1]))]
	switch {
	case !known:
		w.unknownSub("CLIENT", args[1])
	case len(args) != sub.arity:
		w.wrongArity("client|" + strings.ToLower(string(args[1])))
	default:
		return sub, true
	}
	return sub, false
}

func (w *Reply) unknownSub(container string, sub []byte) {
	w.Error("ERR unknown subcommand '" + asText(sub, 128) + "'. Try " + container + " HELP.")
}

func upperOf(p []byte) []byte {
	up := make([]byte, len(p))
	for i, b := range p {
		up[i] = upper(b)
	}
	return up
}

func (w *work) clientID() { w.reply.Int(int64(w.c.ID())) }

func (w *work) clientGetName() {
	if name := w.c.Name(); name != "" {
		w.reply.Text(name)
		return
	}
	w.reply.Null()
}

func (w *work) clientSetName() {
	c, name := w.c, w.cmd.Args[2]
	if !validName(name) {
		w.reply.Error(invalidName)
		return
	}
	c.mu.Lock()
	if len(name) > 0 || c.more != nil {
		c.rare().name = string(name)
	}
	c.mu.Unlock()
	w.reply.OK()
}

func (w *work) clientSetInfo() {
	c, option, value := w.c, upperOf(w.cmd.Args[2]), w.cmd.Args[3]
	i := 0
	switch string(option) {
	case "LIB-NAME":
	case "LIB-VER":
		i = 1
	default:
		w.reply.Error("ERR Unrecognized option '" + asText(w.cmd.Args[2], 128) + "'")
		return
	}
	if !validName(value) {
		w.reply.Error("ERR " + strings.ToLower(string(option)) +
			" cannot contain spaces, newlines or special characters.")
		return
	}
	c.mu.Lock()
	c.rare().library[i] = string(value)
	c.mu.Unlock()
	w.reply.OK()
}

func (w *work) clientInfo() { w.reply.Verbatim("txt", w.c.describe()) }

func (w *work) clientReply() {
	c, mode := w.c, w.cmd.Args[2]
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case equalFold(mode, "ON"):
		c.unset(stateReplyOff | stateSkip | stateSkipping)
		w.reply.OK()
	case equalFold(mode, "OFF"):
		c.set(stateReplyOff)
	case equalFold(mode, "SKIP"):
		if !c.is(stateReplyOff) {
			c.set(stateSkip)
		}
	default:
		w.reply.Error("ERR syntax error")
	}
}

// clientSwitch is for settings that make no difference here.
func (w *work) clientSwitch() {
	if mode := w.cmd.Args[2]; !equalFold(mode, "ON") && !equalFold(mode, "OFF") {
		w.reply.Error("ERR syntax error")
		return
	}
	w.reply.OK()
}

func (w *work) clientHelp() {
	lines := []string{"CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
	for _, name := range clientOrder {
		help := clientCommands[name].help
		lines = append(lines, help[0], "    "+help[1])
	}
	w.reply.lines(lines)
}

func (w *Reply) lines(all []string) {
	w.Array(len(all))
	for _, line := range all {
		w.Simple(line)
	}
}
