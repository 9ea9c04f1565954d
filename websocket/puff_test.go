package websocket

// This is a decoder of DEFLATE that produces nothing: it says how far references reach back, RFC
// 1951 §3.2.

type bitReader struct {
	p    []byte
	at   int // in bits
	over bool
}

func (r *bitReader) bits(n int) (v int) {
	for i := range n {
		if r.at>>3 >= len(r.p) {
			r.over = true
			return 0
		}
		v |= int(r.p[r.at>>3]>>(r.at&7)&1) << i
		r.at++
	}
	return v
}

// huffman is a canonical code: how many codes each length has, and the symbols in order.
type huffman struct {
	count   [16]int
	symbols []int
}

func newHuffman(lengths []int) *huffman {
	h := &huffman{symbols: make([]int, len(lengths))}
	for _, n := range lengths {
		h.count[n]++
	}
	h.count[0] = 0
	var next [16]int
	for n := 1; n < 15; n++ {
		next[n+1] = next[n] + h.count[n]
	}
	for s, n := range lengths {
		if n != 0 {
			h.symbols[next[n]] = s
			next[n]++
		}
	}
	return h
}

func (h *huffman) decode(r *bitReader) int {
	code, first, index := 0, 0, 0
	for n := 1; n <= 15 && !r.over; n++ {
		code |= r.bits(1)
		if code-h.count[n] < first {
			return h.symbols[index+code-first]
		}
		index += h.count[n]
		first = (first + h.count[n]) << 1
		code <<= 1
	}
	r.over = true
	return 0
}

var (
	lengthExtra = [29]int{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	distBase    = [30]int{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537,
		2049, 3073, 4097, 6145,
		8193, 12289, 16385, 24577}
	codeOrder = [19]int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
)

// furthest is the largest distance in a message as it is sent, without its tail.
func furthest(p []byte) (distance int, ok bool) {
	r := &bitReader{p: append(append([]byte{}, p...), flushTail...)}
	for len(r.p)*8-r.at >= 3 {
		last, kind := r.bits(1), r.bits(2)
		switch kind {
		case 0:
			r.at = (r.at + 7) &^ 7
			n := r.bits(16)
			r.bits(16)
			r.at += 8 * n
		case 1:
			distance = max(distance, r.block(fixedCodes()))
		case 2:
			distance = max(distance, r.block(r.dynamicCodes()))
		default:
			return 0, false
		}
		if last == 1 || r.over {
			break
		}
	}
	return distance, !r.over
}

func fixedCodes() (*huffman, *huffman) {
	lengths := make([]int, 288)
	for i := range lengths {
		switch {
		case i < 144:
			lengths[i] = 8
		case i < 256:
			lengths[i] = 9
		case i < 280:
			lengths[i] = 7
		default:
			lengths[i] = 8
		}
	}
	dists := make([]int, 30)
	for i := range dists {
		dists[i] = 5
	}
	return newHuffman(lengths), newHuffman(dists)
}

func (r *bitReader) dynamicCodes() (*huffman, *huffman) {
	nlen, ndist, ncode := r.bits(5)+257, r.bits(5)+1, r.bits(4)+4
	codes := make([]int, 19)
	for i := range ncode {
		codes[codeOrder[i]] = r.bits(3)
	}
	h := newHuffman(codes)
	var lengths []int
	for len(lengths) < nlen+ndist && !r.over {
		again := func(what, n int) {
			for range n {
				lengths = append(lengths, what)
			}
		}
		switch s := h.decode(r); s {
		case 16:
			again(lengths[len(lengths)-1], 3+r.bits(2))
		case 17:
			again(0, 3+r.bits(3))
		case 18:
			again(0, 11+r.bits(7))
		default:
			again(s, 1)
		}
	}
	if r.over || len(lengths) < nlen+ndist {
		r.over = true
		return newHuffman(nil), newHuffman(nil)
	}
	return newHuffman(lengths[:nlen]), newHuffman(lengths[nlen : nlen+ndist])
}

func (r *bitReader) block(lengths, dists *huffman) (distance int) {
	for !r.over {
		s := lengths.decode(r)
		if s == 256 {
			return distance
		}
		if s < 256 {
			continue
		}
		r.bits(lengthExtra[s-257])
		d := dists.decode(r)
		extra := 0
		if d >= 2 {
			extra = d/2 - 1
		}
		distance = max(distance, distBase[d]+r.bits(extra))
	}
	return distance
}
