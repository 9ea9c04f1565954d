package web

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/soak"
)

// requestsFile is the corpus that was written by hand.
func requestsFile(t *testing.T) (inputs []string) {
	text, err := os.ReadFile("testdata/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		input, err := strconv.Unquote(`"` + line + `"`)
		if err != nil {
			t.Fatalf("testdata/requests.txt:%d: %v", i+1, err)
		}
		inputs = append(inputs, input)
	}
	return inputs
}

// places are requests in which § stands where something does not belong.
var places = []string{
	"§GET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"G§ET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET§ / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET §/ HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /a§b HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /a?b§c HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /§ HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET http://h§/ HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET http§://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET / §HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET / HTTP§/1.1\r\nHost: h\r\n\r\n",
	"GET / HTTP/1§.1\r\nHost: h\r\n\r\n",
	"GET / HTTP/1.§1\r\nHost: h\r\n\r\n",
	"GET / HTTP/1.1§\r\nHost: h\r\n\r\n",
	"GET / HTTP/1.1\r\n§Host: h\r\n\r\n",
	"GET / HTTP/1.1\r\nHost§: h\r\n\r\n",
	"GET / HTTP/1.1\r\nHost:§h\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a§b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h§\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h:8§0\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: [::§1]\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\n§X: y\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nX§Y: z\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nX§: y\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nX:§y\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nX: y§z\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nX: y§\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n§\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length§: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length:§5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5§\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0§5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello§",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding§: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer§Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:§chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chun§ked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked§\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n§5\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5§\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;§a=b\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a§=b\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a=§b\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b§\"\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b§\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello§\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0§\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n§\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX§: y\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y§\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n§",
	"GET / HTTP/1.1\r\nHost: h\r\nConnection:§close\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nConnection: close§\r\n\r\n",
	"GET / HTTP/1.0\r\nConnection: keep-alive§\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue§\r\nContent-Length: 1\r\n\r\na",
	"CONNECT h§:80 HTTP/1.1\r\nHost: h\r\n\r\n",
	"CONNECT h:8§0 HTTP/1.1\r\nHost: h\r\n\r\n",
	"OPTIONS *§ HTTP/1.1\r\nHost: h\r\n\r\n",
}

// misplaced is what is put there: each byte, and some sequences.
func misplaced() (all []string) {
	for b := range 256 {
		all = append(all, string([]byte{byte(b)}))
	}
	return append(all, "", "\r\n", "\r\n ", "\r\n\t", "\n ", "\r\r\n", "\n\r", "\r\nX: ", "\nX: ", "  ", " \t", "%00",
		"%0d%0a", "%zz", "\xc2\x85", "\xc2\xa0", "\xe2\x80\xa8",
		"\x0b\x0c", "0x", "+1", "_", ", ", ";q=1", "chunked", "\r\n\r\n", "\n\n", "//", "../", "@", "\\")
}

func bytesInPlaces(every int) (inputs []string) {
	for i, place := range places {
		for j, what := range misplaced() {
			if (i+j)%every == 0 {
				inputs = append(inputs, strings.Replace(place, "§", what, 1))
			}
		}
	}
	return inputs
}

// oddLineEnds are a chunked request of which one line ends as no line should.
func oddLineEnds() (inputs []string) {
	lines := []string{"POST / HTTP/1.1", "Host: h", "Transfer-Encoding: chunked", "", "5;a=b", "hello", "0", "X: y", ""}
	for i := range lines {
		for _, end := range []string{"\n", "\r", "\r\r\n", "\n\r", "\rX", "\n\n", "\r\n\r\n", "\r\n\n", " \r\n",
			"\t\r\n", "\x00\r\n", "\r\x00\n", "\x0b\r\n", "\u0085", "", "\\r\\n"} {
			var b strings.Builder
			for j, line := range lines {
				b.WriteString(line)
				if i == j {
					b.WriteString(end)
				} else {
					b.WriteString("\r\n")
				}
			}
			inputs = append(inputs, b.String())
		}
	}
	return inputs
}

var (
	codings = []string{
		"chunked", "Chunked", "CHUNKED", "chunked, chunked", "chunked,chunked", "gzip", "identity", "gzip, chunked",
		"chunked, gzip", "identity, chunked",
		"chunked, identity", "identity, chunked, identity", "deflate, chunked", "trailers", "chunk", "chunkedd",
		"xchunked", "chunkedchunked", "x chunked", "chunked x",
		"\"chunked\"", "'chunked'", "chunked;q=1", "chunked; q=1", "chunked;", "chunked,", ",chunked", ", chunked",
		"chunked ,", "\tchunked", "chunked\t", " chunked ", "\x0bchunked",
		"\x0cchunked", "chunked\x0b", "chunked\x00", "\x00chunked", "chunked\x7f", "\xa0chunked", "\xc2\xa0chunked",
		"chunked\xff", "ch\x96nked", "=?UTF-8?B?Y2h1bmtlZA==?=", "%63hunked", "", " ", ",", "chunked\r\n ",
		"\r\n chunked", "\r\n\tchunked", "\n chunked", "chunked\r", "\rchunked", "chunked\n", "c\rhunked",
		"chunked\r\nTransfer-Encoding: chunked", "chunked\r\nTransfer-Encoding: identity",
		"identity\r\nTransfer-Encoding: chunked", "chunked\r\ntransfer-encoding:", "gzip\r\nTransfer-Encoding: gzip",
	}
	codingNames = []string{
		"Transfer-Encoding", "transfer-encoding", "TRANSFER-ENCODING", "tRANSFER-ENCODING", "Transfer_Encoding",
		"Transfer Encoding", "Transfer-Encoding ", " Transfer-Encoding", "\tTransfer-Encoding",
		"Transfer\\Encoding", "Transfer-%45ncoding", "Transf\x82r-Encoding", "Transfer\xad-Encoding",
		"Transfer-Encoding\x85", "Transfer-Encoding\xa0", "Transfer-Encoding x", "Tra\rnsfer-Encoding",
		"Transfer-Encoding\n ", "Transfer-Encoding\r\n ", "Foo: bar\r\n Transfer-Encoding",
		"Foo: bar\rTransfer-Encoding", "Foo: bar\nTransfer-Encoding", "Foo: bar\r\n\rTransfer-Encoding",
		"Content-Encoding",
		"Connection: Transfer-Encoding\r\nTransfer-Encoding", "X: barn\n\nTransfer-Encoding", ":transfer-encoding",
		"X-Transfer-Encoding", "TE", "Proxy-Transfer-Encoding",
	}
	lengths = []string{
		"5", "05", "005", "+5", "-5", "-0", "0x5", "5.0", "5e0", "5,", ",5", "5, 5", "5,5", "5, 6", "0, 5", "5 5", "5 ",
		" 5", "\t5\t", "\x0b5", "5\x0c", "5\x00", "\x005", "5\xa0", "\"5\"", "5;", "5_0", "_5", "5a", "a5", "", " ",
		"-",
		"٥", "18446744073709551621", "9223372036854775807", "9223372036854775808", "99999999999999999999999",
		"00000000000000000005", "0000000000000000005", "5\r\nContent-Length: 5", "5\r\nContent-Length: 6",
		"5\r\nContent-Length: 05", "0\r\nContent-Length: 5", "5\r\ncontent-length: 5", "5\r\nContent-Length:",
		"5\r\nContent-Length: x", "\r\n 5", "5\r\n 0", "0\r\n 5", "5\r", "5\n", "NaN", "null", "0b101", "5/1",
	}
	lengthNames = []string{"Content-Length", "content-length", "CONTENT-LENGTH", "Content_Length", "Content Length",
		"Content-Length ", " Content-Length", "Content\rLength", "Content-Length\x00", "X: y\r\n Content-Length",
		"X: y\nContent-Length"}
)

// oddFramings are requests whose bodies are as long as two fields say that do not agree on it.
func oddFramings() (inputs []string) {
	const chunks, plain = "5\r\nhello\r\n0\r\n\r\n", "hello"
	request := func(version, fields, body string) {
		inputs = append(inputs, "POST / "+version+"\r\nHost: h\r\n"+fields+"\r\n\r\n"+body)
	}
	for _, coding := range codings {
		for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} {
			request(version, "Transfer-Encoding: "+coding, chunks)
			request(version, "Transfer-Encoding:"+coding+"\r\nContent-Length: 5", plain)
			request(version, "Content-Length: 15\r\nTransfer-Encoding: "+coding, chunks)
		}
	}
	for _, name := range codingNames {
		request("HTTP/1.1", name+": chunked", chunks)
		request("HTTP/1.1", name+": chunked\r\nContent-Length: 5", plain)
		request("HTTP/1.1", "Content-Length: 15\r\n"+name+": chunked", chunks)
	}
	for _, length := range lengths {
		request("HTTP/1.1", "Content-Length: "+length, plain)
		request("HTTP/1.0", "Connection: keep-alive\r\nContent-Length: "+length, plain)
		request("HTTP/1.1", "Content-Length: "+length+"\r\nTransfer-Encoding: chunked", chunks)
		request("HTTP/1.1", "Content-Length: "+length+"\r\nContent-Length: 5", plain)
	}
	for _, name := range lengthNames {
		request("HTTP/1.1", name+": 5", plain)
		request("HTTP/1.1", name+": 5\r\nContent-Length: 0", plain)
		request("HTTP/1.1", name+": 5\r\nTransfer-Encoding: chunked", chunks)
	}
	return inputs
}

// oddChunks are chunked bodies whose size lines, data and trailers are odd.
func oddChunks() (inputs []string) {
	body := func(s string) {
		inputs = append(inputs, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"+s)
	}
	for _, size := range []string{
		"5", "05", "0005", "0000000000000005", "00000000000000005", "000000000000000000000000005", "+5", "-5", "0x5",
		"0X5", "5h", "h5", "x", "", " 5", "5 ", "\t5", "5\t", "5 \t", "5 x", "5,", "5.", "5_0", "_5", "5\x00",
		"5\x0b",
		"5\xa0", "\"5\"", "5=", "5:", "5#", "5/", "-1", "ffffffffffffffff", "7fffffffffffffff", "8000000000000000",
		"10000000000000005", "fffffffffffffffff", "٥",
		"5;", "5; ", "5;a", "5;a=", "5;a=b", "5;a=\"b\"", "5;a=\"b", "5;a=\"b\\\"", "5;a=\"b\\\"\"", "5;a=\"\x00\"",
		"5;a=\"\t\"", "5;a=\"\xff\"", "5;=b", "5;;", "5;;a", "5;a;b", "5;a=b;c=d", "5 ;a", "5;a =b", "5;a= b",
		"5; a = b ", "5\t;\ta", "5;a b",
		"5;a=b c", "5;a=\"b\"c", "5;(a)", "5;a=(b)", "5;a\x00", "5;a\x0b", "5;a\x7f", "5;a\xff", "5;a=b\r", "5;\rX",
		"5\r", "5;a\n", "5 a",
	} {
		body(size + "\r\nhello\r\n0\r\n\r\n")
		body("3\r\nabc\r\n" + size + "\r\nhello\r\n0\r\n\r\n")
	}
	for _, last := range []string{"0", "00", "0000000000000000", "00000000000000000", "0;a", "0 ", "0 x", "-0", "+0",
		"0x0", "0\t", "", "0;a=\"b", "0;" + strings.Repeat("a", 3000)} {
		body("5\r\nhello\r\n" + last + "\r\n\r\n")
	}
	for _, end := range []string{"", "\n", "\r", "\r\r\n", "x\r\n", " \r\n", "\r\n\r\n", "\x00\x00", "0\r\n"} {
		body("5\r\nhello" + end + "0\r\n\r\n")
	}
	for _, trailer := range []string{
		"X: y\r\n", "X:y\r\n", "X : y\r\n", " X: y\r\n", "X: y\r\n z\r\n", "X\r\n", ": y\r\n", "X: \x00\r\n", "X: y\n",
		"X: y\r", "X: \xff\r\n", "\xff: y\r\n", "(X): y\r\n", "X: \x7f\r\n", "Content-Length: 3\r\n",
		"Transfer-Encoding: chunked\r\n", "Host: evil\r\n",
		"Trailer: X\r\n", "Authorization: x\r\n", "Content-Type: x\r\n", "Connection: close\r\n", "Set-Cookie: x\r\n",
		"X: a\r\nX: b\r\n", "x-lower: y\r\n", "\n", "\r\n", strings.Repeat("X: y\r\n", 50),
	} {
		body("5\r\nhello\r\n0\r\n" + trailer + "\r\n")
	}
	for _, announced := range []string{"X", "x", "X, Y", "X,,Y", ",", "", "X Y", "Content-Length", "transfer-encoding",
		"Trailer", "Host", "Authorization", "\xff", "X\r\nTrailer: Y"} {
		inputs = append(inputs, "POST / HTTP/1.1\r\nHost: h\r\nTrailer: "+announced+"\r\nTransfer-Encoding: "+
			"chunked\r\n\r\n3\r\nabc\r\n0\r\nX: 1\r\nY: 2\r\n\r\n")
	}
	return inputs
}

// oddHeads are requests of which target, host or version is odd.
func oddHeads() (inputs []string) {
	targets := []string{
		"/", "//", "///", "//h/p", "/..", "/../..", "/./", "/a//b", "/%", "/%2", "/%2f", "/%zz", "/%00", "/%0d%0a",
		"/%ff", "/a;b=c", "/a?", "/?", "/??", "/?a#b", "/#", "#", "?", "?a", "*", "**", "*/", "a", "a/b", ".", "..",
		"./a", "h:80", "h:", "h", "h:x", "h:0", "h:65536", ":80", ":", "[::1]:80",
		"[::1]", "[::1", "::1:80", "[::1%25en0]:80", "http:", "http:/", "http://", "http:///", "http://h", "http://h/",
		"http://h?a", "http://h#a", "http://h:80/", "http://h:/", "http://h:x/", "http://h:99999999/",
		"http://u@h/", "http://u:p@h/", "http://@h/", "http://h@/", "http://[::1]/", "http://[::1/",
		"http://[::1%25en0]/", "http://h%41/", "http://h%00/", "http://h h/", "http://h\\a/", "HTTP://H/", "https://h/",
		"ftp://h/", "x-y+z.1://h/", "1http://h/", "://h/", "mailto:a@b", "urn:a:b", "javascript:x", "/\\", "\\",
		"\\\\h\\p", "http:\\\\h\\", "/\xff", "/\xc3\xa9", "\xc3\xa9", "/|", "/\"", "/<>", "/{}", "/`", "/^",
		"/'", "/[", "/a[b]", "/\x7f", "http://\xc3\xa9/", "http://h_h/", "http://-/",
		"http://h/../", "http://h//", "http://*/", "http://h/*", "http://h;p/", "http://h,g/", "http://h=1/",
		"http://(h)/", "http://h!$&'()*+,;=/", "http://h:80:80/", "http://1.2.3.4.5/", "http://./",
	}
	for _, target := range targets {
		for _, method := range []string{"GET", "OPTIONS", "CONNECT", "POST"} {
			inputs = append(inputs, method+" "+target+" HTTP/1.1\r\nHost: h\r\n\r\n")
		}
		inputs = append(inputs, "GET "+target+" HTTP/1.0\r\n\r\n")
	}
	hosts := []string{
		"", "h", "H", "h:80", "h:", "h:x", "h:99999", ":80", ":", "1.2.3.4", "::1", "[::1]", "[::1]:80",
		"[::1%25en0]:80", "[", "a b", "a\tb", "a/b", "a?b", "a#b", "u@h", "a,b", "a;b", "a=b", "a\\b", "a|b",
		"\"h\"", "<h>", "{h}", "h%41", "h%zz", "\xff", "\xc3\xa9", "\x00", "a\x7f", "h\r\nHost: g",
		"h\r\nHost: h",
		"h\r\nhost:", "-", "_", "*", ".", "..", "h.", "foo-bar_baz.com", "http://h", "h/", "!$&'()*+", "^", "`", "~",
		"xn--h", strings.Repeat("h", 300),
	}
	for _, host := range hosts {
		for _, line := range []string{"GET / HTTP/1.1", "GET / HTTP/1.0", "GET http://other/ HTTP/1.1",
			"CONNECT a:1 HTTP/1.1", "OPTIONS * HTTP/1.1"} {
			inputs = append(inputs, line+"\r\nHost: "+host+"\r\n\r\n",
				line+"\r\n"+strings.TrimRight("host:"+host, " ")+"\r\nX: y\r\n\r\n")
		}
	}
	for _, version := range []string{
		"HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/1.9", "HTTP/1.10", "HTTP/1.01", "HTTP/01.1", "HTTP/1", "HTTP/1.",
		"HTTP/.1", "HTTP/", "HTTP", "HTTP/1.1.1", "HTTP/1,1", "HTTP/1 1", "HTTP /1.1", "HTTP/ 1.1", "HTTP/1.1x",
		"xHTTP/1.1", "http/1.1", "Http/1.1", "HTTP\\1.1", "HTTP/-1.1", "HTTP/+1.1", "HTTP/1.-1", "HTTP/1.+1",
		"HTTP/1.x",
		"HTTP/x.1", "HTTP/0.0", "HTTP/0.9", "HTTP/2", "HTTP/2.0", "HTTP/2.1", "HTTP/3.0", "HTTP/3", "HTTP/9.9",
		"HTTP/10.1", "HTTP/99999999999999999999.1", "HTTPS/1.1", "ICE/1.0", "RTSP/1.0", "SIP/2.0", "", " ", "1.1",
		"HTTP/1.1 x", "HTTP/1.1\t", " HTTP/1.1", "\tHTTP/1.1", "HTTP/١.1", "HTTP/1.1\x00",
	} {
		for _, start := range []string{"GET /", "PRI *", "POST /"} {
			inputs = append(inputs, start+" "+version+"\r\nHost: h\r\n\r\n", start+" "+version+"\r\n\r\n")
		}
	}
	for n := range 9 {
		for _, empty := range []string{"\r\n", "\n", " \r\n"} {
			inputs = append(inputs, strings.Repeat(empty, n)+"GET / HTTP/1.1\r\nHost: h\r\n\r\n"+strings.Repeat(empty,
				n),
				"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\na"+strings.Repeat(empty, n))
		}
	}
	return inputs
}

// mutants are valid requests that chance has changed.
func mutants(n int) (inputs []string) {
	seeds := []string{
		"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\n" +
			"X: y\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /a HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nAccept: text/html, */*;q=0.8\r\nCookie: a=b\r\n\r\n" +
			"PUT /c HTTP/1.0\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nab",
		"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\nCONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 0\r\n\r\n" +
			"GET http://h/x?y HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nz",
	}
	tokens := []string{"\r\n", "\r", "\n", "\x00", ":", "\t", " ", ";", ",", "0", "5", "chunked",
		"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: identity\r\n", "Host: g\r\n",
		"Connection: close\r\n", "HTTP/1.0", "\r\n\r\n", "0\r\n\r\n", "%", "@", "\xff"}
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := seeds[r.IntN(len(seeds))]
		for range 1 + r.IntN(3) {
			i := r.IntN(len(s))
			j := min(len(s), i+1+r.IntN(1<<r.IntN(5)))
			switch r.IntN(5) {
			case 0:
				s = s[:i] + s[i+1:]
			case 1:
				s = s[:i] + string([]byte{byte(r.IntN(256))}) + s[i+1:]
			case 2:
				s = s[:i] + tokens[r.IntN(len(tokens))] + s[i:]
			case 3:
				s = s[:j] + s[i:] // some of it twice
			case 4:
				s = s[:i] + s[j:] + "\r\n"
			}
		}
		inputs = append(inputs, s)
	}
	return inputs
}

// A corpus is inputs of one kind.
type corpus struct {
	name   string
	inputs []string
}

// corpora are all inputs, or the usual part of them.
func corpora(t *testing.T) []corpus {
	every, some := 7, 300
	if soak.On(t) {
		every, some = 1, 4000
	}
	if s := os.Getenv("MYRIAD_MUTANTS"); s != "" {
		fmt.Sscan(s, &some)
	}
	return []corpus{
		{"by hand", requestsFile(t)}, {"bytes in places", bytesInPlaces(every)}, {"line ends", oddLineEnds()},
		{"framings", oddFramings()}, {"chunks", oddChunks()},
		{"heads", oddHeads()}, {"mutants", mutants(some)},
	}
}

func TestLikeNetHTTP(t *testing.T) { likeNetHTTP(t, overHTTP1, decisions) }

// likeNetHTTP runs the corpora, and wants each decision to be shown by an input.
func likeNetHTTP(t *testing.T, v version, decisions []*decision) {
	for _, c := range corpora(t) {
		t.Run(c.name, func(t *testing.T) { differ(t, v, c.inputs, decisions) })
	}
	for _, d := range decisions {
		if d.shown == 0 {
			t.Errorf("no input shows what has been decided: %s", d.why)
		}
		t.Logf("%d: %s", d.shown, d.why)
	}
}
