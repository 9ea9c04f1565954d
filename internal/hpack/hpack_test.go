package hpack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

func fromHex(t testing.TB, s string) []byte {
	p, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func text(fields []Field) string {
	var lines []string
	for _, f := range fields {
		lines = append(lines, f.Name+": "+f.Value)
	}
	return strings.Join(lines, "\n")
}

// RFC 7541 appendix C.4, three requests on one connection, and the table after each.
func TestAppendixC4(t *testing.T) {
	var d Decoder
	d.Reset()
	for _, tt := range []struct {
		block, want string
		size        int
	}{
		{"8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
			":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com", 57},
		{"8286 84be 5886 a8eb 1064 9cbf",
			":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache", 110},
		{"8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
			":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n" +
				"custom-key: custom-value", 164},
	} {
		fields, _, err := d.Decode(nil, fromHex(t, tt.block), 1<<20)
		if err != nil || text(fields) != tt.want || d.table.size != tt.size {
			t.Errorf("got %v, %d in the table:\n%s", err, d.table.size, text(fields))
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, block string
		want        error
	}{
		{"index 0 (6.1)", "80", ErrIndex},
		{"an index beyond both tables (2.3.3)", "be", ErrIndex},
		{"a name beyond both tables", "7f 00 01 61", ErrIndex},
		{"an integer that does not end (5.1)", "ff ff ff ff ff ff ff ff ff ff ff 01", ErrInteger},
		{"an integer of many zeros (5.1)", "ff 80 80 80 80 80 80 80 00", ErrInteger},
		{"an integer cut", "ff 80", ErrTruncated},
		{"a string cut", "40 03 61", ErrTruncated},
		{"no value", "40 01 61", ErrTruncated},
		{"EOS in a string (5.2)", "00 84 ff ff ff fc 00", ErrHuffman},
		{"padding of 8 bits (5.2)", "00 82 1f ff 00", ErrHuffman},
		{"padding of zeros (5.2)", "00 81 18 00", ErrHuffman},
		{"a size update behind a field (4.2)", "82 20", ErrSizeUpdate},
		{"three size updates (4.2)", "20 20 20 82", ErrSizeUpdate},
		{"a size update above the setting (6.3)", "3f e2 1f 82", ErrSizeUpdate},
	} {
		var d Decoder
		d.Reset()
		if _, _, err := d.Decode(nil, fromHex(t, tt.block), 1<<20); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	var d Decoder
	d.Reset()
	if _, _, err := d.Decode(nil, fromHex(t, "20 3f e1 1f 82"), 1<<20); err != nil {
		t.Errorf("two size updates: %v", err)
	}
}

// A block of a few bytes for each field that stands for megabytes takes no more memory than the
// list may have, and the table is right afterwards.
func TestDecodeBomb(t *testing.T) {
	var d Decoder
	d.Reset()
	big := strings.Repeat("x", 3900)
	block := appendString(append([]byte{0x40}, 1, 'a'), []byte(big))
	block = append(block, bytes.Repeat([]byte{0xbe}, 16<<10)...)
	fields, size, err := d.Decode(nil, block, 10<<10)
	if err != nil || len(fields) != 2 || size != (16<<10+1)*(1+3900+32) {
		t.Errorf("%d fields, size %d, %v", len(fields), size, err)
	}
	if cap(d.arena) > 64<<10 {
		t.Errorf("%d bytes for strings", cap(d.arena))
	}
	fields, _, err = d.Decode(nil, []byte{0xbe}, 10<<10)
	if err != nil || len(fields) != 1 || fields[0].Value != big {
		t.Errorf("afterwards: %d fields, %v", len(fields), err)
	}
}

// A block that refers to one entry again and again has its strings once: neither bytes nor time are
// those of the list that it stands for.
func TestDecodeRepeatedReferences(t *testing.T) {
	const list = 1 << 20
	big := strings.Repeat("x", 3900)
	entry := append(appendString([]byte{0x40}, []byte(big)), appendString(nil, []byte("v"))...)
	for _, tt := range []struct {
		name, again string
		value       string
	}{{"an entry", "\xbe", "v"}, {"its name", "\x0f\x2f\x01w", "w"}, {"the name of the entry before", "\x7e\x01w",
		"w"}} {
		var d Decoder
		d.Reset()
		n := list / (len(big) + fieldOverhead + 1)
		block := append(slices.Clone(entry), strings.Repeat(tt.again, n-1)...)
		fields, size, err := d.Decode(nil, block, list)
		if err != nil || len(fields) != n || size < list*9/10 {
			t.Fatalf("%s: %d fields, size %d, %v", tt.name, len(fields), size, err)
		}
		for i, f := range fields[1:] {
			if f.Name != big || f.Value != tt.value {
				t.Fatalf("%s: field %d is %.9s: %s", tt.name, i+1, f.Name, f.Value)
			}
		}
		if len(d.arena) > 2*len(block)+TableSize {
			t.Errorf("%s: %d bytes of strings for a block of %d", tt.name, len(d.arena), len(block))
		}
	}
}

// A block that copies a long name from entry to entry ends soon: so does the time that it takes.
func TestDecodeCopiesFewNames(t *testing.T) {
	const list = 64 << 10
	var d Decoder
	d.Reset()
	block := append(appendString([]byte{0x40}, []byte(strings.Repeat("x", 4000))), 0)
	block = append(block, bytes.Repeat([]byte{0x7e, 0}, list)...) // with the name of the entry before
	if _, size, err := d.Decode(nil, block, list); err != ErrNames || size > 3*list {
		t.Errorf("size %d, %v", size, err)
	}
}

// When the numbers of blocks begin anew, no entry has a place in a block of long ago.
func TestDecodeManyBlocks(t *testing.T) {
	var d Decoder
	d.Reset()
	for range 3 {
		fields, _, err := d.Decode(nil, []byte("\x40\x01a\x01b\xbe"), 1000)
		if err != nil || text(fields) != "a: b\na: b" {
			t.Fatalf("block %d: %v %q", d.block, err, text(fields))
		}
		fields, _, err = d.Decode(nil, []byte("\x00\x01c\x03def\xbe"), 1000)
		if err != nil || text(fields) != "c: def\na: b" {
			t.Fatalf("block %d: %v %q", d.block, err, text(fields))
		}
		d.block = 1<<32 - 1
	}
}

// A table that each field empties holds no more than it may.
func TestDecodeTableThrash(t *testing.T) {
	var d Decoder
	d.Reset()
	for i := range 3000 {
		value := strings.Repeat(string(rune('a'+i%26)), 1+i*7%4000)
		block := append([]byte{0x40, 1, 'k'}, appendString(nil, []byte(value))...)
		if _, _, err := d.Decode(nil, block, 1<<20); err != nil {
			t.Fatal(err)
		}
		if d.table.size > TableSize || cap(d.table.mem) > 4*TableSize || cap(d.table.entries) > 1024 {
			t.Fatalf("size %d, %d bytes and %d entries of memory", d.table.size, cap(d.table.mem),
				cap(d.table.entries))
		}
	}
}

// randomFields are like those of requests: many of them repeat.
func randomFields(r *rand.Rand) (fields []hpack.HeaderField) {
	for range r.IntN(12) {
		f := hpack.HeaderField{Name: fmt.Sprintf("x-%d", r.IntN(9)), Value: strings.Repeat("v", r.IntN(200))}
		if r.IntN(2) == 0 {
			s := staticTable[r.IntN(len(staticTable))]
			f.Name, f.Value = s.Name, s.Value
		}
		f.Sensitive = r.IntN(10) == 0
		if r.IntN(8) == 0 {
			f.Value = strings.Repeat("\xff", r.IntN(3000))
		}
		fields = append(fields, f)
	}
	return fields
}

// What x/net's encoder writes is what comes out, also by way of Pack and Unpack between any two
// blocks.
func TestDecodeOtherEncoder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		var d Decoder
		d.Reset()
		for range 20 {
			if r.IntN(4) == 0 {
				e.SetMaxDynamicTableSize(r.Uint32N(TableSize + 1))
			}
			if r.IntN(3) == 0 {
				packed := d.Pack(nil)
				if len(packed) > TableSize {
					t.Fatalf("a packed table of %d bytes", len(packed))
				}
				d = Decoder{}
				d.Unpack(packed)
			}
			block.Reset()
			var want []Field
			for _, f := range randomFields(r) {
				if err := e.WriteField(f); err != nil {
					t.Fatal(err)
				}
				want = append(want, Field{f.Name, f.Value, f.Sensitive})
			}
			got, _, err := d.Decode(nil, block.Bytes(), 1<<20)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %d: %v\n%v\n%v", seed, err, got, want)
			}
		}
	}
}

// What AppendField writes is what x/net's decoder and ours read.
func TestEncode(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		block := AppendForget(nil)
		fields := randomFields(r)
		for _, f := range fields {
			block = AppendField(block, []byte(f.Name), []byte(f.Value), f.Sensitive)
		}
		got, err := hpack.NewDecoder(TableSize, nil).DecodeFull(block)
		if err != nil || !slices.Equal(got, fields) {
			t.Fatalf("seed %d: %v\n%v\n%v", seed, err, got, fields)
		}
		var d Decoder
		d.Reset()
		if _, _, err := d.Decode(nil, block, 1<<20); err != nil || !d.Empty() && d.table.max != 0 {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if got := AppendField(nil, []byte(":status"), []byte("200"), false); len(got) != 1 {
		t.Errorf(":status 200 is %x", got)
	}
	if n := testing.AllocsPerRun(100, func() {
		block := [64]byte{}
		AppendField(block[:0], []byte("content-type"), []byte("text/plain; charset=utf-8"), false)
	}); n != 0 {
		t.Errorf("%v allocations for a field", n)
	}
}

// x/net's decoder and ours accept the same blocks and read the same fields, one block after the
// other. Ours is stricter about size updates and long integers.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"828684418cf1e3c2e5f23a6ba0ab90f4ff", "828684be5886a8eb10649cbf", "203fe11f82", "80",
		"400361", "4001610162be", "0084fffffffc00", "7f000161"} {
		f.Add(fromHex(f, s), uint16(9), uint16(1000))
	}
	f.Fuzz(func(t *testing.T, p []byte, cut, list uint16) {
		var want []Field
		other := hpack.NewDecoder(TableSize, func(f hpack.HeaderField) {
			want = append(want, Field{f.Name, f.Value, f.Sensitive})
		})
		var d Decoder
		d.Reset()
		for _, block := range [][]byte{p[:min(int(cut), len(p))], p[min(int(cut), len(p)):]} {
			want = nil
			_, err := other.Write(block)
			if err == nil {
				err = other.Close()
			}
			got, _, ours := d.Decode(nil, block, 1<<20)
			if ours == ErrSizeUpdate || ours == ErrInteger {
				return
			}
			if (err == nil) != (ours == nil) {
				t.Fatalf("%x: x/net: %v, ours: %v", block, err, ours)
			}
			if err != nil {
				return
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%x: x/net: %v, ours: %v", block, want, got)
			}
			if len(d.arena) > 10*len(block)+TableSize {
				t.Fatalf("%x: %d bytes of strings", block, len(d.arena))
			}
			if d.table.size > d.table.max || d.table.max > TableSize {
				t.Fatalf("a table of %d bytes, at most %d", d.table.size, d.table.max)
			}
			checkShort(t, p, cut, list)
		}
	})
}

// checkShort decodes again with a shorter list, which must give the first fields and leave the same
// table.
func checkShort(t *testing.T, p []byte, cut, list uint16) {
	var whole, short Decoder
	whole.Reset()
	short.Reset()
	for _, block := range [][]byte{p[:min(int(cut), len(p))], p[min(int(cut), len(p)):]} {
		all, size, err := whole.Decode(nil, block, 1<<20)
		some, shortSize, shortErr := short.Decode(nil, block, int(list))
		if err != shortErr || size != shortSize || len(some) > len(all) {
			t.Fatalf("%d of %d bytes, %v; %d, %v", list, size, err, shortSize, shortErr)
		}
		if err != nil {
			return
		}
		if !bytes.Equal(whole.Pack(nil), short.Pack(nil)) {
			t.Fatal("the table depends on the list's limit")
		}
	}
}
