package hub

import (
	"fmt"
	"slices"
	"sync"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// This file announces the leaving of clients that stay in the old process. Their subscriptions end
// with its bus, so the old process cannot announce that. The state lists all whose leaving is
// announced. The new process strikes out those that come, and announces the others when it thaws.

// presentPart is a client whose leaving a channel announces: its id, the channel, and what others
// know of it.
const presentPart = "hub.present.1"

// writePresent writes the subscriptions whose end is announced.
func (h *Hub) writePresent(w *snapshot.Writer) error {
	var record []byte
	for _, s := range h.wheel.all() {
		if s.watcher {
			continue
		}
		var announced []*member
		s.mu.Lock()
		for _, m := range s.members {
			if m.announced() {
				announced = append(announced, m)
			}
		}
		s.mu.Unlock()
		for _, m := range announced {
			info := m.info()
			record = snapshot.AppendText(append(record[:0], s.id[:]...), m.ch.name)
			record = snapshot.AppendText(snapshot.AppendText(record, info.Client), info.User)
			record = snapshot.AppendText(snapshot.AppendText(record, info.ConnInfo), info.ChanInfo)
			if err := w.Record(presentPart, record); err != nil {
				return err
			}
		}
	}
	return nil
}

// present are clients of another process that have not come yet. Their sessions come on several
// loops at the same time.
type present struct {
	mu  sync.Mutex
	all map[clientID][]presence
}

// A presence is a client in a channel, as others know it.
type presence struct {
	channel string
	bus.ClientInfo
}

// record reads a record of presentPart.
func (p *present) record(f *snapshot.Fields) {
	var id clientID
	f.Fixed(id[:])
	one := presence{f.Text(), bus.ClientInfo{Client: f.Text(), User: f.Text(), ConnInfo: f.Clone(),
		ChanInfo: f.Clone()}}
	if f.Failed() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(p.all[id], func(other presence) bool { return other.channel == one.channel }) {
		f.Fail(fmt.Sprintf("a client is in the channel %q twice", one.channel))
		return
	}
	if p.all == nil {
		p.all = make(map[clientID][]presence)
	}
	p.all[id] = append(p.all[id], one)
}

// come strikes out a client that has come.
func (p *present) come(id clientID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, id)
}

// announceLeft announces the leaving of those that have not come.
func (h *Hub) announceLeft(p *present) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.all {
		for _, one := range list {
			h.busClient.announce(one.channel, bus.Notice{ClientInfo: one.ClientInfo})
		}
	}
}
