package h2

// kinds is how many kinds of things Budgets limit.
const kinds = 3

// Budgets limit how often things of several kinds may happen: each kind so many times at once, and
// at a rate for ever. Their clock is shared, because a connection has them while it is idle. The
// zero value has spent nothing.
type Budgets struct {
	spent [kinds]int32 // in thousandths
	at    uint32
}

// A Limit is that of one kind: Burst at once, and Rate for each second.
type Limit struct{ Burst, Rate int }

// Limits are those of all kinds.
type Limits [kinds]Limit

// MaxBurst is the largest Burst.
const MaxBurst = 1<<30/1000 - 1

// Spend takes n of a kind, at a time in milliseconds. It reports whether that was there.
func (b *Budgets) Spend(kind, n int, limits *Limits, now int64) bool {
	b.pass(limits, now)
	b.spent[kind] = int32(min(int64(b.spent[kind])+int64(n)*1000, 1<<30))
	return int64(b.spent[kind]) <= int64(limits[kind].Burst)*1000
}

// pass gives back what the time since the last call is worth.
func (b *Budgets) pass(limits *Limits, now int64) {
	passed := uint32(now) - b.at
	if passed == 0 {
		return
	}
	b.at = uint32(now)
	for i := range b.spent {
		if back := int64(passed) * int64(limits[i].Rate); back < int64(b.spent[i]) {
			b.spent[i] -= int32(back)
		} else {
			b.spent[i] = 0
		}
	}
}

// Return gives back n of what has been spent of a kind.
func (b *Budgets) Return(kind, n int) { b.spent[kind] = max(0, b.spent[kind]-int32(n)*1000) }
