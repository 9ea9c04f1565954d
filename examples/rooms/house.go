package main

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/websocket"
)

const (
	maxRooms = 10_000
	maxLine  = 4 << 10
	maxLines = 50 // that a newcomer gets
)

var errFull = errors.New("there are too many rooms")

// A house is the rooms by their names. A room exists while it has a guest.
type house struct {
	options *websocket.Options

	mu    sync.Mutex
	rooms map[string]*room
}

// A room keeps what was said last beside its group.
type room struct {
	group  websocket.Group
	guests int // kept by the house, under its lock

	mu     sync.Mutex // held while a line is said, so that a newcomer gets each line once, in order
	recent []*websocket.Prepared
	lines  []string // the same, for a new process
}

// A guest is the Value of a connection.
type guest struct {
	name, room string
	in         *room // from OnOpen on
}

func newHouse() *house {
	h := &house{rooms: map[string]*room{}}
	h.options = &websocket.Options{
		MaxMessage:   maxLine,
		PingInterval: 30 * time.Second,
		OnOpen:       h.enter,
		OnMessage:    say,
		OnClose:      h.leave,
		FreezeValue:  h.freezeGuest,
		ThawValue:    h.thawGuest,
	}
	return h
}

// enter is OnOpen.
func (h *house) enter(c *websocket.Conn) {
	g := c.Value().(*guest)
	r, err := h.room(g.room)
	if err != nil {
		c.Close(websocket.StatusTryAgainLater, err.Error())
		return
	}
	g.in = r
	if err := r.join(c); err != nil {
		c.Abort(nil)
		return
	}
	r.say(g.name + " has come")
}

// room finds a room, or opens it, and counts one more guest.
func (h *house) room(name string) (*room, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rooms[name]
	if r == nil {
		if len(h.rooms) >= maxRooms {
			return nil, errFull
		}
		r = &room{}
		h.rooms[name] = r
	}
	r.guests++
	return r, nil
}

// join sends what was said last, and then makes c a member. No line is said between the two.
func (r *room) join(c *websocket.Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.recent {
		if err := c.WritePrepared(line); err != nil {
			return err
		}
	}
	_, err := r.group.Join(c)
	return err
}

// say is OnMessage.
func say(c *websocket.Conn, _ websocket.Op, p []byte) {
	g := c.Value().(*guest)
	g.in.say(g.name + ": " + string(p))
}

// say sends a line to all guests, and keeps it for those that come later.
func (r *room) say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if message := r.keep(line); message != nil {
		r.group.SendPrepared(message)
	}
}

// keep frames a line, and keeps it; nil if it is not UTF-8, as the name of a guest may be. mu is
// held.
func (r *room) keep(line string) *websocket.Prepared {
	message, err := websocket.Prepare(websocket.OpText, []byte(line))
	if err != nil {
		return nil
	}
	if len(r.recent) == maxLines {
		r.recent[0].Release()
		r.recent, r.lines = slices.Delete(r.recent, 0, 1), slices.Delete(r.lines, 0, 1)
	}
	r.recent, r.lines = append(r.recent, message), append(r.lines, line)
	return message
}

// leave is OnClose. The membership in the group has ended by itself.
func (h *house) leave(c *websocket.Conn, _ error) {
	g := c.Value().(*guest)
	if g.in == nil {
		return // there was no room
	}
	g.in.say(g.name + " has left")
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.in.guests--; g.in.guests == 0 {
		delete(h.rooms, g.room)
		g.in.forget()
	}
}

// forget gives the memory of what was said back.
func (r *room) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.recent {
		line.Release()
	}
	r.recent, r.lines = nil, nil
}

// guests lists the names in each room.
func (h *house) guests() map[string][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := map[string][]string{}
	for name, r := range h.rooms {
		for c := range r.group.All() {
			list[name] = append(list[name], c.Value().(*guest).name)
		}
		slices.Sort(list[name])
	}
	return list
}

// kick closes the connections of a guest with a reason that the client sees.
func (h *house) kick(room, name string) (found bool) {
	h.mu.Lock()
	r := h.rooms[room]
	h.mu.Unlock()
	if r == nil {
		return false
	}
	for c := range r.group.All() {
		if c.Value().(*guest).name == name {
			found = true
			c.Close(websocket.StatusPolicyViolation, "you were asked to leave")
		}
	}
	return found
}
