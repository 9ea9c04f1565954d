package policy

import (
	"strings"
	"testing"
)

func TestGlob(t *testing.T) {
	for _, tt := range []struct{ glob, names, others string }{
		{"", "a chat:1", ""},
		{"*", "a chat:1", ""},
		{"chat", "chat", "chat:1 xchat chats"},
		{"chat:*", "chat: chat:1 chat:a:b", "chat news chat1"},
		{"*:x", "a:x :x a:b:x", "a:y x"},
		{"c?", "c1 cä", "c c12"},
		{"[a-c]1", "a1 c1", "d1 11 a"},
		{"[!a-c]1", "d1 -1", "a1 1"},
		{"[^a]", "^ a", "b"},
		{"{news,chat:*}", "news chat:1", "new chat"},
		{"a{b,c{d,e}}f", "abf acdf acef", "af acf"},
		{`a\*`, "a*", "ab a"},
		{`a\`, `a\`, "a"},
		{"a,b}", "a,b}", "a b"},
		{"a.b+", "a.b+", "axb a.bb"},
	} {
		re, err := NewGlob(tt.glob)
		if err != nil {
			t.Errorf("%q: %v", tt.glob, err)
			continue
		}
		for _, name := range strings.Fields(tt.names) {
			if !re.MatchString(name) {
				t.Errorf("%q does not match %q", tt.glob, name)
			}
		}
		for _, name := range strings.Fields(tt.others) {
			if re.MatchString(name) {
				t.Errorf("%q matches %q", tt.glob, name)
			}
		}
	}
	for _, glob := range []string{"[", "a[b", "{", "{a,{b}", "[]", "[c-a]", strings.Repeat("*", maxGlob+1)} {
		if _, err := NewGlob(glob); err == nil {
			t.Errorf("%.20q is a glob", glob)
		}
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("a*[b-d]{x,y?}", "abcx")
	f.Add(`\[[!\]]`, "[")
	f.Fuzz(func(t *testing.T, glob, name string) {
		re, err := NewGlob(glob)
		if err != nil || strings.ContainsAny(glob, `?[]{}\`) {
			return
		}
		if got, want := re.MatchString(name), matches(glob, name); got != want {
			t.Errorf("%q matches %q: %v, want %v", glob, name, got, want)
		}
	})
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "a", true}, {"*", "a", true}, {"a", "a", true}, {"a", "ab", false}, {"a*", "ab", true}, {"*b", "ab",
			true},
		{"a*a", "a", false},
		{"chat:*:x", "chat:1:x", true}, {"a*b*c", "axbxc", true}, {"a*b*c", "axcxb", false}, {"*b*b*", "abab", true},
		{"*b*b*", "ab", false},
	} {
		if got := matches(tt.pattern, tt.name); got != tt.want {
			t.Errorf("%q matches %q: %v", tt.pattern, tt.name, got)
		}
	}
}
