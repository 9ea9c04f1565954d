package handover

import (
	"encoding/binary"
	"fmt"
	"io"
)

// This file is how a State goes over: as messages of one piece each, of which an empty one is the
// last. So both processes have one piece in memory, and a slow one has the other one wait.

// A stateWriter sends what is written to it.
type stateWriter struct {
	g    *giver
	body []byte // of the next message: the number of the state, and what was written
	head int    // bytes of the number
	err  error  // of a send; it stays
}

func (g *giver) stateWriter(number uint64) *stateWriter {
	size := g.piece
	if size == 0 {
		size = statePiece
	}
	head := binary.AppendUvarint(nil, number)
	return &stateWriter{g: g, body: append(make([]byte, 0, len(head)+size), head...), head: len(head)}
}

// Write implements io.Writer.
func (w *stateWriter) Write(p []byte) (n int, err error) {
	for w.err == nil && len(p) > 0 {
		m := min(len(p), cap(w.body)-len(w.body))
		w.body = append(w.body, p[:m]...)
		n, p = n+m, p[m:]
		if len(w.body) == cap(w.body) {
			w.send()
		}
	}
	return n, w.err
}

func (w *stateWriter) send() {
	if w.err == nil {
		w.err = w.g.send(message{kind: state, body: w.body})
		w.body = w.body[:w.head]
	}
}

// end sends what is left, and the empty piece.
func (w *stateWriter) end() error {
	if len(w.body) > w.head {
		w.send()
	}
	w.send()
	return w.err
}

// A stateReader receives what a stateWriter sends.
type stateReader struct {
	t      *Taken
	number uint64
	piece  []byte // that was received and not read
	err    error  // why no more comes: io.EOF after the last piece
}

// Read implements io.Reader.
func (r *stateReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.piece) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.receive()
	}
	n := copy(p, r.piece)
	r.piece = r.piece[n:]
	return n, nil
}

// receive waits for the next piece.
func (r *stateReader) receive() {
	m, err := r.t.receive()
	if err == nil {
		r.piece, err = r.parse(&m)
	}
	r.err = err
}

// parse returns the piece in a message, or io.EOF for the empty one.
func (r *stateReader) parse(m *message) ([]byte, error) {
	if err := m.expect(state); err != nil {
		return nil, err
	}
	body := &reader{p: m.body}
	number := body.uint(maxNames)
	switch {
	case body.err != nil || number != r.number:
		return nil, fmt.Errorf("handover: state: %w: state %d, and not %d", ErrProtocol, number, r.number)
	case len(body.p) == 0:
		return nil, io.EOF
	}
	return body.p, nil
}

// skip passes over what was not read.
func (r *stateReader) skip() error {
	for r.err == nil {
		r.receive()
	}
	return r.failure()
}

// failure returns why the state has not come as a whole; nil if it has, or still comes.
func (r *stateReader) failure() error {
	if r.err == io.EOF {
		return nil
	}
	return r.err
}
