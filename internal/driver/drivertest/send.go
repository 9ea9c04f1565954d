package drivertest

import "github.com/myriad-go/myriad/buf"

var sendCases = []testCase{
	{"BackPressure", backPressure},
	{"BackPressureDoesNotSpin", backPressureDoesNotSpin},
	{"PartialWrites", partialWrites},
	{"SendInsideSent", sendInsideSent},
	{"SharedBlocks", sharedBlocks},
	{"SendMany", sendMany},
	{"SendManyOfManyBlocks", sendManyOfManyBlocks},
	{"EmptySend", emptySend},
	{"HalfClosedByOwner", halfClosedByOwner},
	{"CloseWriteFollowsTheQueue", closeWriteFollowsTheQueue},
	{"CloseWriteTwice", closeWriteTwice},
}

const (
	chunk     = 64 << 10
	pressed   = 256 << 10 // queued bytes at which the peer is held to be stuck
	mostChunk = 64 << 20
)

// press sends until bytes queue up and stay, because the peer does not read. It returns what was
// sent.
func (b *bed) press(c *Conn) []byte {
	b.Helper()
	var sent []byte
	for !b.stuck(c) {
		p := pattern(chunk, byte(len(sent)>>16))
		c.Send(p)
		sent = append(sent, p...)
		b.poll(0)
		if len(sent) > mostChunk || c.Over {
			b.Fatalf("after %d bytes to a peer that does not read, %d are queued: %v", len(sent), c.Left(), c)
		}
	}
	return sent
}

// stuck reports whether what is queued goes nowhere. That a socket is full for a moment is not
// enough: the other one may have room yet, and a kernel that is busy takes its time to carry bytes
// over.
func (b *bed) stuck(c *Conn) bool {
	if c.Left() < pressed {
		return false
	}
	before := c.Left()
	b.settle()
	return c.Left() == before
}

func backPressure(b *bed) {
	b.start()
	p, c := b.connect()
	p.StopReading()
	want := b.press(c)
	b.settle()
	if c.Left() == 0 {
		b.Fatalf("everything was reported sent to a peer that does not read")
	}
	p.Resume()
	b.arrives(p, want)
	b.until("Sent adds up to what was queued", func() bool { return c.Left() == 0 })
	b.settle()
	c.Send([]byte("more"))
	b.arrives(p, append(want, "more"...))
	b.until("Sent adds up to what was queued", func() bool { return c.Left() == 0 })
	b.closed(c)
}

func backPressureDoesNotSpin(b *bed) {
	b.start()
	p, c := b.connect()
	p.StopReading()
	b.press(c)
	b.idles("with output queued")
	b.closed(c)
	p.Resume()
}

func partialWrites(b *bed) {
	b.start()
	p, c := b.connect()
	var want []byte
	for i := range 500 {
		parts := [][]byte{pattern(i*37%4000, byte(i)), pattern(1+i%3, byte(i)), nil}
		for _, part := range parts {
			want = append(want, part...)
		}
		c.Send(parts...)
		if i%50 == 0 {
			b.poll(0)
		}
	}
	b.arrives(p, want)
	b.until("Sent adds up to what was queued", func() bool { return c.Left() == 0 })
	b.closed(c)
}

func sendInsideSent(b *bed) {
	b.start()
	p, c := b.connect()
	p.StopReading()
	want := b.press(c)
	more := 0
	c.OnSent = func(int64) {
		if more++; more <= 20 {
			part := pattern(1000, byte(more))
			want = append(want, part...)
			c.Send(part)
		}
	}
	p.Resume()
	b.until("Sent adds up to what was queued", func() bool { return c.Left() == 0 })
	if more == 0 {
		b.Errorf("no Sent for queued output")
	}
	b.arrives(p, want)
	b.closed(c)
}

func sharedBlocks(b *bed) {
	b.start()
	block := buf.From(pattern(100_000, 3))
	want := append([]byte(nil), block.Bytes()...)
	var peers []Peer
	for range 5 {
		p, c := b.connect()
		var chain buf.Chain
		chain.AppendBlock(block.Retain())
		chain.AppendView(block.Retain(), 10, 20)
		c.SendChain(&chain)
		c.CloseWrite()
		peers = append(peers, p)
	}
	block.Release()
	for _, p := range peers {
		b.until("the peer sees the end", p.Ended)
		b.same("the peer received", p.Received(), append(want, want[10:20]...))
	}
	b.closed(b.k.Accepted...)
}

// sendMany sends batches to many connections. What each of them is sent arrives whole, behind what
// it was sent before. In the same batches are one that is over, one whose peer has gone, and one
// whose peer does not read.
func sendMany(b *bed) {
	b.start()
	if b.k.Capabilities().SendMany == nil {
		return // the driver does without
	}
	const crowd, rounds = 40, 10
	peers, conns := make([]Peer, crowd), make([]*Conn, crowd)
	for i := range crowd {
		peers[i], conns[i] = b.connect()
	}
	b.closed(conns[0])
	gone, stuck := 1, 2
	peers[gone].Reset()
	peers[stuck].StopReading()
	want := make([][]byte, crowd)
	for round := range rounds {
		parts := make([][]byte, crowd)
		for i := range parts {
			size := 1 + (i*131+round*17)%5000
			if i == stuck {
				size = mostChunk / 2 / rounds
			}
			parts[i] = pattern(size, byte(i+round))
			want[i] = append(want[i], parts[i]...)
		}
		b.k.SendMany(conns, parts)
		if more := pattern(100, byte(round)); round%3 == 0 {
			conns[crowd-1].Send(more)
			want[crowd-1] = append(want[crowd-1], more...)
		}
		if round%4 == 0 {
			b.poll(0)
		}
	}
	if conns[stuck].Left() == 0 {
		b.Errorf("%d bytes to a peer that does not read were sent", len(want[stuck]))
	}
	peers[stuck].Resume()
	for i, c := range conns[stuck:] {
		b.arrives(peers[stuck+i], want[stuck+i])
		b.until("Sent adds up to what was queued", func() bool { return c.Left() == 0 })
	}
	b.until("the last event of the one whose peer has gone", func() bool { return conns[gone].Over })
	b.closed(conns[stuck:]...)
}

// What SendMany says is queued the kernel has refused: it is asked to take all blocks, however many
// there are.
func sendManyOfManyBlocks(b *bed) {
	b.start()
	if b.k.Capabilities().SendMany == nil {
		return // the driver does without
	}
	const blocks = 500
	p, c := b.connect()
	chain, want := new(buf.Chain), []byte(nil)
	for i := range blocks {
		part := pattern(10, byte(i))
		chain.AppendBlock(buf.From(part))
		want = append(want, part...)
	}
	b.k.sendManyChains([]*Conn{c}, []*buf.Chain{chain})
	if n := c.Left(); n != 0 {
		b.Errorf("%d of %d bytes are queued on a connection that has room", n, len(want))
	}
	b.arrives(p, want)
	b.closed(c)
}

func emptySend(b *bed) {
	b.start()
	p, c := b.connect()
	if n := c.Send(); n != 0 {
		b.Errorf("Send of nothing queued %d", n)
	}
	b.settle()
	b.exchange(p, c)
	b.closed(c)
}

func halfClosedByOwner(b *bed) {
	b.start()
	p, c := b.connect()
	c.Send([]byte("last words"))
	c.CloseWrite()
	b.until("the peer sees the end", p.Ended)
	b.same("the peer received", p.Received(), []byte("last words"))
	answer := pattern(100_000, 4)
	p.Write(answer)
	p.CloseWrite()
	b.until("Ended", func() bool { return c.Ended })
	b.same("received", c.In, answer)
	b.settle()
	if c.Over {
		b.Errorf("Closed because both sides have ended: the owner closes")
	}
	b.closed(c)
}

func closeWriteFollowsTheQueue(b *bed) {
	b.start()
	p, c := b.connect()
	p.StopReading()
	want := b.press(c)
	c.CloseWrite()
	b.settle()
	p.Resume()
	b.until("the peer sees the end", func() bool { return p.Ended() || p.Err() != nil })
	b.same("the peer received", p.Received(), want)
	b.until("Sent adds up to what was queued", func() bool { return c.Left() == 0 })
	b.closed(c)
}

func closeWriteTwice(b *bed) {
	b.start()
	p, c := b.connect()
	c.CloseWrite()
	c.CloseWrite()
	b.until("the peer sees the end", p.Ended)
	p.Write([]byte("still here"))
	b.receive(c, []byte("still here"))
	b.closed(c)
}
