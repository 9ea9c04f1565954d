package flow

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// take has everything that an Outbox holds, as the loop takes it, in pieces of n bytes.
func take(o *Outbox, n int) (heads []string, data []byte, tail string, end, room bool) {
	for {
		head, ok, last, more := o.NextHead(nil)
		if room = room || more; !ok {
			break
		}
		heads = append(heads, string(head))
		end = end || last
	}
	for {
		p := make([]byte, n)
		k, last, more := o.Cut(p)
		data = append(data, p[:k]...)
		end, room = end || last, room || more
		if k == 0 {
			break
		}
	}
	if t := o.Tail(); t != nil {
		tail, end = string(t), true
	}
	return heads, data, tail, end, room
}

type putter func(head, data string, last bool)

func TestOutboxOrder(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(o *Outbox, put putter)
		want string // heads, data, tail, end
	}{
		{"head alone", func(_ *Outbox, put putter) { put("h", "", true) }, "[h]  true"},
		{"head, not the end", func(_ *Outbox, put putter) { put("h", "", false) }, "[h]  false"},
		{"heads", func(_ *Outbox, put putter) { put("1", "", false); put("22", "abc", true) }, "[1 22] abc true"},
		{"end later", func(_ *Outbox, put putter) { put("h", "a", false); put("", "", true) }, "[h] a true"},
		{"trailers", func(o *Outbox, put putter) { put("h", "a", false); o.End([]byte("t")) }, "[h] at true"},
		{"trailers alone", func(o *Outbox, _ putter) { o.End([]byte("t")) }, "[] t true"},
		{"no trailers", func(o *Outbox, put putter) { put("", "a", false); o.End(nil) }, "[] a true"},
		{"blocks", func(o *Outbox, _ putter) {
			o.PutBlocks(true, buf.From([]byte("ab")), buf.From([]byte("cd")))
		}, "[] abcd true"},
	} {
		for n := 1; n < 4; n++ {
			var o Outbox
			o.Reset(100)
			tt.do(&o, func(head, data string, last bool) {
				var h []byte
				if head != "" {
					h = []byte(head)
				}
				o.Put(h, []byte(data), last)
			})
			heads, data, tail, end, _ := take(&o, n)
			if got := fmt.Sprintf("%v %s%s %v", heads, data, tail, end); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
			if _, _, _, again, _ := take(&o, n); again {
				t.Errorf("%s: the end was taken twice", tt.name)
			}
		}
	}
}

// The end is said with the last piece, not with an empty one behind it.
func TestOutboxEndsWithTheLastPiece(t *testing.T) {
	var o Outbox
	o.Reset(100)
	o.Put([]byte("h"), []byte("abcd"), true)
	if _, _, end, _ := o.NextHead(nil); end {
		t.Error("the head is not the end")
	}
	p := make([]byte, 3)
	if n, end, _ := o.Cut(p); n != 3 || end {
		t.Errorf("first piece: %d bytes, end %v", n, end)
	}
	if n, end, _ := o.Cut(p); n != 1 || !end {
		t.Errorf("last piece: %d bytes, end %v", n, end)
	}
}

func TestOutboxLimit(t *testing.T) {
	put := func(o *Outbox, n int) error { _, err := o.Put(nil, make([]byte, n), false); return err }
	cut := func(o *Outbox, n int) bool { _, _, room := o.Cut(make([]byte, n)); return room }
	var o Outbox
	o.Reset(10)
	if err := put(&o, 25); err != nil {
		t.Errorf("an empty outbox took no Put above its limit: %v", err)
	}
	if err := put(&o, 1); err != ErrFull || o.Queued() != 25 {
		t.Errorf("beyond the limit: %v, %d bytes", err, o.Queued())
	}
	if cut(&o, 19) || !cut(&o, 1) || cut(&o, 1) {
		t.Error("room is to be said once, at half of the limit")
	}
	if err := put(&o, 11); err != ErrFull { // with 4 queued
		t.Errorf("beyond the limit: %v", err)
	}
	if cut(&o, 3) || !cut(&o, 1) {
		t.Error("room for what half of the limit cannot take is to be said when all is sent")
	}
	if err := put(&o, 6); err != nil {
		t.Error(err)
	}
	if _, err := o.PutBlocks(false, buf.From(make([]byte, 5))); err != ErrFull {
		t.Errorf("PutBlocks beyond the limit: %v", err)
	}
	if o.SetLimit(20); put(&o, 5) != nil {
		t.Error("a higher limit has no effect")
	}
	if put(&o, 20) != ErrFull {
		t.Error("no limit")
	}
	broken := errors.New("broken")
	if !o.Fail(broken) || o.Queued() != 0 {
		t.Error("Fail is to drop everything and to let the goroutine go on")
	}
	o.Fail(errors.New("later"))
	if err := put(&o, 1); err != broken {
		t.Errorf("Put after Fail: %v", err)
	}
	if _, err := o.PutBlocks(false, buf.From(make([]byte, 5))); err != broken {
		t.Errorf("PutBlocks after Fail: %v", err)
	}
	if _, err := o.End(nil); err != broken {
		t.Errorf("End after Fail: %v", err)
	}
	o.Reset(10)
	if _, err := o.Put(nil, nil, true); err != nil {
		t.Error(err)
	}
	if _, err := o.Put(nil, nil, true); err != ErrEnded {
		t.Errorf("Put after the end: %v", err)
	}
	if _, err := o.End(nil); err != ErrEnded {
		t.Errorf("End after the end: %v", err)
	}
}

// Put tells once, until the loop looks.
func TestOutboxTells(t *testing.T) {
	var o Outbox
	o.Reset(100)
	if tell, _ := o.Put([]byte("h"), nil, false); !tell {
		t.Error("the first Put does not tell")
	}
	if tell, _ := o.Put(nil, []byte("a"), false); tell {
		t.Error("the second Put tells, too")
	}
	if head, data, end := o.Visit(); !head || data != 1 || end {
		t.Errorf("Visit: %v %d %v", head, data, end)
	}
	if tell, _ := o.End(nil); !tell {
		t.Error("a Put after Visit does not tell")
	}
	if _, _, end := o.Visit(); !end {
		t.Error("Visit does not say that the end is there")
	}
	take(&o, 9)
	if head, data, end := o.Visit(); head || data != 0 || end {
		t.Error("what has been taken is there still")
	}
}

// Many goroutines put, one loop cuts: everything arrives, in each goroutine's order, and none
// waits for ever.
func TestOutboxBetweenGoroutines(t *testing.T) {
	const limit, writers, messages = 100, 3, 2000
	var o Outbox
	o.Reset(limit)
	loop := driver.Process{}.NewParker()
	var mu sync.Mutex
	room := sync.NewCond(&mu)
	rooms := 0
	for id := range writers {
		go func() {
			r := rand.New(rand.NewPCG(uint64(id), 0))
			p := bytes.Repeat([]byte{byte(id)}, 1+r.IntN(150))
			for i := 0; i < messages; {
				mu.Lock()
				before := rooms
				mu.Unlock()
				tell, err := o.Put(nil, p, false)
				if tell {
					loop.Unpark()
				}
				if err == nil {
					i++
					p = bytes.Repeat(p[:1], 1+r.IntN(150))
					continue
				}
				mu.Lock()
				for rooms == before {
					room.Wait()
				}
				mu.Unlock()
			}
		}()
	}
	want := 0
	for id := range writers {
		r := rand.New(rand.NewPCG(uint64(id), 0))
		for range messages {
			want += 1 + r.IntN(150)
		}
	}
	got := 0
	for p := make([]byte, 37); got < want; {
		o.Visit()
		n, _, more := o.Cut(p)
		if got += n; more {
			mu.Lock()
			rooms++
			room.Broadcast()
			mu.Unlock()
		}
		if n == 0 && got < want {
			loop.Park()
		}
	}
}
