package websocket

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"path"
	"strings"
	"testing"
)

const sampleKey = "dGhlIHNhbXBsZSBub25jZQ==" // RFC 6455 §1.3

func TestAcceptKeyRFCExample(t *testing.T) {
	const want = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
	if got := appendAcceptKey(nil, sampleKey); string(got) != want {
		t.Errorf("from a string: got %s, want %s", got, want)
	}
	if got := appendAcceptKey([]byte("kept "), []byte(sampleKey)); string(got) != "kept "+want {
		t.Errorf("from bytes: got %s, want it after what was there", got)
	}
}

func TestAppendSwitching(t *testing.T) {
	const head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
	if got := string(appendSwitching(nil, sampleKey, "", deflateTerms{}, nil)); got != head+"\r\n" {
		t.Errorf("without subprotocol:\n%s", got)
	}
	if got := string(appendSwitching(nil, []byte(sampleKey), "chat", deflateTerms{},
		nil)); got != head+"Sec-WebSocket-Protocol: chat\r\n\r\n" {
		t.Errorf("with subprotocol:\n%s", got)
	}
}

func TestHandshakeDoesNotAllocate(t *testing.T) {
	dst := make([]byte, 0, 512)
	key, connection := []byte(sampleKey), []byte("keep-alive, Upgrade")
	allocs := testing.AllocsPerRun(100, func() {
		if !validKey(key) || !hasToken(connection, "upgrade") || !originAllowed("https://example.com", "example.com",
			nil) {
			t.Fatal("a good request was refused")
		}
		dst = appendSwitching(dst[:0], key, "chat", deflateTerms{}, nil)
	})
	if allocs != 0 {
		t.Errorf("%v allocations for a handshake, want 0", allocs)
	}
}

func TestValidKey(t *testing.T) {
	for key, want := range map[string]bool{
		sampleKey:                    true,
		"AAAAAAAAAAAAAAAAAAAAAA==":   true,
		"abcdefghijklmnopqrst+/==":   true,
		"":                           false,
		"dGhlIHNhbXBsZSBub25jZQ=":    false,
		"dGhlIHNhbXBsZSBub25jZQ===":  false,
		"dGhlIHNhbXBsZSBub25jZQAA":   false,
		"dGhlIHNhbXBsZSBub25jZQA=":   false,
		"dGhlIHNhbXBsZSBub25j\r\n==": false,
		"dGhlIHNhbXBsZSBub25j_-==":   false,
	} {
		if validKey(key) != want || validKey([]byte(key)) != want {
			t.Errorf("%q: want valid to be %v", key, want)
		}
	}
}

func TestHasToken(t *testing.T) {
	for _, c := range []struct {
		value string
		want  bool
	}{
		{"upgrade", true},
		{"Upgrade", true},
		{"keep-alive, Upgrade", true},
		{" \tUPGRADE\t ,x", true},
		{",,upgrade,", true},
		{"", false},
		{",", false},
		{"upgraded", false},
		{"keep-alive;upgrade", false},
		{"up grade", false},
		{"x upgrade", false},
		{"Kupgrade", false},
	} {
		if hasToken(c.value, "upgrade") != c.want || hasToken([]byte(c.value), "upgrade") != c.want {
			t.Errorf("%q: want %v", c.value, c.want)
		}
	}
	if hasToken("\u212Aeep", "keep") {
		t.Error("the Kelvin sign passed for a k: only ASCII letters fold")
	}
}

func FuzzHasToken(f *testing.F) {
	f.Add("keep-alive, Upgrade")
	f.Add(" ,\tupgrade")
	f.Fuzz(func(t *testing.T, value string) {
		want := false
		for item := range strings.SplitSeq(value, ",") {
			item = strings.Trim(item, " \t")
			want = want || len(item) == len("upgrade") && strings.EqualFold(item, "upgrade")
		}
		if got := hasToken(value, "upgrade"); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	})
}

func TestSelectSubprotocol(t *testing.T) {
	for _, c := range []struct {
		name         string
		own, offered []string
		want         string
	}{
		{"nothing offered", []string{"chat"}, nil, ""},
		{"nothing spoken", nil, []string{"chat"}, ""},
		{"nothing in common", []string{"chat"}, []string{"mqtt, stomp"}, ""},
		{"one list", []string{"chat"}, []string{"mqtt,chat"}, "chat"},
		{"several lines", []string{"chat"}, []string{"mqtt", " chat\t"}, "chat"},
		{"the server's order counts", []string{"v2", "v1"}, []string{"v1, v2"}, "v2"},
		{"case counts", []string{"Chat"}, []string{"chat"}, ""},
		{"a part is not the whole", []string{"chat"}, []string{"superchat, chat2"}, ""},
		{"empty names are none", []string{""}, []string{"", ","}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := selectSubprotocol(c.own, c.offered); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestOriginAllowed(t *testing.T) {
	eachLine(t, "origins.txt", func(want string, p *script) {
		host, origin := strings.Trim(p.word(), "-"), p.payload(0)
		patterns := strings.Fields(p.all())
		if originAllowed(origin, host, patterns) != (want == "yes") {
			t.Errorf("origin %q on host %q with patterns %q: want %s", origin, host, patterns, want)
		}
	})
}

func TestCheckOriginPatterns(t *testing.T) {
	noError(t, checkOriginPatterns([]string{"*.example.com", "https://[ab].org", `\[::1\]:*`}))
	err := checkOriginPatterns([]string{"fine.org", "[::1"})
	if !errors.Is(err, path.ErrBadPattern) || !strings.Contains(err.Error(), `"[::1"`) {
		t.Errorf("got %v, want the bad pattern named", err)
	}
}

func FuzzAcceptKey(f *testing.F) {
	f.Add(sampleKey)
	f.Fuzz(func(t *testing.T, key string) {
		sum := sha1.Sum([]byte(key + acceptGUID))
		if got, want := string(appendAcceptKey(nil, key)), base64.StdEncoding.EncodeToString(sum[:]); got != want {
			t.Errorf("%q: got %s, want %s", key, got, want)
		}
		if decoded, err := base64.StdEncoding.DecodeString(key); validKey(key) && (err != nil || len(decoded) != 16) {
			t.Errorf("%q passed for a key but decodes to %d bytes, %v", key, len(decoded), err)
		}
	})
}

func BenchmarkAppendSwitching(b *testing.B) {
	dst, key := make([]byte, 0, 512), []byte(sampleKey)
	b.ReportAllocs()
	for b.Loop() {
		dst = appendSwitching(dst[:0], key, "", deflateTerms{}, nil)
	}
}
