package push

import (
	"sync"
	"time"
)

// A slowDisconnect is one client that did not keep up, as the console shows it. The log has the
// same.
type slowDisconnect struct {
	At      time.Time `json:"at"`
	Client  string    `json:"client"`
	User    string    `json:"user,omitempty"`
	Channel string    `json:"channel,omitempty"` // whose publication had no room; empty: a reply or a ping
	Queued  int       `json:"queued"`            // bytes
}

// keptSlow is how many disconnected clients are remembered. Older ones are forgotten.
const keptSlow = 50

// A slowLog remembers the last of them. Any goroutine.
type slowLog struct {
	mu   sync.Mutex
	list []slowDisconnect // the oldest first
}

func (l *slowLog) add(d slowDisconnect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == keptSlow {
		l.list = append(l.list[:0], l.list[1:]...)
	}
	l.list = append(l.list, d)
}

func (l *slowLog) newestFirst() []slowDisconnect {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]slowDisconnect, 0, len(l.list))
	for i := range l.list {
		list = append(list, l.list[len(l.list)-1-i])
	}
	return list
}
