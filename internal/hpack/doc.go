// Package hpack compresses and decompresses header fields as HTTP/2 does (RFC 7541):
//
//	var d hpack.Decoder
//	d.Reset()
//	fields, size, err := d.Decode(nil, block, 64<<10)  // a whole field block, in wire order
//
//	block = hpack.AppendField(nil, []byte(":status"), []byte("200"), false)
//
// A Decoder keeps the dynamic table of one direction of a connection. Pack turns it into few bytes
// while the connection is idle, and Unpack takes them back. The encoder has no dynamic table: it
// uses the static one and Huffman codes, so that a connection keeps no state for it and the order
// of its blocks does not matter.
package hpack

// TableSize is the size of the dynamic table that a peer may use before any setting (RFC 9113
// section 6.5.2), and the one that a Decoder always grants.
const TableSize = 4096

// A Field is a name and a value. Sensitive says that the sender wants it in no dynamic table (RFC
// 7541 section 7.1.3).
type Field struct {
	Name, Value string
	Sensitive   bool
}

// fieldOverhead counts for each field, in tables and lists (RFC 7541 section 4.1).
const fieldOverhead = 32
