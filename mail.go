package myriad

import (
	"reflect"
	"runtime/debug"
	"sync"
)

// This file is what a loop does for functions: those that other goroutines give it, and Later's.

// mailbox holds what other goroutines ask of the loop itself.
type mailbox struct {
	mu     sync.Mutex
	funcs  []func()
	closed bool
}

// Do has f called on the loop, soon. f must not block. It fails with ErrBusy when Config.Mailbox
// functions wait already and with ErrClosed after the engine's shutdown. Any goroutine; never
// blocks.
func (l *Loop) Do(f func()) error {
	l.mail.mu.Lock()
	switch {
	case l.mail.closed:
		l.mail.mu.Unlock()
		return ErrClosed
	case len(l.mail.funcs) >= l.engine.cfg.Mailbox:
		l.mail.mu.Unlock()
		l.stats.busy.Add(1)
		return ErrBusy
	}
	l.mail.funcs = append(l.mail.funcs, f)
	l.mail.mu.Unlock()
	l.wakeIf(true)
	return nil
}

// Later has f called when this turn's events have been handled: what they have gathered can be
// passed on in one go. Called by such a function, it is for the next turn; after the loop's last
// one nothing is called. On the loop only.
func (l *Loop) Later(f func()) { l.work.after.add(f) }

// Post is Do without the limit of Config.Mailbox. It is for the few calls that must not fail for
// want of room, such as the end of a server. It reports false after the engine's shutdown. Any
// goroutine; never blocks.
func (l *Loop) Post(f func()) bool {
	l.mail.mu.Lock()
	ok := !l.mail.closed
	if ok {
		l.mail.funcs = append(l.mail.funcs, f)
	}
	l.mail.mu.Unlock()
	l.wakeIf(ok)
	return ok
}

// finish closes the mailbox if nothing has come in meanwhile, and reports whether the loop is done.
func (l *Loop) finish() bool {
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	if len(l.mail.funcs) > 0 || !l.work.funcs.empty() || !l.intake.empty() {
		return false
	}
	l.mail.closed = true
	return true
}

func (l *Loop) readMail() {
	l.takeMail()
	l.admitAll()
	l.runAll(&l.work.funcs)
}

// takeMail takes up what is in the mailbox. What a goroutine has left of it before it ended comes
// first, and the new in the next turn.
func (l *Loop) takeMail() {
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	l.work.funcs.refill(&l.mail.funcs)
	l.intake.takeUp()
}

func (l *Loop) runAll(fs *batch[func()]) {
	if !fs.empty() {
		l.current.Store(nil)
		l.owing = true
	}
	for f, ok := fs.take(); ok; f, ok = fs.take() {
		l.guard(f)
		l.switchHandlers()
	}
}

// runAfter runs what Later was given in this turn. What that gives to Later again waits for the
// next turn.
func (l *Loop) runAfter() {
	l.work.after.renew()
	l.runAll(&l.work.after.batch)
}

// guard runs a user's function so that its panic, or its end by runtime.Goexit, costs no other
// connection.
func (l *Loop) guard(f func()) {
	t := reflect.TypeOf(f)
	began, returned := l.calling(t), false
	defer func() {
		v := recover()
		if l.called(t, began); returned {
			return
		}
		if v == nil {
			v = l.exit()
		}
		l.engine.cfg.Logger.Error("myriad: panic in a function given to the loop", "panic", v, "stack",
			string(debug.Stack()))
	}()
	f()
	returned = true
}
