package drivertest

import (
	"sync"
	"sync/atomic"
	"time"
)

var wakeCases = []testCase{
	{"WakeBeforePoll", wakeBeforePoll},
	{"WakeIsNotLost", wakeIsNotLost},
	{"WakeHammer", wakeHammer},
	{"WakeAfterShutdown", wakeAfterShutdown},
	{"PollWaits", pollWaits},
}

// wakeLimit is the real time after which a wake is held to be lost: the whole process may be held
// up for some.
const wakeLimit = 30 * time.Second

func wakeBeforePoll(b *bed) {
	b.start()
	defer b.rescue()()
	for range 100 {
		b.k.Wake()
		b.k.Wake()
		b.k.Poll(-1)
	}
}

// rescue ends a Poll that waits for a wake which was lost: by a connection, as wakes cannot be
// trusted.
func (b *bed) rescue() (stop func()) {
	late := time.AfterFunc(wakeLimit, func() {
		b.Errorf("a wake was lost: Poll(-1) has waited for %v", wakeLimit)
		b.h.Dial(b.listener.Addr())
	})
	return func() { late.Stop() }
}

// Each wake is answered before the next one, so that each must end a wait of its own.
func wakeIsNotLost(b *bed) {
	b.start()
	const rounds = 2000
	var posted atomic.Int64
	ack, done := make(chan struct{}), make(chan struct{})
	var waker sync.WaitGroup
	defer waker.Wait()
	defer close(done)
	waker.Go(func() {
		for range rounds {
			posted.Add(1)
			b.k.Wake()
			select {
			case <-ack:
			case <-done:
				return
			}
		}
	})
	for seen := int64(0); seen < rounds && !b.Failed(); seen++ {
		stop := b.rescue()
		for posted.Load() == seen && !b.Failed() {
			b.k.Poll(-1)
		}
		stop()
		select {
		case ack <- struct{}{}:
		case <-time.After(wakeLimit):
			b.Fatalf("the waker has not returned from Wake for %v", wakeLimit)
		}
	}
}

func wakeHammer(b *bed) {
	b.start()
	const wakers, each = 4, 5000
	var posted atomic.Int64
	var work sync.WaitGroup
	for range wakers {
		work.Go(func() {
			for range each {
				posted.Add(1)
				b.k.Wake()
			}
		})
	}
	defer work.Wait()
	stop := b.rescue()
	for posted.Load() < wakers*each && !b.Failed() {
		b.k.Poll(-1)
	}
	stop()
}

func wakeAfterShutdown(b *bed) {
	b.start()
	d := b.k.Driver
	b.k.Shutdown()
	var work sync.WaitGroup
	for range 4 {
		work.Go(d.Wake)
	}
	work.Wait()
}

func pollWaits(b *bed) {
	b.start()
	b.settle()
	b.idles("with nothing but a listener")
	_, c := b.connect()
	b.idles("with an idle connection")
	b.closed(c)
	b.idles("after everything")
}
