package enginetest

import (
	"bytes"
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
)

// fill writes until all buffers are full, because the peer does not read.
func fill(t testing.TB, c *myriad.Conn, p []byte) (sum int) {
	t.Helper()
	for range 1 << 20 {
		n, err := c.Write(p)
		if err == nil && n == len(p) {
			sum += n
			continue
		}
		if !errors.Is(err, myriad.ErrFull) || n != 0 {
			t.Fatalf("Write: %d, %v", n, err)
		}
		if c.Queued() >= 32<<10 {
			return sum
		}
	}
	t.Fatal("no end of room")
	return 0
}

func TestFullAndDrained(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		drained := make(chan int, 10_000)
		h.drained = func(c *myriad.Conn) { drained <- c.Queued() }
		const limit, piece = 64 << 10, 8 << 10
		nc := s.one(t, myriad.Config{WriteLimit: limit}, h)
		c := await(t, "Opened", h.opens)
		sum := fill(t, c, pattern(piece))
		if q := c.Queued(); q > limit {
			t.Errorf("%d bytes queued, the limit is %d", q, limit)
		}
		// Between two of them the queue goes from where there is no room for a piece to its low
		// mark.
		if n, most := len(drained), sum/(limit/2-piece); n > most {
			t.Errorf("Drained %d times, and there can have been room %d times at most", n, most)
		}
		for { // the kernel may find room for some more
			n, err := c.Write(make([]byte, limit))
			if sum += n; err == myriad.ErrFull {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if n, err := io.CopyN(io.Discard, nc, int64(sum)); err != nil {
			t.Fatalf("%d of %d bytes came: %v", n, sum, err)
		}
		eventually(t, "the queue is empty", func() bool { return c.Queued() == 0 })
		onLoop(t, c, func() {})
		onLoop(t, c, func() {})
		if len(drained) == 0 {
			t.Error("no Drained after ErrFull")
		}
		for len(drained) > 0 {
			if q := <-drained; q > limit/2 {
				t.Errorf("Drained with %d bytes queued, the low mark is %d", q, limit/2)
			}
		}
		onLoop(t, c, func() {})
		onLoop(t, c, func() {})
		if len(drained) != 0 {
			t.Errorf("Drained again without another ErrFull")
		}
	})
}

// What a handler flushes counts no more, as far as the kernel takes it: it may write more than the
// limit in one callback.
func TestFlush(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		const limit, piece, pieces = 4 << 10, 1 << 10, 40
		nc := s.one(t, myriad.Config{WriteLimit: limit}, h)
		c := await(t, "Opened", h.opens)
		if c.Flush() {
			t.Error("Flush off the loop says that it has flushed")
		}
		onLoop(t, c, func() {
			for i := range pieces {
				_, err := c.Write(pattern(piece))
				if errors.Is(err, myriad.ErrFull) && c.Buffered() > 0 {
					if !c.Flush() || c.Buffered() != 0 {
						t.Errorf("Flush has left %d bytes", c.Buffered())
					}
					_, err = c.Write(pattern(piece))
				}
				if err != nil {
					t.Errorf("piece %d: %v, %d bytes are queued", i, err, c.Queued())
				}
			}
		})
		if _, err := io.CopyN(io.Discard, nc, piece*pieces); err != nil {
			t.Error(err)
		}
	})
}

// A write above the limit is refused while anything is queued. Drained must then wait until nothing
// is, or handler and loop would ask each other without end.
func TestDrainedDoesNotSpin(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		var big []byte
		var calls atomic.Int32
		wrote := make(chan bool, 1)
		try := func(c *myriad.Conn) {
			if _, err := c.Write(big); err == nil {
				wrote <- true
			}
		}
		h.drained = func(c *myriad.Conn) { calls.Add(1); try(c) }
		nc := s.one(t, myriad.Config{MaxWrite: 64 << 20}, h)
		c := await(t, "Opened", h.opens)
		const first = 24 << 20 // more than the kernel takes, however its buffers grow
		if _, err := c.Write(make([]byte, first)); err != nil {
			t.Fatal(err)
		}
		onLoop(t, c, func() {})
		onLoop(t, c, func() {
			limit := 2*c.Queued() + 2 // what is queued is below its low mark
			c.SetWriteLimit(limit)
			big = make([]byte, limit)
			try(c)
		})
		for range 100 {
			onLoop(t, c, func() {})
		}
		if n := calls.Load(); n > 0 {
			t.Errorf("Drained %d times without room", n)
		}
		const some = 1 << 20
		for left := int64(first + len(big)); left > 0; {
			_ = nc.SetDeadline(time.Now().Add(patience)) // for some of so many bytes
			n, err := io.CopyN(io.Discard, nc, min(left, some))
			if left -= n; err != nil {
				t.Fatalf("%d bytes have not come: %v", left, err)
			}
		}
		await(t, "the write", wrote)
		if n := calls.Load(); n != 1 {
			t.Errorf("Drained %d times for one write", n)
		}
	})
}

// A writer on another goroutine gets Drained, whatever the loop is doing when ErrFull is given.
func TestDrainedIsNeverLost(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		room := make(chan struct{}, 1)
		h.drained = func(*myriad.Conn) {
			select {
			case room <- struct{}{}:
			default:
			}
		}
		nc := s.one(t, myriad.Config{WriteLimit: 2000}, h)
		c := await(t, "Opened", h.opens)
		const sum = 4_000_000
		go func() {
			for p := pattern(sum); len(p) > 0; {
				n := min(len(p), 1000)
				if _, err := c.Write(p[:n]); err == myriad.ErrFull {
					await(t, "Drained", room)
				} else if err != nil {
					t.Errorf("Write: %v", err)
					return
				} else {
					p = p[n:]
				}
			}
			c.CloseWrite()
		}()
		expectEnd(t, nc, pattern(sum))
	})
}

func TestMaxWrite(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		nc := s.one(t, myriad.Config{MaxWrite: 200_000, WriteLimit: 10_000}, h)
		c := await(t, "Opened", h.opens)
		if n, err := c.Write(make([]byte, 200_001)); n != 0 || !errors.Is(err, myriad.ErrTooLarge) {
			t.Errorf("Write above MaxWrite: %d, %v", n, err)
		}
		if _, err := c.Write(pattern(200_000)); err != nil {
			t.Errorf("Write of MaxWrite into an empty queue: %v", err)
		}
		expect(t, nc, pattern(200_000))
		c.SetWriteLimit(5)
		eventually(t, "the queue is empty", func() bool { return c.Queued() == 0 })
		var first, second error
		onLoop(t, c, func() { // nothing leaves before this function returns
			_, first = c.Write([]byte("123"))
			_, second = c.Write([]byte("456"))
		})
		if first != nil || second != myriad.ErrFull {
			t.Errorf("SetWriteLimit(5): %v then %v", first, second)
		}
		expect(t, nc, []byte("123"))
	})
}

// What is too large is refused before anything is made of it, also by a layer, for which blocks are
// joined.
func TestTooManyBlocks(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		buf.CheckLeaks(t)
		h := newProbe()
		s.one(t, myriad.Config{}, h)
		c := await(t, "Opened", h.opens)
		block := buf.Get(1 << 20)
		block.Commit(block.Free())
		defer block.Release()
		many := make([]*buf.Block, 1+buf.MaxBlock/block.Len())
		for i := range many {
			many[i] = block.Retain()
		}
		if err := c.WriteBlocks(many...); !errors.Is(err, myriad.ErrTooLarge) {
			t.Errorf("WriteBlocks of more than a block can hold: %v", err)
		}
	})
}

// A MaxWrite that is to say "any" is 1 GiB: a layer is told of twice as much room.
func TestLargestMaxWrite(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		nc := s.one(t, myriad.Config{MaxWrite: math.MaxInt, WriteLimit: math.MaxInt}, h)
		if _, err := await(t, "Opened", h.opens).Write([]byte("small")); err != nil {
			t.Fatal(err)
		}
		expect(t, nc, []byte("small"))
	})
}

// One block on many conns, some of which end before it is sent: every reference is given back.
func TestSharedBlocks(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		buf.CheckLeaks(t)
		h := newProbe()
		e := start(t, myriad.Config{})
		ln := s.listen(t, e, h)
		shared := buf.From(pattern(50_000))
		var peers sync.WaitGroup
		const n = 40
		for i := range n {
			nc := s.dial(t, ln)
			c := await(t, "Opened", h.opens)
			if err := c.WriteBlocks(shared.Retain(), buf.From([]byte("tail"))); err != nil {
				t.Fatal(err)
			}
			if i%4 == 0 {
				c.Abort(nil)
				if err := c.WriteBlocks(shared.Retain()); err != myriad.ErrClosed {
					t.Errorf("WriteBlocks after Abort: %v", err)
				}
				continue
			}
			c.Close()
			peers.Go(func() {
				expectEnd(t, nc, append(pattern(50_000), "tail"...))
				nc.Close()
			})
		}
		peers.Wait()
		shared.Release()
		for range n {
			await(t, "Closed", h.closes)
		}
	})
}

func TestWritesOfOneCallbackKeepOrder(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		h.received = func(c *myriad.Conn, p []byte) {
			for i := range p {
				c.Write(p[i : i+1])
			}
			_ = c.WriteBlocks(buf.From([]byte("|")), buf.From(bytes.ToUpper(p)))
			c.Write([]byte("!"))
		}
		nc := s.one(t, myriad.Config{}, h)
		send(t, nc, []byte("ordnung"))
		got := make([]byte, 1)
		all := ""
		for all == "" || all[len(all)-1] != '!' || len(all) < 16 {
			if _, err := nc.Read(got); err != nil {
				t.Fatalf("after %q: %v", all, err)
			}
			all += string(got)
		}
		want := map[bool]string{true: "ordnung|ORDNUNG!", false: "ord|ORD!nung|NUNG!"}[!s.layered]
		if all != want {
			t.Errorf("got %q, want %q", all, want)
		}
	})
}
