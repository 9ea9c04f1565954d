package main

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// shards is how many maps the keys are spread over, each with its lock.
const shards = 256

// A store is keys with their values.
type store struct {
	seed   maphash.Seed
	shards [shards]shard
	now    func() time.Time
	cursor atomic.Uint32 // the shard that sweep looks at next
	expiry atomic.Int64  // keys that have a time
}

type shard struct {
	mu   sync.RWMutex
	keys map[string]*item
}

// An item is a string, or a hash if fields is not nil.
type item struct {
	text    []byte
	fields  map[string][]byte
	expires int64 // in nanoseconds of Unix; 0: never
}

func newStore(now func() time.Time) *store {
	s := &store{seed: maphash.MakeSeed(), now: now}
	for i := range s.shards {
		s.shards[i].keys = map[string]*item{}
	}
	return s
}

func (s *store) of(key []byte) *shard { return &s.shards[maphash.Bytes(s.seed, key)%shards] }

// due reports whether an item's time is over. An item that is due counts as gone.
func (s *store) due(it *item) bool { return it.expires != 0 && s.now().UnixNano() >= it.expires }

// view calls f with a key's item, or nil, under the lock of readers.
func (s *store) view(key []byte, f func(it *item)) {
	sh := s.of(key)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	it := sh.keys[string(key)]
	if it != nil && s.due(it) {
		it = nil
	}
	f(it)
}

// change calls f with a key's item, or nil, and replaces it by what f returns; nil removes it.
func (s *store) change(key []byte, f func(it *item) *item) {
	sh := s.of(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	before := sh.keys[string(key)]
	live := before
	if before != nil && s.due(before) {
		live = nil
	}
	had := before != nil && before.expires != 0
	after := f(live)
	if after != nil && after.expires != 0 != had {
		s.expiry.Add(map[bool]int64{true: -1, false: 1}[had])
	}
	switch {
	case after == nil && before != nil:
		delete(sh.keys, string(key))
		if had {
			s.expiry.Add(-1)
		}
	case after != nil && after != before:
		if before != nil {
			*before = *after // the map keeps its key
		} else {
			sh.keys[string(key)] = after
		}
	}
}

// set sets a string. It keeps the memory of the one before where that fits.
func (s *store) set(key, text []byte, expires int64) {
	s.change(key, func(it *item) *item {
		if it == nil || it.fields != nil {
			it = &item{}
		}
		// A reader has copied what it has seen before it gave the lock back.
		it.text = append(it.text[:0], text...)
		it.expires = expires
		return it
	})
}

// remove removes a key, and reports whether it was there.
func (s *store) remove(key []byte) (was bool) {
	s.change(key, func(it *item) *item {
		was = it != nil
		return nil
	})
	return was
}

// each calls f with all items, a shard after the other, under the locks of readers, until it
// returns false.
func (s *store) each(f func(key string, it *item) bool) {
	for i := range s.shards {
		if !s.eachOf(&s.shards[i], f) {
			return
		}
	}
}

func (s *store) eachOf(sh *shard, f func(key string, it *item) bool) bool {
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	for key, it := range sh.keys {
		if !s.due(it) && !f(key, it) {
			return false
		}
	}
	return true
}

// sweep removes items that are due from a few shards. It is called now and then, so that keys which
// are not asked for go, too.
func (s *store) sweep() {
	for range shards / 16 {
		sh := &s.shards[s.cursor.Add(1)%shards]
		sh.mu.Lock()
		for key, it := range sh.keys {
			if s.due(it) {
				delete(sh.keys, key)
				s.expiry.Add(-1)
			}
		}
		sh.mu.Unlock()
	}
}

// size is how many keys there are.
func (s *store) size() (n int) {
	for i := range s.shards {
		s.shards[i].mu.RLock()
		n += len(s.shards[i].keys)
		s.shards[i].mu.RUnlock()
	}
	return n
}

func (s *store) clear() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, it := range sh.keys {
			if it.expires != 0 {
				s.expiry.Add(-1)
			}
		}
		clear(sh.keys)
		sh.mu.Unlock()
	}
}
