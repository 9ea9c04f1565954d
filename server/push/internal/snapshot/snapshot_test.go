package snapshot

import (
	"bytes"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

var testParts = []string{"a.1", "b.1"}

// written returns a stream of these records, each of which is a part and a body.
func written(t testing.TB, records ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, testParts)
	for _, r := range records {
		if err := w.Record(r[0], []byte(r[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readAll returns the records of a stream.
func readAll(r io.Reader) (records [][2]string, err error) {
	s, err := NewReader(r, testParts)
	if err != nil {
		return nil, err
	}
	for {
		part, body, err := s.Next()
		if err == io.EOF {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		records = append(records, [2]string{part, string(body)})
	}
}

func TestRecordsComeBack(t *testing.T) {
	want := [][2]string{{"a.1", "1"}, {"b.1", ""}, {"a.1", strings.Repeat("x", 3*readStep+1)}, {"b.1", "2"}}
	stream := written(t, want...)
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(stream),
		"bytes": iotest.OneByteReader(bytes.NewReader(stream))} {
		if got, err := readAll(r); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d records, %v", name, len(got), err)
		}
	}
}

// Every stream that was cut is refused.
func TestCutStreamsAreRefused(t *testing.T) {
	stream := written(t, [2]string{"a.1", "one"}, [2]string{"b.1", "two"})
	for n := range stream {
		if _, err := readAll(bytes.NewReader(stream[:n])); !errors.Is(err, io.ErrUnexpectedEOF) || !IsMalformed(err) {
			t.Errorf("the first %d of %d bytes: %v", n, len(stream), err)
		}
	}
	if _, err := readAll(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a reader that fails: %v", err)
	}
}

func TestStrangeStreamsAreRefused(t *testing.T) {
	stream := string(written(t, [2]string{"a.1", "one"}))
	for name, tt := range map[string]struct {
		stream string
		want   string
	}{
		"another version":         {strings.Replace(stream, "state 1", "state 2", 1), "does not understand"},
		"another part":            {strings.Replace(stream, "b.1", "b.2", 1), `["b.2"]`},
		"a part that is not":      {strings.Replace(stream, "\x01\x03one", "\x03\x03one", 1), "part 3 of 2"},
		"too long":                {strings.Replace(stream, "\x01\x03one", "\x01\xff\xff\xff\x7f", 1), "at most"},
		"a record that is lost":   {strings.Replace(stream, "\x01\x03one", "", 1), "says 1"},
		"too many parts":          {magic + "\xff\x7f", "at most 256"},
		"a name that is too long": {magic + "\x01\xff\x01", "at most 64"},
	} {
		if _, err := readAll(strings.NewReader(tt.stream)); err == nil || !strings.Contains(err.Error(), tt.want) ||
			!IsMalformed(err) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A length costs nothing until its bytes come.
func TestLengthsCostNoMemory(t *testing.T) {
	stream := append(bytes.Clone(written(t))[:len(written(t))-2], 1, 0x80, 0x80, 0x80, 0x10) // 32 MiB
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 16 {
		if _, err := readAll(bytes.NewReader(stream)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("reading 16 lengths took %d bytes", used)
	}
}

func TestRecordsAreBounded(t *testing.T) {
	w := NewWriter(io.Discard, testParts)
	if err := w.Record("a.1", make([]byte, MaxRecord+1)); err == nil || w.Close() == nil {
		t.Error("a record above the limit was written")
	}
}

func TestFieldsComeBack(t *testing.T) {
	var r []byte
	numbers := []uint64{0, 1, 127, 128, math.MaxUint64}
	ints := []int64{0, -1, 1, math.MinInt64, math.MaxInt64}
	for i := range numbers {
		r = AppendInt(AppendNumber(r, numbers[i]), ints[i])
	}
	r = AppendBool(AppendBool(r, true), false)
	r = AppendTexts(AppendText(AppendText(r, ""), []byte("text")), []string{"a", "", "b"})
	r = append(r, "fixed"...)
	f := NewFields(r)
	for i := range numbers {
		if n, m := f.Number(), f.Int(); n != numbers[i] || m != ints[i] {
			t.Errorf("%d and %d, want %d and %d", n, m, numbers[i], ints[i])
		}
	}
	if !f.Bool() || f.Bool() || f.Clone() != nil || f.Text() != "text" ||
		!slices.Equal(f.Texts(), []string{"a", "", "b"}) {
		t.Error("a text or a truth value is another")
	}
	var fixed [5]byte
	if f.Fixed(fixed[:]); string(fixed[:]) != "fixed" || f.Done() != nil {
		t.Errorf("%q, %v", fixed, f.Done())
	}
}

func TestWrongFieldsAreRefused(t *testing.T) {
	for name, read := range map[string]struct {
		record string
		f      func(*Fields)
	}{
		"no number":     {"", func(f *Fields) { f.Number() }},
		"a long number": {"\x80\x00", func(f *Fields) { f.Number() }},
		"a huge number": {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", func(f *Fields) { f.Number() }},
		"not a truth":   {"\x02", func(f *Fields) { f.Bool() }},
		"a short text":  {"\x02a", func(f *Fields) { f.Text() }},
		"a short list":  {"\x05a", func(f *Fields) { f.Texts() }},
		"a cut field":   {"a", func(f *Fields) { f.Fixed(make([]byte, 2)) }},
		"a rest":        {"\x01a", func(f *Fields) { f.Number() }},
		"its own":       {"", func(f *Fields) { f.Fail("so") }},
	} {
		f := NewFields([]byte(read.record))
		if read.f(f); !IsMalformed(f.Done()) {
			t.Errorf("%s: %v", name, f.Done())
		}
	}
}

// A stream is refused, or is what the records that were read are written as.
func FuzzRead(f *testing.F) {
	f.Add(written(f))
	f.Add(written(f, [2]string{"a.1", "one"}, [2]string{"b.1", ""}))
	f.Fuzz(func(t *testing.T, stream []byte) {
		records, err := readAll(bytes.NewReader(stream))
		if err != nil {
			return
		}
		again, err := readAll(bytes.NewReader(written(t, records...)))
		if err != nil || !slices.Equal(again, records) {
			t.Errorf("%q, and then %q, %v", records, again, err)
		}
	})
}
