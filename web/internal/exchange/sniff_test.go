package exchange

import (
	"math/rand/v2"
	"net/http"
	"testing"
)

// Whatever the shortcut decides, the whole search would have decided.
func TestSniffIsThatOfNetHTTP(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	starts := []string{"", "<!DOCTYPE HTML>", "  <html>", "%PDF-", "GIF89a", "\x89PNG\r\n\x1a\n", "RIFF1234WEBPVP",
		"OggS\x00", "MThd\x00\x00\x00\x06",
		"FORM1234AIFF", "wOFF", "wOF2", "OTTO", "ttcf", "true", "Rar!\x1a\x07\x00", "PK\x03\x04", "ID3", "BM", ".snd",
		"\x00\x00\x00\x18ftypmp42", "A000ftypmp42",
		"hello ftypmp4", "{}", "[1]", "\"x\"", "7", "Zip", "\xef\xbb\xbfx", "\xfe\xffx", "plain", "\x1b[0m"}
	for range 200_000 {
		p := []byte(starts[r.IntN(len(starts))])
		for range r.IntN(20) {
			c := byte(r.IntN(256))
			if r.IntN(3) > 0 {
				c = ' ' + byte(r.IntN(95))
			}
			p = append(p, c)
		}
		if r.IntN(4) == 0 {
			r.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
		}
		cut := r.IntN(len(p) + 1)
		if got, want := sniff(p[:cut], p[cut:]), http.DetectContentType(p); got != want {
			t.Fatalf("%q: got %q, want %q", p, got, want)
		}
	}
}
