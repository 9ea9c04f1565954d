package push

import (
	"sync"
	"time"
)

// A SlowClient describes one slow client for the console. The log line has the same values.
type SlowClient struct {
	At      time.Time `json:"at"`
	Client  string    `json:"client"`
	User    string    `json:"user,omitempty"`
	Channel string    `json:"channel,omitempty"` // whose publication had no room; empty: a reply or a ping
	Queued  int       `json:"queued"`            // bytes
}

// keptSlow is how many slow clients a slowLog keeps.
const keptSlow = 50

// A slowLog keeps the latest slow clients. Any goroutine may call it.
type slowLog struct {
	mu   sync.Mutex
	list []SlowClient // oldest first
}

func (l *slowLog) add(d SlowClient) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == keptSlow {
		l.list = append(l.list[:0], l.list[1:]...)
	}
	l.list = append(l.list, d)
}

func (l *slowLog) newestFirst() []SlowClient {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]SlowClient, 0, len(l.list))
	for i := range l.list {
		list = append(list, l.list[len(l.list)-1-i])
	}
	return list
}
