package drivertest

import "encoding/binary"

var loadCases = []testCase{
	{"ManyConnects", manyConnects},
	{"FirehoseAndTrickle", firehoseAndTrickle},
	{"Churn", churn},
}

func manyConnects(b *bed) {
	b.start()
	most := room()
	for n := scale(); n > 0; n -= most {
		b.manyAtOnce(min(n, most))
	}
}

// manyAtOnce connects n peers, reads a number from each, answers with it, and closes them all.
func (b *bed) manyAtOnce(n int) {
	b.Helper()
	b.k.Accepted = nil
	peers := make([]Peer, n)
	for i := range peers {
		peers[i] = b.h.Dial(b.listener.Addr())
		peers[i].Write(binary.BigEndian.AppendUint32(nil, uint32(i)))
		if i%50 == 49 {
			b.until("accepting keeps up", func() bool { return len(b.k.Accepted) > i-100 })
		}
	}
	b.until("all are accepted", func() bool { return len(b.k.Accepted) == n })
	answered := make([]bool, n)
	count := 0
	answer := func(c *Conn) {
		if len(c.In) == 4 && !answered[binary.BigEndian.Uint32(c.In)] {
			answered[binary.BigEndian.Uint32(c.In)] = true
			count++
			c.Send(c.In)
		}
	}
	for _, c := range b.k.Accepted {
		c.OnReceived = func([]byte) { answer(c) }
		answer(c)
	}
	b.until("all are heard", func() bool { return count == n })
	for i, p := range peers {
		b.arrives(p, binary.BigEndian.AppendUint32(nil, uint32(i)))
	}
	b.closed(b.k.Accepted...)
	for _, p := range peers {
		b.until("the peer sees the end", func() bool { return p.Ended() || p.Err() != nil })
		p.Close()
	}
}

// Four peers send without end, one asks a little question now and then. Its questions must be
// heard.
func firehoseAndTrickle(b *bed) {
	b.start()
	var hoses []Peer
	for range 4 {
		p, c := b.connect()
		hoses = append(hoses, p)
		c.OnReceived = func([]byte) { c.In = c.In[:0] }
	}
	trickle, c := b.connect()
	water := pattern(chunk, 1)
	for i := range 50 {
		trickle.Write([]byte{byte(i)})
		polls := 0
		b.until("the trickle is heard", func() bool {
			for _, p := range hoses {
				for p.Unsent() < 4*chunk {
					p.Write(water)
				}
			}
			polls++
			return len(c.In) == i+1
		})
	}
	for _, p := range hoses {
		p.Reset()
	}
	for _, other := range b.k.Accepted[:4] {
		b.over(other, true)
	}
	b.closed(c)
}

// Connections come and go in all ways at once, and those that stay lose nothing.
func churn(b *bed) {
	b.start()
	steady, c := b.connect()
	var want []byte
	for i := range 100 {
		p := b.h.Dial(b.listener.Addr())
		p.Write(pattern(i*10, byte(i)))
		part := pattern(i*13%500, byte(i))
		steady.Write(part)
		want = append(want, part...)
		b.poll(0)
		switch i % 5 {
		case 0:
			p.Close()
		case 1:
			b.until("the peer is connected", p.Open)
			p.Reset()
		case 2:
			b.k.Accepted[len(b.k.Accepted)-1].endUnless(c, (*Conn).Close)
		case 3:
			b.k.Accepted[len(b.k.Accepted)-1].endUnless(c, (*Conn).Abort)
		default:
			p.CloseWrite()
		}
	}
	b.receive(c, want)
	b.settle()
	for _, other := range b.k.Accepted {
		other.endUnless(c, (*Conn).Close)
	}
	b.until("all others are over", func() bool {
		for _, other := range b.k.Accepted {
			if other != c && !other.Over {
				other.endUnless(c, (*Conn).Close)
				return false
			}
		}
		return true
	})
	b.continues(steady, c, want)
	b.closed(c)
}

func (c *Conn) endUnless(keep *Conn, end func(*Conn)) {
	if c != keep && !c.Over {
		end(c)
	}
}

// continues shows that c, which has received what is given, is alive.
func (b *bed) continues(p Peer, c *Conn, already []byte) {
	b.Helper()
	p.Write([]byte("and the last"))
	b.receive(c, append(already, "and the last"...))
}
