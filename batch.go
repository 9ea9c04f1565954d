package myriad

// A batch is a list that is taken up piece by piece.
type batch[T any] struct {
	list []T
	next int
}

// A relay is a batch with what gathers for the next one.
type relay[T any] struct {
	batch[T]
	coming []T
}

func (r *relay[T]) add(piece T) { r.coming = append(r.coming, piece) }

// gathers reports whether there is something for the next batch.
func (r *relay[T]) gathers() bool { return len(r.coming) > 0 }

// renew takes up what has gathered, unless something is left of what was taken up before.
func (r *relay[T]) renew() { r.refill(&r.coming) }

// take returns the next piece. False: it was the last, and the list's room can be used again.
func (b *batch[T]) take() (piece T, ok bool) {
	var none T
	if b.next == len(b.list) {
		b.list, b.next = b.list[:0], 0
		return none, false
	}
	piece, b.list[b.next] = b.list[b.next], none
	b.next++
	return piece, true
}

func (b *batch[T]) empty() bool { return b.next == len(b.list) }

// refill takes *list up and leaves the room of the last one in its place, unless something is left
// of that.
func (b *batch[T]) refill(list *[]T) {
	if b.empty() {
		b.list, *list, b.next = *list, b.list[:0], 0
	}
}
