package h1

import (
	"math/rand/v2"
	"net/textproto"
	"strings"
	"testing"
)

func TestUsualNamesAreCanonical(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range usualNames {
		if want := textproto.CanonicalMIMEHeaderKey(name); name != want || seen[name] {
			t.Errorf("%q: canonical is %q, seen %t", name, want, seen[name])
		}
		seen[name] = true
	}
}

func TestCanonicalName(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	inputs := []string{"", "a", "-", "--a", "x-1a", "X_Y", "has space", "\xff", "etag", "ETAG", "www-authenticate",
		"a:b",
		"hos\x14", "content\rlength", strings.Repeat("aB-", 50)}
	for _, name := range usualNames {
		mixed := []byte(name)
		for i := range mixed {
			if r.IntN(2) == 0 {
				mixed[i] = strings.ToUpper(name)[i]
			} else if r.IntN(2) == 0 {
				mixed[i] = lower(mixed[i])
			}
		}
		near := []byte(name)
		near[r.IntN(len(near))] ^= byte(1 << r.IntN(8))
		inputs = append(inputs, name, strings.ToLower(name), strings.ToUpper(name), string(mixed), string(near),
			name+"x")
	}
	for _, in := range inputs {
		if got, want := CanonicalName([]byte(in)), textproto.CanonicalMIMEHeaderKey(in); got != want {
			t.Errorf("CanonicalName(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestUsualNamesDoNotAllocate(t *testing.T) {
	for _, name := range usualNames {
		p := []byte(strings.ToLower(name))
		if allocs := testing.AllocsPerRun(10, func() { CanonicalName(p) }); allocs != 0 {
			t.Errorf("CanonicalName(%q): %v allocations, want 0", p, allocs)
		}
	}
	for _, method := range []string{"GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"} {
		p := []byte(method)
		if allocs := testing.AllocsPerRun(10, func() {
			if Method(p) != method {
				t.Errorf("Method(%q) = %q", p, Method(p))
			}
		}); allocs != 0 {
			t.Errorf("Method(%q): %v allocations, want 0", p, allocs)
		}
	}
	if got := Method([]byte("get")); got != "get" {
		t.Errorf("Method(get) = %q; methods are case-sensitive", got)
	}
}

func FuzzCanonicalName(f *testing.F) {
	f.Add("content-LENGTH")
	f.Add("x-my-name")
	f.Add("not a token")
	f.Fuzz(func(t *testing.T, in string) {
		if got, want := CanonicalName([]byte(in)), textproto.CanonicalMIMEHeaderKey(in); got != want {
			t.Errorf("CanonicalName(%q) = %q, want %q", in, got, want)
		}
	})
}
