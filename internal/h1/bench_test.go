package h1

import "testing"

const smallRequest = "GET /plaintext HTTP/1.1\r\nHost: localhost:8080\r\n\r\n"

const browserRequest = "GET /articles/2024/index.html?page=2&sort=new HTTP/1.1\r\n" +
	"Host: www.example.com\r\n" +
	"Connection: keep-alive\r\n" +
	"Cache-Control: max-age=0\r\n" +
	"Upgrade-Insecure-Requests: 1\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 " +
	"Safari/537.36\r\n" +
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8\r\n" +
	"Accept-Encoding: gzip, deflate, br, zstd\r\n" +
	"Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n" +
	"Cookie: session=6f1c2a3b4d5e6f708192a3b4c5d6e7f8; theme=dark; consent=yes\r\n" +
	"\r\n"

func BenchmarkParseSmall(b *testing.B)   { benchmarkParse(b, smallRequest) }
func BenchmarkParseBrowser(b *testing.B) { benchmarkParse(b, browserRequest) }

func benchmarkParse(b *testing.B, request string) {
	p := []byte(request)
	var h Head
	b.ReportAllocs()
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if n, err := ParseRequest(p, Limits{}, &h); n != len(p) || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkParseResponse(b *testing.B) {
	p := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 13\r\n\r\n")
	var h ResponseHead
	b.ReportAllocs()
	for b.Loop() {
		if n, err := ParseResponse(p, Limits{}, &h); n != len(p) || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkCanonicalName(b *testing.B) {
	inputs := [][]byte{[]byte("accept-encoding"), []byte("User-Agent"), []byte("Host"), []byte("sec-fetch-site")}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if CanonicalName(inputs[i%len(inputs)]) == "" {
			b.Fatal("no name")
		}
	}
}

func BenchmarkChunkedDecode(b *testing.B) {
	var p []byte
	for range 16 {
		p = AppendChunk(p, make([]byte, 1000))
	}
	p = append(p, LastChunk...)
	b.ReportAllocs()
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		var d Chunked
		for rest, done := p, false; !done; {
			n, _, end, err := d.Decode(rest)
			if err != nil {
				b.Fatal(err)
			}
			rest, done = rest[n:], end
		}
	}
}

func BenchmarkAppendResponseHead(b *testing.B) {
	dst := make([]byte, 0, 512)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendStatusLine(dst[:0], 1, 200)
		dst = AppendField(dst, "Date", "Tue, 15 Nov 1994 08:12:31 GMT")
		dst = AppendField(dst, "Content-Type", "text/plain; charset=utf-8")
		dst = AppendLength(dst, 13)
		dst = append(dst, "\r\n"...)
	}
}
