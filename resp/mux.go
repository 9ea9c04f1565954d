package resp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/internal/dispatch"
)

// A Mux is a Handler that tells commands apart by name. A wrong call is answered as Redis answers
// it: an unknown command or subcommand, too few or too many arguments. It answers COMMAND, and HELP
// of commands that have subcommands. All of Handle must be called before it serves.
type Mux struct {
	entries map[string]*entry
	order   []string
}

// An entry is a command, or the commands behind a first word.
type entry struct {
	name  string // in small letters; that of a subcommand is "config|get"
	arity int
	run   HandlerFunc
	help  string
	subs  map[string]*entry // nil: it is no container
	order []string
}

// NewMux makes a Mux without commands.
func NewMux() *Mux {
	m := &Mux{entries: map[string]*entry{}}
	m.Handle("COMMAND", -1, m.list, "List the commands.")
	return m
}

// Handle makes f the handler of a command. name is one word or two, such as "GET" or "CONFIG GET".
// arity is the number of arguments, the name included; a negative one is the least number. help is
// one sentence for COMMAND DOCS and HELP. Handle panics if the command has a handler, or if name is
// empty.
func (m *Mux) Handle(name string, arity int, f HandlerFunc, help string) {
	words := strings.Fields(strings.ToUpper(name))
	if len(words) < 1 || len(words) > 2 || len(words[0]) > maxName || arity == 0 || f == nil {
		panic(fmt.Sprintf("resp: Mux.Handle(%q, %d): a name is one word or two, and the arity counts it", name, arity))
	}
	e := &entry{name: strings.ToLower(strings.Join(words, "|")), arity: arity, run: f, help: help}
	if len(words) == 1 {
		m.add(words[0], e)
		return
	}
	top := m.entries[words[0]]
	if top == nil {
		top = &entry{name: strings.ToLower(words[0]), arity: -2}
		top.subs = map[string]*entry{"HELP": {name: top.name + "|help", arity: 2, run: top.listSubs}}
		m.add(words[0], top)
	}
	if top.subs == nil || top.subs[words[1]] != nil {
		panic(fmt.Sprintf("resp: Mux.Handle(%q): it has been handled", name))
	}
	top.subs[words[1]] = e
	top.order = append(top.order, words[1])
}

func (m *Mux) add(name string, e *entry) {
	if m.entries[name] != nil {
		panic(fmt.Sprintf("resp: Mux.Handle(%q): it has been handled", name))
	}
	m.entries[name] = e
	m.order = append(m.order, name)
}

// ServeRESP implements Handler.
func (m *Mux) ServeRESP(w *Reply, c *Command) {
	e := m.entries[string(upperOf(c.Args[0]))]
	if e == nil {
		w.unknown(c.Args)
		return
	}
	if e = e.find(w, c); e != nil {
		e.run(w, c)
	}
}

// find is the entry that runs a command. If the call is wrong, it answers that, and returns nil.
func (e *entry) find(w *Reply, c *Command) *entry {
	if e.subs != nil && len(c.Args) > 1 {
		sub := e.subs[string(upperOf(c.Args[1]))]
		if sub == nil {
			w.unknownSub(strings.ToUpper(e.name), c.Args[1])
			return nil
		}
		e = sub
	}
	if n := len(c.Args); e.arity > 0 && n != e.arity || n < -e.arity {
		w.wrongArity(e.name)
		return nil
	}
	return e
}

// listSubs answers HELP of a command that has subcommands.
func (e *entry) listSubs(w *Reply, _ *Command) {
	w.Array(3 + 2*len(e.order))
	w.Simple(strings.ToUpper(e.name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
	for _, name := range e.order {
		w.Simple(name)
		w.Simple("    " + e.subs[name].help)
	}
	w.Simple("HELP")
	w.Simple("    Print this help.")
}

// list answers COMMAND [COUNT | LIST | INFO [name ...] | DOCS [name ...]].
func (m *Mux) list(w *Reply, c *Command) {
	names := slices.Clone(m.order)
	slices.Sort(names)
	if len(c.Args) > 2 {
		names = nil
		for _, a := range c.Args[2:] {
			names = append(names, string(upperOf(a)))
		}
	}
	switch {
	case len(c.Args) == 1:
		m.describe(w, names)
	case c.Is(1, "COUNT") && len(c.Args) == 2:
		w.Int(int64(len(m.order)))
	case c.Is(1, "LIST") && len(c.Args) == 2:
		w.Array(len(names))
		for _, name := range names {
			w.Text(strings.ToLower(name))
		}
	case c.Is(1, "INFO"):
		m.describe(w, names)
	case c.Is(1, "DOCS"):
		m.document(w, names)
	default:
		w.unknownSub("COMMAND", c.Args[1])
	}
}

// describe answers what COMMAND INFO does: name, arity, flags, and which arguments are keys, which
// is not known here.
func (m *Mux) describe(w *Reply, names []string) {
	w.Array(len(names))
	for _, name := range names {
		e := m.entries[name]
		if e == nil {
			w.NullArray()
			continue
		}
		w.Array(6)
		w.Text(e.name)
		w.Int(int64(e.arity))
		w.Set(0)
		w.Int(0)
		w.Int(0)
		w.Int(0)
	}
}

// document answers COMMAND DOCS.
func (m *Mux) document(w *Reply, names []string) {
	names = slices.DeleteFunc(names, func(name string) bool { return m.entries[name] == nil })
	w.Map(len(names))
	for _, name := range names {
		e := m.entries[name]
		w.Text(e.name)
		w.Map(1)
		w.Text("summary")
		w.Text(e.help)
	}
}

const (
	// maxNames bounds a lane's table, to which the server's own commands and the Mux's come
	// besides. Commands whose names are not in it run on the pool.
	maxNames = 1024
	// maxName is the longest name that is in it, in bytes.
	maxName = 64
)

// A name is what a lane knows of the commands with a name.
type name struct {
	dispatch.Record        // whether they are quick
	entry           *entry // of own, else of the Mux; nil: neither has it
	own             bool
	text            string // in capital letters
}

// names is a table of them, in capital letters and as they were sent. It is read without a lock.
type names struct {
	all atomic.Pointer[map[string]*name]
	mu  sync.Mutex // of those who add
}

// of finds a name, or adds it; nil: it is not known, and will not be.
func (t *names) of(l *live, sent []byte) *name {
	if len(sent) == 0 || len(sent) > maxName {
		return nil
	}
	all := t.all.Load()
	if n := (*all)[string(sent)]; n != nil {
		return n
	}
	var room [maxName]byte
	key := appendUpper(room[:0], sent)
	if n := (*all)[string(key)]; n != nil && len(*all) >= maxNames {
		return n
	}
	return t.add(l, string(sent), string(key))
}

func (t *names) add(l *live, sent, key string) *name {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := *t.all.Load()
	full := len(all) >= maxNames
	n := all[key]
	if n == nil {
		n = &name{text: key, entry: own.entries[key]}
		if n.own = n.entry != nil; !n.own && l.rules.mux != nil {
			n.entry = l.rules.mux.entries[key]
		}
		if n.entry == nil && (full || l.rules.mux != nil) { // peers may make names up
			return nil
		}
	}
	all = maps.Clone(all)
	if all[key] = n; !full {
		all[sent] = n
	}
	t.all.Store(&all)
	return n
}
