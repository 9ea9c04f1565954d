package workers

// A ring is a first-in, first-out queue. It grows by doubling. Its owner bounds its length.
type ring[T any] struct {
	slots []T // a power of two
	head  int
	n     int
}

const (
	firstRing = 8
	keptRing  = 1024 // slots that an empty ring keeps after trim
)

func (r *ring[T]) push(v T) {
	if r.n == len(r.slots) {
		r.grow()
	}
	r.slots[(r.head+r.n)&(len(r.slots)-1)] = v
	r.n++
}

func (r *ring[T]) pop() T {
	var none T
	v := r.slots[r.head]
	r.slots[r.head] = none
	r.head = (r.head + 1) & (len(r.slots) - 1)
	r.n--
	return v
}

// first returns the next element of pop. The ring must not be empty.
func (r *ring[T]) first() *T { return &r.slots[r.head] }

func (r *ring[T]) grow() {
	slots := make([]T, max(firstRing, 2*len(r.slots)))
	n := copy(slots, r.slots[r.head:])
	copy(slots[n:], r.slots[:r.head])
	r.slots, r.head = slots, 0
}

// trim releases the memory of a burst.
func (r *ring[T]) trim() {
	if r.n == 0 && len(r.slots) > keptRing {
		*r = ring[T]{}
	}
}
