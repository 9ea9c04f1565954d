package harness

import "sync"

// A Room sends every message to all of its members. It is the broadcast of the rivals; each
// supplies its library's member type and its way to send a message encoded once.
type Room[C comparable] struct {
	mu      sync.Mutex
	members map[C]struct{}
}

// Join adds a member.
func (r *Room[C]) Join(c C) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.members == nil {
		r.members = map[C]struct{}{}
	}
	r.members[c] = struct{}{}
}

// Leave removes a member.
func (r *Room[C]) Leave(c C) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.members, c)
}

// Each calls send for every member, one message at a time. send must not call Join or Leave.
func (r *Room[C]) Each(send func(C)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.members {
		send(c)
	}
}
