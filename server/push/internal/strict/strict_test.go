package strict

import (
	"encoding/json"
	"errors"
	"testing"
)

type shown struct {
	Info json.RawMessage `json:"info"`
}

type answer struct {
	User string           `json:"user"`
	Subs map[string]shown `json:"subs"`
	List []shown          `json:"list"`
	At   *shown           `json:"at"`
	Any  any              `json:"any"`
	Left string           `json:"-"`
	Bare int
	shown
}

func TestUnmarshal(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:   "",
		`null`: "",
		`{"user":"ann","subs":{"news":{"info":{"override":1}}},"list":[{"info":1},null],"at":null,"bare":1}`: "",
		`{"info":1,"USER":"ann","any":{"override":1},"override":null,"at":{"info":2}}`:                       "",
		`{"override":{}}`:                       "override",
		`{"override":{},"override":null}`:       "override",
		`{"subs":{"news":{"data":1}}}`:          "subs.news.data",
		`{"list":[{"info":1},{"recover":0}]}`:   "list.recover",
		`{"at":{"data":""}}`:                    "at.data",
		`{"left":"x"}`:                          "left",
		`{"shown":{"info":1}}`:                  "shown",
		`{"subs":{"a":{"info":1,"x":true}}}`:    "subs.a.x",
		`{"subs":{"a":{"x":1},"a":{"info":1}}}`: "subs.a.x",
	} {
		var to answer
		err := Unmarshal([]byte(text), &to)
		unknown := new(UnknownError)
		switch {
		case want == "" && err != nil, want != "" && !errors.As(err, &unknown), unknown.Path != want:
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{``, `{`, `[]`, `{"user":1}`, `{} {}`, `{"subs":[]}`} {
		if err := Unmarshal([]byte(text), new(answer)); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// UnmarshalSome reads what it knows, and returns the unknown member beside it.
func TestUnmarshalSome(t *testing.T) {
	var to answer
	unknown, err := UnmarshalSome([]byte(`{"user":"ann","subs":{"a":{"x":1}}}`), &to)
	if unknown != "subs.a.x" || err != nil || to.User != "ann" {
		t.Errorf("%q, %v, %+v", unknown, err, to)
	}
	if unknown, err = UnmarshalSome([]byte(`{"user":1}`), &to); unknown != "" || err == nil {
		t.Errorf("a member of another type: %q, %v", unknown, err)
	}
}

func TestCompact(t *testing.T) {
	for text, want := range map[string]string{"{ \"a\":\n [1, 2] }": `{"a":[1,2]}`, ` "a  b" `: `"a  b"`, "": "",
		"null": "", "{": "", "\"\xff\"": ""} {
		if got := Compact([]byte(text)); string(got) != want || want == "" && got != nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// What is not refused is read as encoding/json reads it.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"user":"ann","subs":{"news":{"info":1}},"list":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var here, there answer
		err, plain := Unmarshal(text, &here), json.Unmarshal(text, &there)
		if unknown := new(UnknownError); (err == nil) != (plain == nil) && !errors.As(err, &unknown) {
			t.Errorf("%q: %v, and encoding/json says %v", text, err, plain)
		}
	})
}
