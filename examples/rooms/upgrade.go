package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/handover"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// program is what moves to a new process.
func (h *house) program(e *myriad.Engine, s *web.Server) (*handover.Program, error) {
	sockets, err := h.options.Thawer()
	if err != nil {
		return nil, err
	}
	pages, err := s.Thawer()
	return &handover.Program{
		Engine:  e,
		Servers: map[string]myriad.Thawer{"sockets": sockets, "pages": pages},
		States:  map[string]handover.State{"house": h},
	}, err
}

// upgrade starts the program anew, as it was started, and hands over to it. The name of its command
// may be a link that leads to another binary now: os.Executable would name the old one.
func upgrade(p *handover.Program) error {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	nc, err := handover.Start(cmd)
	if err != nil {
		return err
	}
	given, err := handover.Give(nc, p)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), restWait)
	defer cancel()
	result, err := given.MoveRest(ctx)
	if err != nil {
		log.Print("what is left ends here: ", err)
	}
	log.Printf("%d connections have moved, %d end here", result.Moved, result.Left)
	return nil
}

// restWait is how long requests under way have to be answered, so that their connections move, too.
const restWait = 10 * time.Second

// A frozenGuest is a guest on its way.
type frozenGuest struct{ Name, Room string }

// freezeGuest is FreezeValue.
func (h *house) freezeGuest(c *websocket.Conn, dst []byte) ([]byte, error) {
	g := c.Value().(*guest)
	p, err := json.Marshal(frozenGuest{g.name, g.room})
	return append(dst, p...), err
}

// thawGuest is ThawValue: a guest is in its room again, without a word to the others.
func (h *house) thawGuest(c *websocket.Conn, state []byte) error {
	var f frozenGuest
	if err := json.Unmarshal(state, &f); err != nil {
		return err
	}
	g := &guest{name: f.Name, room: f.Room}
	r, err := h.room(g.room)
	if err != nil {
		return err
	}
	g.in = r
	c.SetValue(g)
	_, err = r.group.Join(c)
	return err
}

// Formats implements handover.State.
func (h *house) Formats() []string { return []string{"house/1"} }

// Freeze writes down what was said last in each room. No guest says anything while all connections
// are frozen.
func (h *house) Freeze(w io.Writer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	said := map[string][]string{}
	for name, r := range h.rooms {
		r.mu.Lock()
		said[name] = r.lines
		r.mu.Unlock()
	}
	return json.NewEncoder(w).Encode(said)
}

// Thaw opens the rooms anew. The guests come after that.
func (h *house) Thaw(_ string, r io.Reader) error {
	var said map[string][]string
	if err := json.NewDecoder(r).Decode(&said); err != nil {
		return err
	}
	if len(said) > maxRooms {
		return fmt.Errorf("%d rooms: %w", len(said), errFull)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, lines := range said {
		r := &room{}
		for _, line := range lines {
			r.keep(line)
		}
		h.rooms[name] = r
	}
	return nil
}

// GoOn closes rooms whose guests have not come.
func (h *house) GoOn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, r := range h.rooms {
		if r.guests == 0 {
			delete(h.rooms, name)
			r.forget()
		}
	}
}

// Moved has guests that have not moved come back to the new process. Here they would miss what is
// said there.
func (h *house) Moved() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.rooms {
		_ = r.group.Close(websocket.StatusServiceRestart, "come back")
	}
}
