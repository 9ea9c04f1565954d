package natsbus

import (
	"context"
	"encoding/binary"

	"github.com/myriad-go/myriad/server/push/bus"
)

// presence collects the clients of a channel from all nodes. Nothing about it is stored: nothing
// can be stale.
type presence struct {
	registry  *registry
	questions *questions
}

// of returns the presence of a channel, with at most limit clients.
func (p *presence) of(ctx context.Context, channel string, limit int) (bus.Presence, error) {
	var all bus.Presence
	users := make(map[uint64]struct{})
	add := func(l roll) {
		all.Count += int(l.count)
		for _, u := range l.users {
			users[u] = struct{}{}
		}
		all.Clients = append(all.Clients, l.clients[:min(len(l.clients), limit-len(all.Clients))]...)
	}
	add(rollOf(p.here(channel), limit))
	question := append(binary.AppendUvarint(nil, uint64(limit)), channel...)
	missing, err := p.questions.ask(ctx, questionPresent, question, func(answer []byte) {
		r := reader{rest: answer}
		if l := r.roll(); !r.wrong {
			add(l)
		}
	})
	all.Users, all.Missing = len(users), missing
	return all, err
}

func (p *presence) here(channel string) (list []bus.ClientInfo) {
	p.registry.tell(channel, func(r bus.Receiver) { list = r.Present(channel, list) })
	return list
}

// answer returns this node's part of the presence, for another node.
func (p *presence) answer(body []byte) []byte {
	r := reader{rest: body}
	limit := r.number()
	return rollOf(p.here(string(r.rest)), int(min(limit, 1<<20))).append(nil)
}

// A roll is one node's part of a presence.
type roll struct {
	count   uint64
	users   []uint64 // hashes of distinct users
	clients []bus.ClientInfo
}

func rollOf(list []bus.ClientInfo, limit int) roll {
	r := roll{count: uint64(len(list)), clients: list[:min(limit, len(list))]}
	seen := make(map[string]struct{})
	for _, c := range list {
		if _, known := seen[c.User]; !known {
			seen[c.User] = struct{}{}
			r.users = append(r.users, hash64(c.User))
		}
	}
	return r
}

func (l roll) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, l.count)
	dst = binary.AppendUvarint(dst, uint64(len(l.users)))
	for _, u := range l.users {
		dst = binary.BigEndian.AppendUint64(dst, u)
	}
	dst = binary.AppendUvarint(dst, uint64(len(l.clients)))
	for _, c := range l.clients {
		dst = appendInfo(dst, c)
	}
	return dst
}

func (r *reader) roll() (l roll) {
	l.count = r.number()
	n := r.number()
	if n > uint64(len(r.rest))/8 {
		r.wrong = true
		return l
	}
	for range n {
		l.users = append(l.users, binary.BigEndian.Uint64(r.rest))
		r.rest = r.rest[8:]
	}
	n = r.number()
	if n > uint64(len(r.rest))/4 { // each client has at least four bytes
		r.wrong = true
		return l
	}
	for range n {
		l.clients = append(l.clients, r.info())
	}
	return l
}
