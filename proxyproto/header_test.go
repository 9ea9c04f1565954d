package proxyproto

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"net/netip"
	"strings"
	"testing"
)

// v2 is a header of version 2: its 13th and 14th byte, and the block behind its length.
func v2(command, family byte, block string) string {
	head := signature + string([]byte{command, family})
	return string(binary.BigEndian.AppendUint16([]byte(head), uint16(len(block)))) + block
}

func field(kind byte, value string) string {
	return string(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(value)))) + value
}

// summed is v2 with a checksum behind the block.
func summed(command, family byte, block string) string {
	p := []byte(v2(command, family, block+field(typeChecksum, "\x00\x00\x00\x00")))
	at := len(p) - checksumBytes
	binary.BigEndian.PutUint32(p[at:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	return string(p)
}

const (
	inet  = "\xc0\x00\x02\x01\xc6\x33\x64\x07\xdc\x04\x01\xbb" // 192.0.2.1:56324 to 198.51.100.7:443
	inet6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + "\xdc\x04\x01\xbb"
)

var (
	header4 = Header{netip.MustParseAddrPort("192.0.2.1:56324"), netip.MustParseAddrPort("198.51.100.7:443")}
	header6 = Header{netip.MustParseAddrPort("[2001:db8::1]:56324"), netip.MustParseAddrPort("[2001:db8::2]:443")}
)

// good are headers with what they say.
var good = map[string]struct {
	text string
	want Header
}{
	"v1 TCP4":          {"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n", header4},
	"v1 TCP6":          {"PROXY TCP6 2001:db8::1 2001:DB8:0:0:0:0:0:2 56324 443\r\n", header6},
	"v1 mapped":        {"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:c633:6407 56324 443\r\n", header4},
	"v1 longest TCP6":  {"PROXY TCP6 " + ip6 + " " + ip6 + " 65535 65535\r\n", all6},
	"v1 UNKNOWN":       {"PROXY UNKNOWN\r\n", Header{}},
	"v1 UNKNOWN, rest": {"PROXY UNKNOWN " + strings.Repeat("\xff", 91) + "\r\n", Header{}},
	"v2 TCP4":          {v2(0x21, 0x11, inet), header4},
	"v2 TCP6":          {v2(0x21, 0x21, inet6), header6},
	"v2 fields": {v2(0x21, 0x11, inet+field(0x01, "h2")+field(0x04, "")+field(0xea, strings.Repeat("x", 300))),
		header4},
	"v2 checksum":       {summed(0x21, 0x11, inet+field(0x02, "example.com")), header4},
	"v2 checksum, IPv6": {summed(0x21, 0x21, inet6), header6},
	"v2 longest":        {v2(0x21, 0x11, inet+field(0x20, filler)), header4},
	"v2 LOCAL":          {v2(0x20, 0x00, ""), Header{}},
	"v2 LOCAL, block":   {v2(0x20, 0xff, inet+"anything"), Header{}},
	"v2 UNSPEC":         {v2(0x21, 0x00, "anything"), Header{}},
	"v2 UNIX":           {v2(0x21, 0x31, strings.Repeat("/", 216)), Header{}},
	"v2 UNIX, checksum": {summed(0x21, 0x31, strings.Repeat("/", 216)), Header{}},
	"v2 UDP":            {v2(0x21, 0x12, inet), Header{}},
	"v2 UDP, IPv6":      {v2(0x21, 0x22, inet6), Header{}},
	"v2 INET, UNSPEC":   {v2(0x21, 0x10, inet), Header{}},
}

// filler makes the longest header.
var filler = strings.Repeat("c", MaxHeader-fixedLen-len(inet)-fieldHead)

const ip6 = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"

var all6 = Header{netip.MustParseAddrPort("[" + ip6 + "]:65535"), netip.MustParseAddrPort("[" + ip6 + "]:65535")}

// bad are no headers, with the kind of the error and a part of its text.
var bad = map[string]struct {
	text string
	kind error
	part string
}{
	"HTTP":             {"GET / HTTP/1.1\r\n", ErrMissing, `"GET / HTTP/1"`},
	"TLS":              {"\x16\x03\x01\x02\x00\x01", ErrMissing, `\x16\x03\x01`},
	"empty lines":      {"\r\n\r\nGET /", ErrMissing, ""},
	"POST":             {"POST", ErrMissing, ""},
	"lower case":       {"proxy TCP4", ErrMissing, ""},
	"no space":         {"PROXY\tTCP4", ErrMissing, ""},
	"HTTP method":      {"PROXY / HTTP/1.1\r\n", ErrMalformed, `PROXY / HTTP/1.1`},
	"bare LF":          {"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\n", ErrMalformed, "without CRLF"},
	"bare CR":          {"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\rG", ErrMalformed, "without CRLF"},
	"LF CR":            {"PROXY UNKNOWN\n\r", ErrMalformed, "without CRLF"},
	"line of 108":      {"PROXY UNKNOWN " + strings.Repeat("x", 92) + "\r\n", ErrMalformed, "107"},
	"line without end": {"PROXY UNKNOWN " + strings.Repeat("x", 107-14), ErrMalformed, "107"},
	"unknown to this":  {"PROXY UNKNOWNS\r\n", ErrMalformed, ""},
	"UDP4":             {"PROXY UDP4 192.0.2.1 198.51.100.7 56324 443\r\n", ErrMalformed, ""},
	"nothing":          {"PROXY \r\n", ErrMalformed, ""},
	"two spaces":       {"PROXY TCP4  192.0.2.1 198.51.100.7 56324 443\r\n", ErrMalformed, ""},
	"space at the end": {"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443 \r\n", ErrMalformed, ""},
	"a field less":     {"PROXY TCP4 192.0.2.1 198.51.100.7 56324\r\n", ErrMalformed, ""},
	"IPv6 in TCP4":     {"PROXY TCP4 ::1 ::1 56324 443\r\n", ErrMalformed, ""},
	"IPv4 in TCP6":     {"PROXY TCP6 192.0.2.1 198.51.100.7 56324 443\r\n", ErrMalformed, ""},
	"octal":            {"PROXY TCP4 192.0.2.01 198.51.100.7 56324 443\r\n", ErrMalformed, ""},
	"256":              {"PROXY TCP4 192.0.2.256 198.51.100.7 56324 443\r\n", ErrMalformed, ""},
	"zone":             {"PROXY TCP6 fe80::1%eth0 fe80::2 56324 443\r\n", ErrMalformed, ""},
	"port of 65536":    {"PROXY TCP4 192.0.2.1 198.51.100.7 65536 443\r\n", ErrMalformed, ""},
	"port with a zero": {"PROXY TCP4 192.0.2.1 198.51.100.7 056324 443\r\n", ErrMalformed, ""},
	"port with a sign": {"PROXY TCP4 192.0.2.1 198.51.100.7 +56324 443\r\n", ErrMalformed, ""},
	"no port":          {"PROXY TCP4 192.0.2.1 198.51.100.7  443\r\n", ErrMalformed, ""},
	"name":             {"PROXY TCP4 localhost 198.51.100.7 56324 443\r\n", ErrMalformed, ""},
	"v2 version 1":     {signature + "\x11", ErrMalformed, "version 1"},
	"v2 version 3":     {signature + "\x31", ErrMalformed, "version 3"},
	"v2 command":       {signature + "\x22", ErrMalformed, "command 2"},
	"v2 family":        {v2(0x21, 0x41, inet), ErrMalformed, "0x41"},
	"v2 protocol":      {v2(0x21, 0x13, inet), ErrMalformed, "0x13"},
	"v2 short IPv4":    {v2(0x21, 0x11, inet[:11]), ErrMalformed, "11 bytes for addresses of 12"},
	"v2 short IPv6":    {v2(0x21, 0x21, inet), ErrMalformed, "12 bytes for addresses of 36"},
	"v2 short UNIX":    {v2(0x21, 0x31, inet6), ErrMalformed, "of 216"},
	"v2 too long": {v2(0x21, 0x11, strings.Repeat("x", MaxHeader-fixedLen+1))[:fixedLen], ErrMalformed,
		"4097 bytes, of at most 4096"},
	"v2 LOCAL too long":  {signature + "\x20\x00\xff\xff", ErrMalformed, "of at most 4096"},
	"v2 half a field":    {v2(0x21, 0x11, inet+"\x04\x00"), ErrMalformed, "2 bytes behind"},
	"v2 field overruns":  {v2(0x21, 0x11, inet+"\x04\x00\x02x"), ErrMalformed, "of 2 bytes, of which 1"},
	"v2 wrong checksum":  {flip(summed(0x21, 0x11, inet), fixedLen), ErrMalformed, "wrong checksum"},
	"v2 checksum of UDP": {flip(summed(0x21, 0x12, inet), fixedLen), ErrMalformed, "wrong checksum"},
	"v2 short checksum":  {v2(0x21, 0x11, inet+field(typeChecksum, "\x00\x00\x00")), ErrMalformed, "checksum"},
	"v2 checksum twice": {summed(0x21, 0x11, inet+field(typeChecksum, "\x00\x00\x00\x00")), ErrMalformed,
		"checksum"},
	"v2 checksum, changed": {flip(summed(0x21, 0x11, inet+field(0x04, "zero")), fixedLen+15), ErrMalformed, "checksum"},
}

func flip(p string, at int) string {
	q := []byte(p)
	q[at] ^= 1
	return string(q)
}

func TestParse(t *testing.T) {
	for name, c := range good {
		for _, behind := range []string{"", "GET / HTTP/1.1\r\n", "\x16\x03\x01", c.text} {
			n, h, err := Parse([]byte(c.text + behind))
			if n != len(c.text) || h != c.want || err != nil {
				t.Errorf("%s: %d of %d bytes, %v, %v", name, n, len(c.text), h, err)
			}
		}
	}
	for name, c := range bad {
		n, h, err := Parse([]byte(c.text))
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.part) || h != (Header{}) {
			t.Errorf("%s: %d, %v, %v", name, n, h, err)
		}
	}
}

// A header is the same in any pieces: its beginnings want more, and an error is final.
func TestParseOfEveryPrefix(t *testing.T) {
	for _, c := range good {
		checkPrefixes(t, []byte(c.text+"more"))
	}
	for _, c := range bad {
		checkPrefixes(t, []byte(c.text+"more"))
	}
}

func checkPrefixes(t *testing.T, p []byte) {
	n, h, err := Parse(p)
	for i := range p {
		m, g, early := Parse(p[:i])
		switch {
		case early != nil:
			if err == nil || g != (Header{}) {
				t.Fatalf("%q fails (%v), and with %q behind it does not", p[:i], early, p[i:])
			}
		case m > 0:
			if m != n || g != h || err != nil {
				t.Fatalf("%q is %d bytes, %v; with %q behind it %d, %v, %v", p[:i], m, g, p[i:], n, h, err)
			}
		case err == nil && n > 0 && i >= n, i >= MaxHeader:
			t.Fatalf("the first %d bytes of %q want more", i, p)
		}
	}
}

// What is appended is parsed as it was; version 1 is held against the grammar in the
// specification's own example.
func TestAppend(t *testing.T) {
	mixed := Header{header4.Source, header6.Destination}
	for _, c := range []struct {
		h, back Header
		line    string
		binary  string
	}{
		{header4, header4, "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n", "2111000cc0000201c6336407dc0401bb"},
		{header6, header6, "PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n",
			"21210024" + hex.EncodeToString([]byte(inet6))},
		{mixed, mixed, "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 56324 443\r\n",
			"2121002400000000000000000000ffffc0000201" + "20010db8000000000000000000000002dc0401bb"},
		{Header{}, Header{}, "PROXY UNKNOWN\r\n", "20000000"},
		{Header{Source: header4.Source}, Header{}, "PROXY UNKNOWN\r\n", "20000000"},
	} {
		line, bin := c.h.AppendV1([]byte("x")), c.h.AppendV2([]byte("x"))
		if string(line) != "x"+c.line || hex.EncodeToString(bin[1+len(signature):]) != c.binary {
			t.Errorf("%v: %q, %x", c.h, line, bin)
		}
		for _, p := range [][]byte{line[1:], bin[1:]} {
			if n, h, err := Parse(p); n != len(p) || h != c.back || err != nil {
				t.Errorf("%q: %d, %v, %v; want %v", p, n, h, err, c.back)
			}
		}
	}
}

// No input panics, is taken for longer than it is or depends on how it is cut.
func FuzzParse(f *testing.F) {
	for _, c := range good {
		f.Add([]byte(c.text))
	}
	for _, c := range bad {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		n, h, err := Parse(p)
		if n < 0 || n > len(p) || n > MaxHeader || err != nil && h != (Header{}) || n == 0 && h != (Header{}) {
			t.Fatalf("%q: %d, %v, %v", p, n, h, err)
		}
		checkPrefixes(t, p)
		if !h.Source.IsValid() {
			return
		}
		for _, q := range [][]byte{h.AppendV1(nil), h.AppendV2(nil)} {
			if m, g, err := Parse(q); m != len(q) || g != h || err != nil {
				t.Fatalf("%q says %v, written as %q it says %v, %v", p[:n], h, q, g, err)
			}
		}
		if bytes.HasPrefix(p, []byte(lineStart)) && !bytes.HasSuffix(p[:n], []byte("\r\n")) {
			t.Fatalf("%q is a line without CRLF", p[:n])
		}
	})
}
