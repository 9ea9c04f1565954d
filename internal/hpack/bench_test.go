package hpack

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// chromeFields are what Chromium sends with a request.
var chromeFields = []Field{{Name: ":method", Value: "GET"}, {Name: ":authority", Value: "www.example.com"},
	{Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/index.html"},
	{Name: "sec-ch-ua", Value: `"Chromium";v="142", "Google Chrome";v="142", "Not_A Brand";v="99"`},
	{Name: "sec-ch-ua-mobile", Value: "?0"}, {Name: "sec-ch-ua-platform", Value: `"Linux"`},
	{Name: "upgrade-insecure-requests", Value: "1"},
	{Name: "user-agent", Value: "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/142.0.0.0 Safari/537.36"},
	{Name: "accept", Value: "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"},
	{Name: "sec-fetch-site", Value: "none"}, {Name: "sec-fetch-mode", Value: "navigate"},
	{Name: "sec-fetch-user", Value: "?1"}, {Name: "sec-fetch-dest", Value: "document"},
	{Name: "accept-encoding", Value: "gzip, deflate, br, zstd"}, {Name: "accept-language", Value: "en-US,en;q=0.9"},
	{Name: "priority", Value: "u=0, i"}}

// blocks are the same request twice: with literals, and by the table's entries.
func blocks(b *testing.B) (first, again []byte) {
	var buffer bytes.Buffer
	e := hpack.NewEncoder(&buffer)
	for _, into := range []*[]byte{&first, &again} {
		buffer.Reset()
		for _, f := range chromeFields {
			if err := e.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value}); err != nil {
				b.Fatal(err)
			}
		}
		*into = bytes.Clone(buffer.Bytes())
	}
	return first, again
}

func BenchmarkDecode(b *testing.B) {
	first, again := blocks(b)
	var d Decoder
	d.Reset()
	fields, _, err := d.Decode(nil, first, 64<<10)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if fields, _, err = d.Decode(fields[:0], again, 64<<10); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeXNet(b *testing.B) {
	first, again := blocks(b)
	d := hpack.NewDecoder(TableSize, func(hpack.HeaderField) {})
	d.Write(first)
	for b.Loop() {
		if _, err := d.Write(again); err != nil {
			b.Fatal(err)
		}
		d.Close()
	}
}

func BenchmarkPack(b *testing.B) {
	first, _ := blocks(b)
	var d Decoder
	d.Reset()
	if _, _, err := d.Decode(nil, first, 64<<10); err != nil {
		b.Fatal(err)
	}
	var packed []byte
	for b.Loop() {
		packed = d.Pack(packed[:0])
		d.Unpack(packed)
	}
	b.ReportMetric(float64(len(packed)), "bytes")
}

func BenchmarkEncode(b *testing.B) {
	var block []byte
	for b.Loop() {
		block = AppendField(block[:0], []byte(":status"), []byte("200"), false)
		block = AppendField(block, []byte("content-type"), []byte("text/plain; charset=utf-8"), false)
		block = AppendField(block, []byte("content-length"), []byte("13"), false)
		block = AppendField(block, []byte("date"), []byte("Wed, 25 Nov 2026 00:00:00 GMT"), false)
	}
}
