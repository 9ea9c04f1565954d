package wheel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestRandomOpsMatchModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		if err := play(1500, func() uint32 { return r.Uint32() }); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func FuzzWheel(f *testing.F) {
	f.Add([]byte{1, 2, 3, 250, 4, 5, 6, 7, 200, 9, 9, 9, 9, 9, 9, 9})
	f.Fuzz(func(t *testing.T, script []byte) {
		script = script[:min(len(script), 4000)]
		next := func() (v uint32) {
			for range 4 {
				if len(script) > 0 {
					v, script = v<<8|uint32(script[0]), script[1:]
				}
			}
			return v
		}
		if err := play(len(script)/8, next); err != nil {
			t.Fatal(err)
		}
	})
}

// A model is the obvious thing: a due time for each armed slot.
type model struct {
	w    *Wheel
	due  map[uint32]int64
	now  int64
	next func() uint32
	err  error
}

// play drives a wheel and the model with the same random operations and says where they part.
func play(steps int, next func() uint32) error {
	start := int64(int32(next()))
	m := &model{w: New(start), due: map[uint32]int64{}, now: start, next: next}
	for i := 0; i < steps && m.err == nil; i++ {
		switch op := next() % 10; {
		case op < 7:
			m.change()
		default:
			m.advance(op == 9)
		}
		m.checkNext()
	}
	m.now += 1 << 45
	for i := 0; i < 50 && len(m.due) > 0; i++ { // fire may arm again
		m.advance(false)
	}
	return m.err
}

// change sets or clears some slot, near or far, early or late, and says which.
func (m *model) change() (id uint32) {
	id = m.next() % 40
	if m.next()%5 == 0 {
		m.w.Clear(id)
		delete(m.due, id)
		return id
	}
	at := m.now + int64(m.next()>>(m.next()%32)) - 20
	m.w.Set(id, at)
	m.due[id] = at
	return id
}

// advance moves by a random time, or exactly to Next, and holds each firing against the model.
func (m *model) advance(toNext bool) {
	m.now += int64(m.next() >> (m.next() % 32))
	if at, ok := m.w.Next(); toNext && ok {
		m.now = max(m.now, at)
	}
	armedNow := map[uint32]bool{}
	at, armed := m.w.Next()
	since, due := m.w.Due(m.now)
	if due != (armed && at <= m.now) || due && since != at {
		m.fail("Next %d, %v; Due at %d: since %d, %v", at, armed, m.now, since, due)
	}
	if !due && m.next()%2 == 0 {
		return // Advance would do nothing
	}
	m.w.Advance(m.now, func(id uint32) {
		at, armed := m.due[id]
		if !armed || at > m.now || armedNow[id] {
			m.fail("slot %d fired at %d: armed %v for %d, set during this Advance %v", id, m.now, armed, at,
				armedNow[id])
		}
		delete(m.due, id)
		if m.next()%3 == 0 {
			armedNow[m.change()] = true
		}
	})
	for id, at := range m.due {
		if at+Tick <= m.now && !armedNow[id] {
			m.fail("slot %d was due at %d and had not fired at %d", id, at, m.now)
		}
	}
}

func (m *model) checkNext() {
	at, ok := m.w.Next()
	if m.w.Len() != len(m.due) || ok != (len(m.due) > 0) {
		m.fail("Len %d, Next %v, want %d armed", m.w.Len(), ok, len(m.due))
	}
	for id, due := range m.due {
		if at > max(due, m.now)+Tick {
			m.fail("slot %d is due at %d, Next says %d", id, due, at)
		}
	}
}

func (m *model) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}
