package redis

import (
	"maps"
	"slices"

	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// This file moves clients to another process: what they have authenticated as, their sessions with
// the subscriptions, their patterns, and the commands of a transaction that they have begun.

// letMove sets what a server needs, so that its connections can move.
func (d *Door) letMove(s *resp.Server) {
	s.FreezeValue = d.freeze
	s.ThawValue = d.thaw
	s.OnMoved = d.moved
}

// freeze appends what the door knows of a client. The hub is frozen.
func (d *Door) freeze(c *resp.Conn, dst []byte) ([]byte, error) {
	k := clientOf(c)
	known := k != nil && !k.hasEnded()
	if dst = snapshot.AppendBool(dst, known); !known {
		return dst, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	dst = snapshot.AppendBool(k.grant.AppendState(dst), k.publisher)
	for i, s := range k.sessions {
		if dst = snapshot.AppendBool(dst, s != nil); s != nil {
			state, ok := s.AppendState(nil)
			if !ok {
				return nil, hub.ErrNotAtRest
			}
			dst = snapshot.AppendBool(dst, s.Form().(form).protocol == resp.RESP3)
			dst = snapshot.AppendText(dst, state)
		}
		dst = snapshot.AppendTexts(dst, slices.Sorted(maps.Keys(k.channels[i])))
	}
	dst = snapshot.AppendTexts(dst, slices.Sorted(maps.Keys(k.patterns)))
	return k.transaction.appendState(dst), nil
}

// appendState appends a transaction; t may be nil.
func (t *transaction) appendState(dst []byte) []byte {
	if dst = snapshot.AppendBool(dst, t != nil); t == nil {
		return dst
	}
	dst = snapshot.AppendNumber(snapshot.AppendBool(dst, t.broken), uint64(len(t.queued)))
	for _, args := range t.queued {
		dst = snapshot.AppendNumber(dst, uint64(len(args)))
		for _, a := range args {
			dst = snapshot.AppendText(dst, a)
		}
	}
	return dst
}

func readTransaction(f *snapshot.Fields) *transaction {
	if !f.Bool() {
		return nil
	}
	t := &transaction{broken: f.Bool()}
	for n := f.Count(); n > 0 && !f.Failed(); n-- {
		var args [][]byte
		for left := f.Count(); left > 0 && !f.Failed(); left-- {
			args = append(args, append([]byte{}, f.Bytes()...))
		}
		if len(args) == 0 {
			f.Fail("a command of a transaction has no name")
		}
		t.queued, t.bytes = append(t.queued, args), t.bytes+queuedSize(args)
	}
	return t
}

// thaw goes on with a client of another process. Nothing is sent.
func (d *Door) thaw(c *resp.Conn, state []byte) error {
	f := snapshot.NewFields(state)
	if !f.Bool() {
		return f.Done()
	}
	k := d.client(c)
	k.grant, k.publisher = d.hub.ReadGrant(f), f.Bool()
	for i := range k.sessions {
		if f.Bool() {
			of := form{protocol: resp.RESP2, sharded: i == 1}
			if f.Bool() {
				of.protocol = resp.RESP3
			}
			s, err := d.hub.ThawSession(transport{c}, of, f.Bytes())
			if err != nil {
				return err
			}
			k.sessions[i] = s
		}
		for _, name := range f.Texts() {
			k.channels[i][name] = struct{}{}
		}
	}
	list := f.Texts()
	k.transaction = readTransaction(f)
	if len(list) > 0 && k.sessions[0] == nil {
		f.Fail("a client has patterns and no session")
	}
	if err := f.Done(); err != nil {
		return err
	}
	for _, pattern := range list {
		k.patterns[pattern] = struct{}{}
	}
	if len(list) > 0 && !d.patterns.join(d, k, k.sessions[0], list, func() {}) {
		return errTooManyPatterns
	}
	return nil
}

// moved drops a client that goes on in another process. Its sessions announce nothing.
func (d *Door) moved(c *resp.Conn) {
	k := clientOf(c)
	if k == nil {
		return
	}
	k.mu.Lock()
	sessions := k.sessions
	k.sessions = [2]*hub.Session{}
	k.mu.Unlock()
	d.end(k)
	for _, s := range sessions {
		if s != nil {
			s.Moved()
		}
	}
}
