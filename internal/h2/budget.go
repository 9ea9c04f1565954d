package h2

// A Budget limits how often something may happen: so many times at once, and a rate for ever. The
// zero value has spent nothing.
type Budget struct {
	spent int32 // in thousandths
	at    uint32
}

// Spend takes n, at a time in milliseconds, from a budget of burst that gets rate back each second.
// It reports whether that was there.
func (b *Budget) Spend(n, burst, rate int, now int64) bool {
	if passed := uint32(now) - b.at; int64(passed)*int64(rate) < int64(b.spent) {
		b.spent -= int32(passed) * int32(rate)
	} else {
		b.spent = 0
	}
	b.at = uint32(now)
	b.spent = int32(min(int64(b.spent)+int64(n)*1000, 1<<30))
	return int64(b.spent) <= int64(burst)*1000
}

// Return gives back n of what has been spent.
func (b *Budget) Return(n int) { b.spent = max(0, b.spent-int32(n)*1000) }
