package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/websocket"
)

// A subscriber follows one channel in the Centrifuge protocol. When its connection ends, it
// connects to another node after the back-off of centrifuge-js, and recovers from its position.
type subscriber struct {
	*following
	channel, node int
	home          int // the node that it began at

	offset uint64
	epoch  string
	seen   atomic.Int64 // the last number received
	joined atomic.Int64 // how often it has been subscribed
	wrong  bool         // it missed a number, got one twice, or could not recover
}

// The back-off of centrifuge-js by default.
const (
	backOffLeast = 500 * time.Millisecond
	backOffMost  = 20 * time.Second
)

func (s *subscriber) run() {
	for failures := 0; s.ctx.Err() == nil; s.node++ {
		before := s.joined.Load()
		s.follow()
		if s.joined.Load() > before {
			failures = 0
		}
		spread := min(backOffMost, backOffLeast<<min(failures, 10))
		failures++
		pause := time.NewTimer(min(backOffMost, backOffLeast+rand.N(spread)))
		select {
		case <-pause.C:
		case <-s.ctx.Done():
			pause.Stop()
		}
	}
}

// patience is what centrifuge-js waits for an answer.
const patience = 5 * time.Second

// follow connects and reads until the connection ends.
func (s *subscriber) follow() {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+s.nodes[s.node%len(s.nodes)].public+"/connection/websocket", s.dial)
	if err != nil {
		return
	}
	defer conn.Abort(nil)
	subscribe := fmt.Sprintf(`{"channel":%q}`, s.name(s.channel))
	if s.epoch != "" {
		subscribe = fmt.Sprintf(`{"channel":%q,"recover":true,"offset":%d,"epoch":%q}`, s.name(s.channel), s.offset,
			s.epoch)
	}
	hello := `{"id":1,"connect":{}}` + "\n" + `{"id":2,"subscribe":` + subscribe + `}`
	if conn.Write(websocket.OpText, []byte(hello)) != nil {
		return
	}
	before := s.joined.Load()
	for {
		ctx, cancel := s.ctx, context.CancelFunc(func() {})
		if s.joined.Load() == before {
			ctx, cancel = context.WithTimeout(s.ctx, patience)
		}
		_, text, err := conn.Read(ctx)
		cancel()
		if err != nil {
			return
		}
		for line := range strings.Lines(string(text)) {
			if !s.take(line) {
				return
			}
		}
	}
}

// take handles one message. It returns false if the subscriber has to connect again.
func (s *subscriber) take(line string) bool {
	type publication struct {
		Data   int64
		Offset uint64
	}
	var m struct {
		Error     *struct{ Code int }
		Subscribe *struct {
			Recovered    bool
			Epoch        string
			Offset       uint64
			Publications []publication
		}
		Push *struct{ Pub *publication }
	}
	if json.Unmarshal([]byte(line), &m) != nil || m.Error != nil {
		return false
	}
	list := []publication{}
	if hello := m.Subscribe; hello != nil {
		s.wrong = s.wrong || s.epoch != "" && !hello.Recovered
		s.epoch, s.offset = hello.Epoch, hello.Offset
		list = hello.Publications
	}
	if m.Push != nil && m.Push.Pub != nil {
		list = append(list, *m.Push.Pub)
	}
	for _, p := range list {
		s.wrong = s.wrong || p.Data != s.seen.Load()+1
		s.seen.Store(p.Data)
		s.offset = max(s.offset, p.Offset)
	}
	if m.Subscribe != nil {
		s.joined.Add(1)
	}
	return true
}
