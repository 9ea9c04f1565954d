// Package snapshot is the form in which a server writes its state down for the process that takes
// its place: a stream of records. Each is of a named part. fields.go is what stands in a record.
//
// A stream is:
//
//	"myriad state 1\n"
//	the number of parts, the name of each part
//	records: the number of the part + 1, the length of the body, the body
//	0, the number of records
//
// Numbers are unsigned varints, a name has its length before it. A part that changes its form gets
// another name, so a reader refuses what it does not understand before it has read a record.
package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

const magic = "myriad state 1\n"

// These bound a stream.
const (
	// MaxRecord bounds the body of a record, in bytes. The largest publication is 8 MiB.
	MaxRecord = 32 << 20
	maxParts  = 256
	maxName   = 64
)

var (
	// ErrUnknown is in the error for a stream that this version does not understand.
	ErrUnknown = errors.New("this version does not understand it: the process that has written it is newer or older")
	// ErrMalformed is in the error for a stream that no version writes.
	ErrMalformed = errors.New("the state is malformed")
)

// A Writer writes a stream. After an error, which all later calls return, the stream is useless.
type Writer struct {
	to      *bufio.Writer
	parts   []string
	records uint64
	err     error
}

// NewWriter begins a stream that has these parts. It panics if a name is too long, or if there are
// too many: they are constants.
func NewWriter(w io.Writer, parts []string) *Writer {
	s := &Writer{to: bufio.NewWriterSize(w, 64<<10), parts: parts}
	if len(parts) > maxParts {
		panic("snapshot: too many parts")
	}
	head := binary.AppendUvarint([]byte(magic), uint64(len(parts)))
	for _, name := range parts {
		if len(name) > maxName {
			panic("snapshot: the name of the part " + name + " is too long")
		}
		head = AppendText(head, name)
	}
	s.write(head)
	return s
}

// Record adds a record. It does not keep body.
func (s *Writer) Record(part string, body []byte) error {
	i := slices.Index(s.parts, part)
	if i < 0 {
		panic("snapshot: there is no part " + part)
	}
	if len(body) > MaxRecord && s.err == nil {
		s.err = fmt.Errorf("push: a record of %q has %d bytes; at most %d can move", part, len(body), MaxRecord)
	}
	s.write(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(i)+1), uint64(len(body))))
	s.write(body)
	s.records++
	return s.err
}

func (s *Writer) write(p []byte) {
	if s.err == nil {
		_, s.err = s.to.Write(p)
	}
}

// Close ends the stream, and passes all of it on. It does not close the io.Writer.
func (s *Writer) Close() error {
	s.write(binary.AppendUvarint([]byte{0}, s.records))
	if s.err == nil {
		s.err = s.to.Flush()
	}
	return s.err
}

// A Reader reads a stream. It has at most one record in memory, and allocates for a record as its
// bytes come, not as its length says.
type Reader struct {
	from    *bufio.Reader
	parts   []string
	records uint64
	body    []byte
}

// NewReader reads the beginning of a stream. understood are the parts that the caller can read; the
// error says which others there are. The Reader may read more of r than the stream.
func NewReader(r io.Reader, understood []string) (*Reader, error) {
	s := &Reader{from: bufio.NewReaderSize(r, 64<<10)}
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(s.from, head); err != nil {
		return nil, cut(err)
	}
	if string(head) != magic {
		return nil, fmt.Errorf("push: the state begins with %q: %w", head, ErrUnknown)
	}
	count, err := s.number()
	if err != nil {
		return nil, err
	}
	if count > maxParts {
		return nil, fmt.Errorf("push: %w: it has %d parts, at most %d are allowed", ErrMalformed, count, maxParts)
	}
	for range count {
		name, err := s.take(maxName, "the name of a part")
		if err != nil {
			return nil, err
		}
		s.parts = append(s.parts, string(name))
	}
	return s, Check(s.parts, understood)
}

// Check returns an error with the parts that are not understood.
func Check(parts, understood []string) error {
	var strange []string
	for _, name := range parts {
		if !slices.Contains(understood, name) {
			strange = append(strange, name)
		}
	}
	if len(strange) > 0 {
		return fmt.Errorf("push: the state has the parts %q: %w", strange, ErrUnknown)
	}
	return nil
}

// Next returns the next record, whose body is valid until the next call; or io.EOF after the last.
func (s *Reader) Next() (part string, body []byte, err error) {
	n, err := s.number()
	if err != nil {
		return "", nil, err
	}
	if n == 0 {
		return "", nil, s.end()
	}
	if n > uint64(len(s.parts)) {
		return "", nil, fmt.Errorf("push: %w: record %d is of part %d of %d", ErrMalformed, s.records, n, len(s.parts))
	}
	part = s.parts[n-1]
	if body, err = s.take(MaxRecord, "a record of "+part); err != nil {
		return "", nil, err
	}
	s.records++
	return part, body, nil
}

func (s *Reader) end() error {
	n, err := s.number()
	if err != nil {
		return err
	}
	if n != s.records {
		return fmt.Errorf("push: %w: it has %d records, and says %d", ErrMalformed, s.records, n)
	}
	return io.EOF
}

func (s *Reader) number() (uint64, error) {
	n, err := binary.ReadUvarint(s.from)
	if err != nil {
		return 0, cut(err)
	}
	return n, nil
}

// readStep is how many bytes of a record are allocated before the first ones have come.
const readStep = 64 << 10

// take reads a length, and so many bytes. what is for an error.
func (s *Reader) take(most uint64, what string) ([]byte, error) {
	n, err := s.number()
	if err != nil {
		return nil, err
	}
	if n > most {
		return nil, fmt.Errorf("push: %w: %s has %d bytes, at most %d are allowed", ErrMalformed, what, n, most)
	}
	s.body = s.body[:0]
	for left := int(n); left > 0; {
		step := min(left, max(readStep, len(s.body)))
		s.body = slices.Grow(s.body, step)
		part := s.body[len(s.body) : len(s.body)+step]
		if _, err := io.ReadFull(s.from, part); err != nil {
			return nil, cut(err)
		}
		s.body = s.body[:len(s.body)+step]
		left -= step
	}
	return s.body, nil
}

// cut returns the error for a stream that does not go on.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("push: %w: it ends in the middle: %w", ErrMalformed, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("push: reading the state: %w", err)
}

// A Taker is filled with the records of some parts of a stream, in their order. After an error of
// Record it is useless. Done is called when all have come.
type Taker interface {
	Record(part string, body []byte) error
	Done() error
}
