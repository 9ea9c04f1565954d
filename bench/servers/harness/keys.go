package harness

import "sync"

// Keys are the strings that servers of the Redis protocol keep: one map under one lock, for all of
// them.
type Keys struct {
	mu  sync.Mutex
	all map[string][]byte
}

// Set keeps a copy of the value, in the memory of the one before where that fits.
func (k *Keys) Set(key, value []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[string][]byte{}
	}
	if before, ok := k.all[string(key)]; ok && len(before) == len(value) {
		copy(before, value)
		return
	}
	k.all[string(key)] = append([]byte(nil), value...)
}

// AppendGet appends the value to dst.
func (k *Keys) AppendGet(dst, key []byte) (_ []byte, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	value, ok := k.all[string(key)]
	return append(dst, value...), ok
}
