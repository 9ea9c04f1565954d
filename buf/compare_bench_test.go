package buf

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
)

// These benchmarks do the same work with the alternatives: a new or pooled bytes.Buffer, and a
// sync.Pool of slices of one size. Compare the lines of one benchmark.

var sizes = []int{256, 4 << 10, 64 << 10, 1 << 20}

// Get memory for a message, fill it and release it.
func BenchmarkTakeFillReturn(b *testing.B) {
	for _, size := range sizes {
		p := pattern(size, 1)
		run := func(name string, f func()) {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					f()
				}
			})
		}
		slices := sync.Pool{New: func() any { p := make([]byte, size); return &p }}
		buffers := sync.Pool{New: func() any { return new(bytes.Buffer) }}
		run("Block", func() { From(p).Release() })
		run("sync.Pool", func() {
			q := slices.Get().(*[]byte)
			copy(*q, p)
			slices.Put(q)
		})
		run("pooled_bytes.Buffer", func() {
			w := buffers.Get().(*bytes.Buffer)
			w.Reset()
			w.Write(p)
			buffers.Put(w)
		})
		run("bytes.Buffer", func() { new(bytes.Buffer).Write(p) })
	}
}

// Queue 512 small writes, and drain them 8 KiB at a time as a kernel would.
func BenchmarkQueue64KAndDrain(b *testing.B) {
	const slice = 8 << 10
	buffers := sync.Pool{New: func() any { return new(bytes.Buffer) }}
	drainBuffer := func(w *bytes.Buffer) {
		for range 512 {
			w.Write(message)
		}
		for w.Len() > 0 {
			w.Next(slice)
		}
	}
	for _, tt := range []struct {
		name string
		f    func()
	}{
		{"Chain", func() {
			c := GetChain()
			for range 512 {
				c.Append(message)
			}
			for c.Len() > 0 {
				c.Discard(min(slice, c.Len()))
			}
			c.Put()
		}},
		{"pooled_bytes.Buffer", func() {
			w := buffers.Get().(*bytes.Buffer)
			w.Reset()
			drainBuffer(w)
			buffers.Put(w)
		}},
		{"bytes.Buffer", func() { drainBuffer(new(bytes.Buffer)) }},
	} {
		b.Run(tt.name, func(b *testing.B) {
			b.SetBytes(512 * int64(len(message)))
			b.ReportAllocs()
			for b.Loop() {
				tt.f()
			}
		})
	}
}

// Queue one message of 4 KiB on 1000 queues, by reference or by copy.
func BenchmarkBroadcast1000(b *testing.B) {
	p := pattern(4<<10, 1)
	b.Run("Chain", func(b *testing.B) {
		queues := make([]Chain, 1000)
		b.ReportAllocs()
		for b.Loop() {
			block := From(p)
			for i := range queues {
				queues[i].AppendBlock(block.Retain())
			}
			block.Release()
			for i := range queues {
				queues[i].Release()
			}
		}
	})
	b.Run("bytes.Buffer", func(b *testing.B) {
		queues := make([]bytes.Buffer, 1000) // they keep their memory
		b.ReportAllocs()
		for b.Loop() {
			for i := range queues {
				queues[i].Write(p)
			}
			for i := range queues {
				queues[i].Reset()
			}
		}
	})
}
