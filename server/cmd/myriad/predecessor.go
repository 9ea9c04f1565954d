package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/myriad-go/myriad/handover"
)

// This file is how a server finds the process whose place it takes: that one has started it, or
// listens on the path of --handover.

// findPredecessor finds the process that listens on the path of --handover. Without one, this
// server starts afresh.
func (s *settings) findPredecessor() error {
	if s.predecessor != nil || s.handover == "" {
		return nil
	}
	if err := checkSocket(s.handover); err != nil {
		return fmt.Errorf("--handover %q: %w", s.handover, err)
	}
	nc, err := handover.Dial(s.handover)
	switch {
	case err == nil:
		s.predecessor, s.byPath = nc, true
		return nil
	case isNobody(err):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("--handover %q: %w: a server of another user listens on it", s.handover, cause(err))
	}
	return fmt.Errorf("--handover %q: %w", s.handover, cause(err))
}

// enter asks the predecessor to hand over. The messages of package handover come next.
func (r *running) enter() (err error) {
	var a answer
	_ = r.predecessor.SetReadDeadline(time.Now().Add(requestWait)) // if it fails, reading does
	a, r.inherited, err = ask(r.predecessor, takeRequest)
	switch {
	case err != nil:
		err = fmt.Errorf("the predecessor: %w", err)
	case a.Refused != "":
		err = fmt.Errorf("the predecessor refuses to hand over: %s", a.Refused)
	}
	if err != nil && r.byPath {
		err = fmt.Errorf("--handover %q: %w", r.handover, err)
	}
	if r.former = a.Path; r.byPath {
		r.former = r.handover // the predecessor may know it by another path
	}
	return err
}

// openHandovers listens for new servers, and for myriad upgrade. It does nothing
// without --handover.
func (r *running) openHandovers() (*handoverSocket, error) {
	from := r.inherited
	switch r.inherited = nil; {
	case from != nil && r.former == r.handover:
		return inheritHandovers(r.handover, from)
	case from != nil:
		_ = from.Close()
	}
	if r.handover == "" {
		return nil, nil
	}
	return listenForHandovers(r.handover)
}

// leaveFormerPath removes the socket of the predecessor if this server listens elsewhere: no
// process serves it any more.
func (r *running) leaveFormerPath() {
	if r.former != "" && r.former != r.handover {
		if err := os.Remove(r.former); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.log.Warn("myriad: the socket of the other process stays, and leads to none", "error", err)
		}
	}
}
