package resp

import (
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/internal/dispatch"
)

const (
	// maxNames bounds a lane's table, to which the server's own commands come besides. Commands
	// whose names are not in it run on the pool.
	maxNames = 1024
	// maxName is the longest name that is in it, in bytes.
	maxName = 64
)

// A name is what a lane knows of the commands with a name.
type name struct {
	dispatch.Record // whether they are quick
	own             func(*work)
	entry           *entry // of the Mux; nil: it has none, or is none
	text            string // in capital letters
}

// names is a table of them. It is read without a lock.
type names struct {
	all   atomic.Pointer[map[string]*name]
	fresh [64]atomic.Pointer[sentName]
	mu    sync.Mutex // of those who add
}

// A sentName is a name as it was sent, which is found by comparing. It stays where it is.
type sentName struct {
	sent string
	name *name
}

// of finds a name, or adds it; nil: it is not known, and will not be.
func (t *names) of(l *live, sent []byte) *name {
	if len(sent) == 0 || len(sent) > maxName {
		return nil
	}
	place := &t.fresh[(len(sent)*7+int(sent[0])*3+int(sent[len(sent)-1]))%len(t.fresh)]
	first := place.Load()
	if first != nil && first.sent == string(sent) {
		return first.name
	}
	var room [maxName]byte
	key := room[:len(sent)]
	for i, b := range sent {
		key[i] = upper(b)
	}
	var found *name
	if all := t.all.Load(); all != nil {
		found = (*all)[string(key)]
	}
	if found == nil {
		found = t.add(l, string(key))
	}
	if first == nil && found != nil {
		place.Store(&sentName{string(sent), found})
	}
	return found
}

func (t *names) add(l *live, key string) *name {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.all.Load()
	all := map[string]*name{}
	if before != nil {
		if n := (*before)[key]; n != nil {
			return n
		}
		if len(*before) >= maxNames && own[key] == nil {
			return nil
		}
		for k, n := range *before {
			all[k] = n
		}
	}
	n := &name{text: key, own: own[key]}
	if l.mux != nil {
		if n.entry = l.mux.entries[key]; n.entry == nil && n.own == nil {
			return nil // peers may make names up
		}
	}
	all[key] = n
	t.all.Store(&all)
	return n
}
