package workers

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
)

func nothing() {}

func newBench(b *testing.B) *Pool {
	p := New(Config{})
	b.Cleanup(func() { p.Close(context.Background()) })
	b.ReportAllocs()
	return p
}

func BenchmarkGo(b *testing.B) {
	p := newBench(b)
	for b.Loop() {
		p.Go(context.Background(), nothing)
	}
}

func BenchmarkGoQueue1000(b *testing.B) {
	p := New(Config{Workers: 1000, Queue: 1000})
	defer p.Close(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		p.Go(context.Background(), nothing)
	}
}

func BenchmarkGoEightProducers(b *testing.B) {
	p := newBench(b)
	b.SetParallelism(4) // with two processors
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p.Go(context.Background(), nothing)
		}
	})
}

// One task at a time, with a wait for its end: the cost for a single request.
func BenchmarkRoundTrip(b *testing.B) {
	p := newBench(b)
	back := make(chan struct{}, 1)
	f := func() { back <- struct{}{} }
	for b.Loop() {
		p.TryGo(f)
		<-back
	}
}

func BenchmarkTryGoAll64(b *testing.B) {
	p := newBench(b)
	var left atomic.Int64
	back := make(chan struct{}, 1)
	batch := make([]func(), 64)
	for i := range batch {
		batch[i] = func() {
			if left.Add(-1) == 0 {
				back <- struct{}{}
			}
		}
	}
	for i := 0; i < b.N; i += len(batch) {
		left.Store(int64(len(batch)))
		p.TryGoAll(batch)
		<-back
	}
}

func BenchmarkGoStatement(b *testing.B) {
	var all sync.WaitGroup
	b.ReportAllocs()
	for b.Loop() {
		all.Add(1)
		go all.Done()
	}
	all.Wait()
}

func BenchmarkChannelToFixedWorkers(b *testing.B) {
	tasks := make(chan func(), 1000)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for f := range tasks {
				f()
			}
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		tasks <- nothing
	}
	close(tasks)
	all.Wait()
}

// Eight keys from one producer; each is nearly always busy.
func BenchmarkKeyed(b *testing.B) {
	p := newBench(b)
	k := NewKeyed[int](p, KeyedConfig{Backlog: 1024})
	for i := 0; b.Loop(); i++ {
		k.Go(context.Background(), i&7, nothing)
	}
}

// A new key for each task, whose queue is created and removed for it.
func BenchmarkKeyedFresh(b *testing.B) {
	p := newBench(b)
	k := NewKeyed[int](p, KeyedConfig{})
	for i := 0; b.Loop(); i++ {
		k.Go(context.Background(), i, nothing)
	}
}

func BenchmarkFuture(b *testing.B) {
	p := newBench(b)
	f := func(context.Context) (int, error) { return 1, nil }
	for b.Loop() {
		Submit(context.Background(), p, f).Wait(context.Background())
	}
}

// A job of a queue that handles up to 64 at once.
func BenchmarkQueue(b *testing.B) {
	q := NewQueue(QueueConfig[int]{Pool: newBench(b), Batch: 64, Handle: func(context.Context,
		[]int) error {
		return nil
	}})
	for i := 0; b.Loop(); i++ {
		q.Put(context.Background(), i)
	}
	q.Close(context.Background())
}
