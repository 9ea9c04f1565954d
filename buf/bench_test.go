package buf

import (
	"bytes"
	"sync"
	"testing"
)

var message = pattern(128, 1)

// One queued write: the cost for a connection whose socket accepts it at once.
func BenchmarkQueueAndSend(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		c := GetChain()
		c.Append(message)
		c.Discard(len(c.First()))
		c.Put()
	}
}

func BenchmarkQueueAndSendParallel(b *testing.B) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c := GetChain()
			c.Append(message)
			c.Discard(len(c.First()))
			c.Put()
		}
	})
}

func BenchmarkQueueSharedBlock(b *testing.B) {
	block := From(message)
	defer block.Release()
	b.ReportAllocs()
	for b.Loop() {
		c := GetChain()
		c.AppendBlock(block.Retain())
		c.Discard(len(c.First()))
		c.Put()
	}
}

func BenchmarkGetAndRelease(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Get(4096).Release()
	}
}

func BenchmarkAppend64KInSmallWrites(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		c := GetChain()
		for range 512 {
			c.Append(message)
		}
		c.Put()
	}
}

func BenchmarkBytesBuffer(b *testing.B) {
	var pool = sync.Pool{New: func() any { return new(bytes.Buffer) }}
	b.ReportAllocs()
	for b.Loop() {
		w := pool.Get().(*bytes.Buffer)
		w.Write(message)
		w.Next(len(w.Bytes()))
		w.Reset()
		pool.Put(w)
	}
}

func BenchmarkBarePool(b *testing.B) {
	var pool = sync.Pool{New: func() any { p := make([]byte, 4096); return &p }}
	b.ReportAllocs()
	for b.Loop() {
		p := pool.Get().(*[]byte)
		pool.Put(p)
	}
}
