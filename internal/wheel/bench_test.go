package wheel

import "testing"

// What a busy connection pays for each message.
func BenchmarkMoveLater(b *testing.B) {
	w := New(0)
	for id := range uint32(20_000) {
		w.Set(id, 60_000)
	}
	at, id := int64(60_000), uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		at++
		id = (id + 7919) % 20_000
		w.Set(id, at)
	}
}

func BenchmarkSetAndClear(b *testing.B) {
	w := New(0)
	for id := range uint32(20_000) {
		w.Set(id, 60_000+int64(id))
	}
	id := uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		id = (id + 7919) % 20_000
		w.Clear(id)
		w.Set(id, 60_000+int64(id))
	}
}

// A second of 20,000 connections that are all idle for a minute and then armed again.
func BenchmarkIdleSecond(b *testing.B) {
	w := New(0)
	for id := range uint32(20_000) {
		w.Set(id, int64(id)*3)
	}
	now := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		for end := now + 1000; now < end; {
			now, _ = w.Next()
			w.Advance(now, func(id uint32) { w.Set(id, now+60_000) })
		}
	}
}
