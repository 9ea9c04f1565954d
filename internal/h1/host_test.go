package h1

import (
	"net/netip"
	"regexp"
	"testing"
)

var legalHosts = []string{
	"", ":", ":80", "a", "a:", "a:80", "a:0", "a:99999", "A-b_c.~d", "example.com", "example.com.:443", "1.2.3.4",
	"1.2.3.4:80", "999.1.2.3",
	"!$&'()*+,;=", "%41", "%c3%a9.example:80", "xn--bcher-kva.example", "1", "_http._tcp.a", "a..b",
	"[::]", "[::1]", "[::1]:80", "[::1]:", "[1::]", "[1:2:3:4:5:6:7:8]", "[1::8]:8080", "[1:2:3:4:5:6:7::]",
	"[::2:3:4:5:6:7:8]", "[ABCD:ef01::]",
	"[::1.2.3.4]", "[::ffff:255.255.255.0]:1", "[1:2:3:4:5:6:1.2.3.4]", "[1:2:3:4:5::1.2.3.4]",
	"[fe80::1%25en0]", "[fe80::1%25en0]:80", "[fe80::1%25a%20b]", "[v1.a]", "[vF.a:b;c]:80", "[V7f.::]",
}

var illegalHosts = []string{
	"[", "]", "[]", "[::1", "::1]", "::1", "[::1]a", "[::1]80", "[::1]:a", "[[::1]]", "[::1][::1]", "[1.2.3.4]", "[a]",
	"[example.com]",
	"a:b", "a:b:c", ":a", "a::", "a::80", "a:80:80", "a:-1", "a:+1", "a: 80", "a:%38", "127.0.0.1:%0699",
	"a b", "a\tb", "a/b", "a?b", "a#b", "u@a", "a\\b", "a|b", "a{b}", "<a>", "a\"b", "a^b", "a`b", "a[b]", "\xff", "é",
	"a\x00", "a,b:c",
	"%", "%4", "%4g", "%g4", "a%", "%%41", "http://a", "a:80/",
	"[:]", "[:::]", "[1:]", "[:1]", "[1:2:3:4:5:6:7]", "[1:2:3:4:5:6:7:8:9]", "[1::2::3]", "[::1:2:3:4:5:6:7:8]",
	"[1:2:3:4:5:6:7:8::]", "[12345::]", "[g::]",
	"[1:2:3:4::5:6:7:8]", "[::1.2.3]", "[::1.2.3.4.5]", "[::1.2.3.256]", "[::1.2.3.04]", "[::1.2.3.]", "[1.2.3.4::]",
	"[1:2:3:4:5:6:7:1.2.3.4]", "[::1.2.3.4:5]",
	"[1:2:3:4:5:6::1.2.3.4]", "[fe80::1%en0]", "[fe80::1%25]", "[fe80::1%25a%2]", "[fe80::1%25a:b]", "[v.a]", "[v1.]",
	"[v1]", "[vg.a]", "[v1.a/]", "[v1.%41]",
}

func TestHost(t *testing.T) {
	for _, host := range legalHosts {
		if !validHost([]byte(host)) {
			t.Errorf("%q is refused", host)
		}
		var h Head
		if n, err := ParseRequest([]byte("GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"), Limits{}, &h); n == 0 ||
			err != nil || string(h.Host) != host {
			t.Errorf("a request to %q: %d, %v, host %q", host, n, err, h.Host)
		}
	}
	for _, host := range illegalHosts {
		if validHost([]byte(host)) {
			t.Errorf("%q is accepted", host)
		}
		var h Head
		if n, err := ParseRequest([]byte("GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"), Limits{}, &h); n != 0 ||
			err == nil {
			t.Errorf("a request to %q: %d, %v", host, n, err)
		}
	}
}

// hostGrammar is that of RFC 3986 but for IPv6address, which package netip knows.
var hostGrammar = regexp.MustCompile(`(?s)^(?:((?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)|` +
	`\[(?:([0-9A-Fa-f:.]+)(?:%25(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})+)?|` +
	`[vV][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\])(?::[0-9]*)?$`)

func isHostByGrammar(p string) bool {
	parts := hostGrammar.FindStringSubmatch(p)
	if parts == nil {
		return false
	}
	if parts[2] == "" {
		return true
	}
	ip, err := netip.ParseAddr(parts[2])
	return err == nil && ip.Is6()
}

func FuzzHost(f *testing.F) {
	for _, host := range append(legalHosts, illegalHosts...) {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if got, want := validHost([]byte(host)), isHostByGrammar(host); got != want {
			t.Errorf("validHost(%q) is %t, by the grammar %t", host, got, want)
		}
	})
}
