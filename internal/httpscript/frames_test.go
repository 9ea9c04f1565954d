package httpscript

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/h2"
)

// What a line says is described by the same words, as far as there are words for it.
func TestFrames(t *testing.T) {
	for line, want := range map[string]string{
		"SETTINGS":                                   "SETTINGS",
		"SETTINGS ACK":                               "SETTINGS ACK",
		"SETTINGS INITIAL_WINDOW_SIZE=5 99=0x10":     "SETTINGS INITIAL_WINDOW_SIZE=5 99=16",
		"HEADERS 1 $get a=b END":                     "HEADERS 1 :method=GET :scheme=http :authority=h :path=/ a=b END",
		`HEADERS 3 $ok +"\x00\x01n\x01v"`:            "HEADERS 3 :status=200 n=v",
		"HEADERS 3 a=300*x":                          `HEADERS 3 a=300*"x"`,
		"DATA 1 a b END":                             `DATA 1 "ab" END`,
		"DATA 1 50*x":                                "DATA 1 50 bytes",
		"DATA 1 $get[1:2]":                           `DATA 1 "\x86"`,
		"PING abc":                                   "PING",
		"PING ACK abc":                               "PING ACK abc",
		"RST_STREAM 7 CANCEL":                        "RST_STREAM 7 CANCEL",
		"RST_STREAM 7 0xf00":                         "RST_STREAM 7 code 0xf00",
		"GOAWAY 3 NO_ERROR why":                      "GOAWAY 3 NO_ERROR",
		"WINDOW_UPDATE 0 9":                          "WINDOW_UPDATE 0 9",
		"PRIORITY 1 3":                               "PRIORITY 1",
		"PRIORITY_UPDATE 1 u=1":                      "PRIORITY_UPDATE 0",
		"FRAME DATA END_STREAM|PADDED 1 \"\\x01ab\"": `DATA 1 "a" END`,
		"FRAME 77 255 5 abc":                         "FRAME 77",
	} {
		verb, rest, _ := strings.Cut(line, " ")
		args, err := Words(rest)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Frame(verb, args)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		var r FrameReader
		for _, b := range p {
			r.Add([]byte{b})
		}
		got, _, err := r.Next()
		if got != want || err != nil || r.Len() != 0 {
			t.Errorf("%s: %q, %v, and %d bytes more; want %q", line, got, err, r.Len(), want)
		}
	}
}

// A line that cannot be understood is an error that says why.
func TestFramesThatAreNone(t *testing.T) {
	for line, want := range map[string]string{
		"run 1s":               ErrNoFrame.Error(),
		"DATA":                 "word 1 is missing",
		"DATA x":               "invalid syntax",
		"HEADERS 1 a":          `"a" is no field`,
		"SETTINGS SIZE=1":      `no setting "SIZE=1"`,
		"RST_STREAM 1 UNKNOWN": "invalid syntax",
	} {
		words := strings.Fields(line)
		if p, err := Frame(words[0], words[1:]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %s", line, p, err, want)
		}
	}
	if _, err := Frame("run", nil); !errors.Is(err, ErrNoFrame) {
		t.Error(err)
	}
}

// A frame that has not come whole is not described, and a wrong one is an error.
func TestFramesThatCome(t *testing.T) {
	var r FrameReader
	r.Add([]byte(h2.Preface))
	if !r.Skip(h2.Preface) || r.Skip(h2.Preface) {
		t.Error("the preface is not skipped once")
	}
	p, _ := Frame("PING", nil)
	r.Add(p[:10])
	if text, _, err := r.Next(); text != "" || err != nil {
		t.Errorf("a part of a frame: %q, %v", text, err)
	}
	p, _ = Frame("FRAME", []string{"PING", "0", "0", "short"})
	r = FrameReader{}
	r.Add(p)
	if _, _, err := r.Next(); err == nil {
		t.Error("a wrong frame is described")
	}
}

func TestRepeat(t *testing.T) {
	for _, tt := range []struct{ words, want string }{
		{"2 A $id ; B x", "A 1|B x|A 3|B x"},
		{"1..2 A #$id $id+40", "A #3 43|A #5 45"},
	} {
		var got []string
		_, err := Repeat(strings.Fields(tt.words), func(verb string, args []string) ([]string, error) {
			got = append(got, strings.Join(slices.Insert(args, 0, verb), " "))
			return nil, nil
		})
		if strings.Join(got, "|") != tt.want || err != nil {
			t.Errorf("%s: %q, %v", tt.words, got, err)
		}
	}
	if _, err := Repeat([]string{"x"}, nil); err == nil {
		t.Error("a number that is none")
	}
}
