package sim

import (
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/internal/driver"
)

// An actor is a goroutine of the world.
type actor struct {
	name    string
	f       func()
	resume  chan struct{}
	goid    uint64
	started bool
	killed  bool
	task    *executor // of a task: the actor that took it
	doing   string    // what it waits in, for messages
	failure any       // what it panicked with
	stack   []byte
	done    bool
}

// Go starts a goroutine of the world; it runs when the seed says so. It implements driver.System.
func (w *World) Go(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spawn("go", f)
}

// spawn registers an actor. The lock is held.
func (w *World) spawn(what string, f func()) *actor {
	w.born++
	name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	a := &actor{name: fmt.Sprintf("%s#%d(%s)", what, w.born, name), f: f, resume: make(chan struct{})}
	w.actors = append(w.actors, a)
	w.setRunnable(a)
	return a
}

func (w *World) setRunnable(a *actor) {
	w.runnable = append(w.runnable, a)
	w.poke()
}

// main is what runs on the actor's goroutine. It ends with the token handed back, also after a
// panic or a Goexit.
func (a *actor) main(w *World) {
	defer func() {
		if v := recover(); v != nil {
			a.failure, a.stack = v, debug.Stack()
		}
		w.mu.Lock()
		a.done = true
		w.mu.Unlock()
		w.back <- a
	}()
	w.mu.Lock()
	a.goid = driver.Goroutine()
	w.mu.Unlock()
	mark()
	a.f()
}

// mark marks the calling goroutine as an actor's until it ends. The mark is the one flag of a
// goroutine that the runtime lets a program set and read: whether a memory fault panics. Its number
// would do as well, but reading that takes as long as printing the whole stack.
func mark() { debug.SetPanicOnFault(true) }

// marked reports whether the calling goroutine is an actor's.
func marked() bool {
	if debug.SetPanicOnFault(true) {
		return true
	}
	debug.SetPanicOnFault(false)
	return false
}

// run gives a the token and waits until it comes back. The lock is held, and released meanwhile.
func (w *World) run(a *actor) {
	w.current = a
	w.note(a.name, "run", 0, 0)
	w.mu.Unlock()
	if !a.started {
		a.started = true
		go a.main(w)
	} else {
		a.resume <- struct{}{}
	}
	inTime := w.awaitToken()
	w.mu.Lock()
	if !inTime {
		w.fail("%s has not handed the token back for %v: it waits for something that the world does not know of, or "+
			"runs without end\n%s",
			a.name, w.o.Stall, stackOf(a.goid))
	}
	w.current = nil
	if a.done {
		w.bury(a)
	}
}

func (w *World) bury(a *actor) {
	if i := slices.Index(w.actors, a); i >= 0 {
		w.actors = slices.Delete(w.actors, i, i+1)
	}
	a.f = nil // what it refers to is garbage now
	if a.task != nil {
		w.tasks.ended(w, a.task)
	}
	if a.failure != nil {
		w.fail("%s panicked: %v\n%s\nlast steps:\n%s", a.name, a.failure, a.stack, w.trace.tail(tailLines))
	}
}

// handBack gives the token back and returns when a has it again. The lock is held, and released
// meanwhile.
func (w *World) handBack(a *actor) {
	w.mu.Unlock()
	w.back <- a
	<-a.resume
	w.mu.Lock()
	if a.killed {
		w.mu.Unlock()
		defer w.mu.Lock() // callers unlock by defer
		runtime.Goexit()
	}
}

// caller is the actor that calls, or nil for a goroutine outside. Only the current actor runs, so
// that no other one can be the caller. The lock is held.
func (w *World) caller() *actor {
	if w.current == nil || !marked() {
		return nil
	}
	return w.current
}

// identity is the number of the calling goroutine, and its actor, nil outside. The lock is held.
func (w *World) identity() (goid uint64, a *actor) {
	if a := w.caller(); a != nil {
		return a.goid, a
	}
	return driver.Goroutine(), nil
}
