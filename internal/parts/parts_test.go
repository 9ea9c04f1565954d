package parts

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
)

func encoded() []byte {
	e := Begin([]byte("before"), 3)
	e.Bytes("bytes", []byte{0, 1, 2})
	e.String("text", "hello")
	e.Uint("number", math.MaxUint64)
	e.Uint("zero", 0)
	e.Bool("yes", true)
	e.Bool("no", false)
	e.Bytes("empty", nil)
	return e.End()[len("before"):]
}

func TestPartsComeBack(t *testing.T) {
	d, err := Parse(encoded(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Bytes("bytes", 3); !bytes.Equal(got, []byte{0, 1, 2}) {
		t.Errorf("bytes %v", got)
	}
	if got := d.String("text", 5); got != "hello" {
		t.Errorf("text %q", got)
	}
	if got := d.Uint("number", math.MaxUint64); got != math.MaxUint64 {
		t.Errorf("number %d", got)
	}
	if d.Uint("zero", 9) != 0 || !d.Bool("yes") || d.Bool("no") || d.Has("no") || d.Has("zero") {
		t.Error("a number or a truth is wrong")
	}
	if got := d.Need("empty", 0); got == nil || len(got) != 0 {
		t.Errorf("empty %v", got)
	}
	if err := d.Err(); err != nil {
		t.Error(err)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	twice := Begin(nil, 3)
	twice.Bool("a", true)
	twice.Bool("a", true)
	many := []byte{3}
	for i := range MaxParts + 1 {
		many = append(many, 2, 'a'+byte(i/26), 'a'+byte(i%26), 0)
	}
	for name, tc := range map[string]struct {
		state []byte
		want  error
		says  string
	}{
		"empty":          {nil, ErrBroken, "empty"},
		"another":        {[]byte{4}, ErrVersion, "4, this program reads 3"},
		"no name":        {[]byte{3, 0}, ErrBroken, "part 1, at byte 1"},
		"long name":      {append([]byte{3, MaxName + 1}, strings.Repeat("n", 99)...), ErrBroken, "part 1"},
		"name cut off":   {[]byte{3, 2, 'a'}, ErrBroken, "part 1"},
		"no length":      {[]byte{3, 1, 'a'}, ErrBroken, "part 1"},
		"value cut off":  {[]byte{3, 1, 'a', 0, 1, 'b', 2, 0}, ErrBroken, "part 2, at byte 4"},
		"endless length": {append([]byte{3, 1, 'a'}, bytes.Repeat([]byte{0xff}, 12)...), ErrBroken, "part 1"},
		"twice":          {twice.End(), ErrBroken, `"a" occurs twice`},
		"many":           {many, ErrBroken, "more than 64"},
	} {
		if _, err := Parse(tc.state, 3); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %v with %q", name, err, tc.want, tc.says)
		}
	}
}

func TestValuesAreChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		take func(d *Decoder)
		want error
		says string
	}{
		"unknown":     {func(d *Decoder) { d.Bytes("bytes", 9) }, ErrUnknown, `"text"`},
		"too long":    {func(d *Decoder) { d.String("text", 4) }, ErrValue, "5 bytes, at most 4"},
		"too large":   {func(d *Decoder) { d.Uint("number", 7) }, ErrValue, "at most 7"},
		"no number":   {func(d *Decoder) { d.Uint("text", 7) }, ErrValue, "no number"},
		"missing":     {func(d *Decoder) { d.Need("absent", 7) }, ErrMissing, `"absent"`},
		"first stays": {func(d *Decoder) { d.Need("absent", 7); d.String("text", 1) }, ErrMissing, `"absent"`},
	} {
		d, err := Parse(encoded(), 3)
		if err != nil {
			t.Fatal(err)
		}
		tc.take(d)
		if err := d.Err(); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %v with %q", name, err, tc.want, tc.says)
		}
	}
}

func TestNamesAreTheProgramsMistake(t *testing.T) {
	for name, write := range map[string]func(e *Encoder){
		"empty": func(e *Encoder) { e.Bool("", true) },
		"long":  func(e *Encoder) { e.Bool(strings.Repeat("n", MaxName+1), true) },
		"many": func(e *Encoder) {
			for range MaxParts + 1 {
				e.Bytes("same", nil)
			}
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			e := Begin(nil, 1)
			write(&e)
		}()
	}
}

// FuzzParse holds every input against the grammar: what is read and written again is the same.
func FuzzParse(f *testing.F) {
	f.Add(encoded())
	f.Add([]byte{3})
	f.Add([]byte{3, 1, 'a', 0x80, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		d, err := Parse(p, 3)
		if err != nil {
			if !errors.Is(err, ErrBroken) && !errors.Is(err, ErrVersion) {
				t.Fatalf("%v", err)
			}
			return
		}
		if len(d.parts) > MaxParts {
			t.Fatalf("%d parts", len(d.parts))
		}
		e, size := Begin(nil, 3), 1
		for _, part := range d.parts {
			e.Bytes(string(part.name), part.value)
			size += len(part.name) + len(part.value)
			d.Bytes(string(part.name), len(part.value))
		}
		if err := d.Err(); err != nil {
			t.Fatal(err)
		}
		if size > len(p) {
			t.Fatalf("%d bytes of parts in a state of %d", size, len(p))
		}
		again, err := Parse(e.End(), 3)
		if err != nil || len(again.parts) != len(d.parts) {
			t.Fatalf("written again it has %v: %v", again, err)
		}
	})
}
