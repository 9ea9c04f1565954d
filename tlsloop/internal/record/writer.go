package record

import "slices"

// A Writer is the sending side. The zero value needs Set.
type Writer struct {
	Keys
	records uint8  // of small size that were sent, at most 255
	sent    uint32 // bytes, at most boostAfter
}

const (
	// firstContent is what fits into one segment of TCP, and boostAfter is how many bytes are sent
	// until all records are of full size. Both are those of crypto/tls.
	firstContent = 1208 - Overhead
	boostAfter   = 128 << 10
)

// Content is how many of n bytes the next record of application data should have. Records grow with
// what has been sent, as those of crypto/tls do, so that a client can read the first ones with the
// first segments.
func (w *Writer) Content(n int) int {
	if w.sent >= boostAfter {
		return min(n, MaxPlaintext)
	}
	size := min(n, firstContent*(int(w.records)+1), MaxPlaintext)
	if w.records < 255 {
		w.records++
	}
	return size
}

// AlwaysFull has Content always return full records (Config.DynamicRecordSizingDisabled).
func (w *Writer) AlwaysFull() { w.sent = boostAfter }

// Seal appends a record with at most MaxPlaintext bytes to dst. c is the Cipher of w's current key.
// Once a key has sealed MaxSealed records, SealUpdate is due before the next one.
func (w *Writer) Seal(c *Cipher, dst []byte, kind Type, content []byte) []byte {
	if w.used() || len(content) > MaxPlaintext {
		panic("record: Seal without a key, or past the limits of a key or of a record")
	}
	n := len(content) + 1 + tagLen
	dst = slices.Grow(dst, HeaderLen+n)
	header := len(dst)
	body := header + HeaderLen
	dst = append(dst, byte(ApplicationData), 3, 3, byte(n>>8), byte(n))
	dst = append(append(dst, content...), byte(kind))
	c.aead.Seal(dst[body:body], c.nonceOf(&w.Keys), dst[body:], dst[header:body]) // in place: there is room
	w.number++
	w.sent = min(w.sent+uint32(HeaderLen+n), boostAfter)
	return dst[:body+n]
}

// Follow makes w go on behind another record layer, which has sent flight: whole records, of which
// only the last ones, or none, were sealed with w's key from number 0 on. It returns false if
// flight is something else.
func (w *Writer) Follow(flight []byte) bool {
	if w.Erased() {
		return false
	}
	c := w.Cipher()
	for len(flight) > 0 {
		if len(flight) < HeaderLen {
			return false
		}
		n := HeaderLen + (int(flight[3])<<8 | int(flight[4]))
		if len(flight) < n {
			return false
		}
		body := append([]byte(nil), flight[HeaderLen:n]...)
		_, err := c.aead.Open(body[:0], c.nonceOf(&w.Keys), body, flight[:HeaderLen])
		switch {
		case err == nil:
			w.number++
		case w.number > 0: // a record of the handshake behind one of these
			return false
		}
		flight = flight[n:]
	}
	return true
}

// SealUpdate appends a KeyUpdate that asks nothing of the peer, and goes on to the next keys: w
// needs another Cipher.
func (w *Writer) SealUpdate(c *Cipher, dst []byte) []byte {
	dst = w.Seal(c, dst, Handshake, []byte{24, 0, 0, 1, 0})
	w.update()
	return dst
}
