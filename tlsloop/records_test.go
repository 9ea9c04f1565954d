package tlsloop_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// ticketless keeps a server from sending anything by itself.
func ticketless() *tls.Config {
	cfg := serverConfig()
	cfg.SessionTicketsDisabled = true
	return cfg
}

func echoPeer(t *testing.T) (*recordPeer, *probe) {
	t.Helper()
	h := echo()
	return newRecordPeer(t, listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(h)))), h
}

// A stream of records, one of them a KeyUpdate that wants an answer, cut in two at every byte.
func TestEveryCut(t *testing.T) {
	p, _ := echoPeer(t)
	stream := func() []byte {
		return bytes.Join([][]byte{
			p.seal(recordApplication, "one", 0), p.seal(recordApplication, "", 0), p.seal(recordApplication, "two", 7),
			p.keyUpdate(1), p.seal(recordApplication, "three", 0), p.keyUpdate(0), p.seal(recordApplication, "4", 0),
		}, nil)
	}
	cuts := len(stream())
	p, _ = echoPeer(t)
	for cut := 1; cut < cuts; cut++ {
		whole := stream()
		p.write(whole[:cut])
		if cut%8 == 0 {
			time.Sleep(200 * time.Microsecond) // most cuts are seen as such without; none has to be for the result
		}
		p.write(whole[cut:])
		p.expect("onetwothree4")
	}
}

// One byte at a time, and a KeyUpdate in two records.
func TestByteByByte(t *testing.T) {
	p, _ := echoPeer(t)
	text := pattern(3000)
	half := []byte{24, 0, 0, 1, 1}
	records := bytes.Join([][]byte{p.seal(recordApplication, text, 100), p.seal(recordHandshake, string(half[:2]), 0),
		p.seal(recordHandshake, string(half[2:]), 0)}, nil)
	p.out.update()
	records = append(records, p.seal(recordApplication, "end", 0)...)
	_ = p.Conn.(*net.TCPConn).SetNoDelay(true)
	go func() {
		for i := range records {
			p.Conn.Write(records[i : i+1])
		}
	}()
	p.expect(text + "end")
}

// A thousand records in one write, and several of the largest.
func TestManyRecords(t *testing.T) {
	p, _ := echoPeer(t)
	var records [][]byte
	for range 1000 {
		records = append(records, p.seal(recordApplication, "x", 0))
	}
	p.write(records...)
	p.expect(strings.Repeat("x", 1000))
	large := pattern(16 << 10)
	go p.write(p.seal(recordApplication, large, 0), p.seal(recordApplication, large, 0),
		p.seal(recordApplication, large, 0))
	p.expect(large + large + large)
}

// Both ways, in both versions, through a client that writes in pieces of changing size.
func TestChoppedClient(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		for name, sizes := range map[string][]int{"bytes": {1}, "odd": {7, 1, 300, 2, 1500},
			"across records": {17000}} {
			t.Run(name, func(t *testing.T) {
				addr := listen(t, start(t, myriad.Config{ReadBuffer: 4096}),
					patient.Handler(serverConfig(), always(echo())))
				cfg := clientConfig()
				cfg.MaxVersion, cfg.DynamicRecordSizingDisabled = version, true
				tc := tls.Client(&chopper{Conn: dialTCP(t, addr), sizes: sizes}, cfg)
				msg := pattern(40_000)
				if sizes[0] == 1 {
					msg = msg[:8000]
				}
				go io.WriteString(tc, msg)
				expect(t, tc, msg)
			})
		}
	})
}

func TestAlerts(t *testing.T) {
	for name, tt := range map[string]struct {
		send  func(p *recordPeer)
		alert tls.AlertError
		err   string
	}{
		"bad record MAC": {func(p *recordPeer) {
			r := p.seal(recordApplication, "hello", 0)
			r[len(r)-1] ^= 1
			p.write(r)
		}, 20, "bad record MAC"},
		"oversized record": {func(p *recordPeer) { p.write([]byte{23, 3, 3, 0xff, 0xff}) }, 22,
			"oversized record"},
		"record overflow": {func(p *recordPeer) { p.write(p.seal(recordApplication, pattern(16<<10+1), 0)) }, 22,
			"overflow"},
		"unexpected record type": {func(p *recordPeer) { p.write(p.seal(99, "hello", 0)) }, 10, "unexpected"},
		"record of zeros":        {func(p *recordPeer) { p.write(p.seal(0, "", 20)) }, 10, "unexpected"},
		"wrong version":          {func(p *recordPeer) { p.write([]byte{23, 2, 2, 0, 20}) }, 70, "version"},
		"too many empty records": {func(p *recordPeer) {
			for range 40 {
				p.write(p.seal(recordApplication, "", 0))
			}
		}, 10, "too many ignored records"},
		"unexpected message": {func(p *recordPeer) { p.write(p.seal(recordHandshake, "\x01\x00\x00\x00", 0)) }, 0, ""},
		"with input behind it": {func(p *recordPeer) {
			p.write([]byte{23, 3, 3, 0xff, 0xff}, make([]byte, 100_000))
		}, 22, "oversized"},
	} {
		t.Run(name, func(t *testing.T) {
			p, h := echoPeer(t)
			tt.send(p)
			if tt.alert != 0 {
				p.expectAlert(tt.alert)
			}
			p.Conn.Close()
			if err := await(t, "Closed", h.closes); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Closed(%v), want %q", err, tt.err)
			}
		})
	}
}

// What comes before an error in the same read is still delivered.
func TestDataBeforeAnAlert(t *testing.T) {
	p, _ := echoPeer(t)
	p.write(p.seal(recordApplication, "last words", 0), []byte{23, 3, 3, 0xff, 0xff})
	p.expect("last words")
	p.expectAlert(22)
}

// A peer that has keys updated without ever reading the answers costs a bounded queue.
func TestKeyUpdateFlood(t *testing.T) {
	p, h := echoPeer(t)
	sink := make(chan *myriad.Conn, 1)
	h.received = func(c *myriad.Conn, _ []byte) {
		select {
		case sink <- c:
		default:
		}
	}
	_ = p.Conn.(*net.TCPConn).SetReadBuffer(4096)
	var most int
	for {
		var records [][]byte
		for range 200 {
			records = append(records, p.keyUpdate(1), p.seal(recordApplication, "x", 0))
		}
		if _, err := p.Conn.Write(bytes.Join(records, nil)); err != nil {
			break
		}
		select {
		case c := <-sink:
			most = max(most, c.Queued())
		default:
		}
	}
	if err := await(t, "Closed", h.closes); !errors.Is(err, tlsloop.ErrFlood) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Closed(%v)", err)
	}
	if most > 128<<10 {
		t.Errorf("%d bytes of answers were queued", most)
	}
}

// A FIN without a close_notify is a truncation. A handler that is no TruncatedEnder has its conn
// ended with it.
func TestTruncation(t *testing.T) {
	for name, cut := range map[string]int{"between records": 0, "in a header": 3, "in a record": 20} {
		t.Run(name, func(t *testing.T) {
			p, h := echoPeer(t)
			p.write(p.seal(recordApplication, "whole", 0), p.seal(recordApplication, pattern(100), 0)[:cut])
			p.expect("whole")
			p.Conn.(*net.TCPConn).CloseWrite()
			if err := await(t, "Closed", h.closes); err != io.ErrUnexpectedEOF {
				t.Errorf("Closed(%v)", err)
			}
		})
	}
}

// A cutProbe is a probe that is called for truncated streams.
type cutProbe struct {
	*probe
	truncated func(c *myriad.Conn, err error)
}

func (h cutProbe) Truncated(c *myriad.Conn, err error) { h.truncated(c, err) }

// A TruncatedEnder may answer: all of it is sent, with a close_notify. The end is still no orderly
// one.
func TestTruncationIsAnswered(t *testing.T) {
	for name, cut := range map[string]int{"between records": 0, "in a header": 3, "in a record": 20} {
		t.Run(name, func(t *testing.T) {
			h, msg := newProbe(), pattern(3<<20)
			h.opened = func(c *myriad.Conn) { c.SetWriteLimit(8 << 20) }
			h.ended = func(*myriad.Conn) { t.Error("Ended: a cut stream looks whole") }
			front := cutProbe{h, func(c *myriad.Conn, err error) {
				if err != io.ErrUnexpectedEOF {
					t.Errorf("Truncated(%v)", err)
				}
				if _, err := c.Write([]byte(msg)); err != nil {
					t.Error(err)
				}
				c.Close()
			}}
			p := newRecordPeer(t, listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(front))))
			p.write(p.seal(recordApplication, "whole", 0), p.seal(recordApplication, pattern(100), 0)[:cut])
			p.Conn.(*net.TCPConn).CloseWrite()
			p.expect(msg)
			p.expectAlert(0)
			if err := await(t, "Closed", h.closes); err != io.ErrUnexpectedEOF {
				t.Errorf("Closed(%v)", err)
			}
		})
	}
}

func TestReset(t *testing.T) {
	p, h := echoPeer(t)
	p.write(p.seal(recordApplication, "there", 0))
	p.expect("there")
	p.Conn.(*net.TCPConn).SetLinger(0)
	p.Conn.Close()
	if err := await(t, "Closed", h.closes); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Closed(%v)", err)
	}
}

// The peer ends its side first: we may go on writing as long as we like, then our close_notify
// comes, and the FIN.
func TestHalfCloseByPeer(t *testing.T) {
	h := newProbe()
	ended := make(chan *myriad.Conn, 1)
	h.ended = func(c *myriad.Conn) { ended <- c }
	p := newRecordPeer(t, listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(h))))
	p.write(p.seal(recordAlert, "\x01\x00", 0))
	c := await(t, "Ended", ended)
	msg := pattern(300_000)
	if _, err := c.Write([]byte(msg)); err != nil {
		t.Fatal(err)
	}
	p.expect(msg)
	c.Close()
	p.expectAlert(0)
	p.Conn.Close()
	if err := await(t, "Closed", h.closes); err != nil {
		t.Errorf("Closed(%v)", err)
	}
}

// We end our side first, and hear the peer's bytes until it ends its own.
func TestHalfCloseByUs(t *testing.T) {
	h := newProbe()
	got := make(chan string, 10)
	h.received = func(_ *myriad.Conn, p []byte) { got <- string(p) }
	p := newRecordPeer(t, listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(h))))
	c := await(t, "Opened", h.opens)
	c.Write([]byte("bye"))
	c.CloseWrite()
	p.expect("bye")
	p.expectAlert(0)
	p.write(p.seal(recordApplication, "still here", 0))
	if s := await(t, "Received", got); s != "still here" {
		t.Errorf("received %q", s)
	}
	p.write(p.seal(recordAlert, "\x01\x00", 0))
	p.Conn.(*net.TCPConn).CloseWrite()
	if err := await(t, "Closed", h.closes); err != nil {
		t.Errorf("Closed(%v)", err)
	}
}

// What is cut reaches the peer, however much it is, without a close_notify; Close has one.
func TestCut(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		for _, n := range []int{0, 100, 64<<10 + 1, 1 << 20} {
			for _, cut := range []bool{false, true} {
				h, msg := newProbe(), pattern(n)
				h.opened = func(c *myriad.Conn) {
					c.SetWriteLimit(8 << 20)
					c.Write([]byte(msg))
					if cut {
						c.CloseTruncated()
					}
					c.Close()
				}
				cfg := clientConfig()
				cfg.MaxVersion = version
				tc := dial(t, listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(h))), cfg)
				want := map[bool]error{true: io.ErrUnexpectedEOF}[cut]
				if all, err := io.ReadAll(tc); string(all) != msg || !errors.Is(err, want) {
					t.Errorf("%d bytes, cut %t: got %d, %v", n, cut, len(all), err)
				}
				tc.Close()
				if err := await(t, "Closed", h.closes); err != nil {
					t.Errorf("%d bytes, cut %t: Closed(%v)", n, cut, err)
				}
			}
		}
	})
}

// Nothing follows a fatal alert, however many goroutines write.
func TestNothingBehindAnAlert(t *testing.T) {
	leanOnly(t)
	h := newProbe()
	h.opened = func(c *myriad.Conn) { c.SetWriteLimit(8 << 20) }
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(h)))
	for range 50 {
		p := newRecordPeer(t, addr)
		c := await(t, "Opened", h.opens)
		var wg sync.WaitGroup
		for range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 5000 {
					if _, err := c.Write([]byte("data")); err == myriad.ErrClosed {
						return
					}
				}
			}()
		}
		p.expect("data")
		p.write(p.seal(99, "", 0))
		p.expectAlert(10)
		p.Conn.Close()
		wg.Wait()
		await(t, "Closed", h.closes)
	}
}

// At the limit of records for a key the next keys take over. That holds between the records of
// several goroutines, for what was kept, and outside of the engine.
func TestKeyLimit(t *testing.T) {
	leanOnly(t)
	tlsloop.SetMaxSealed(t, 3)
	conns, h := make(chan net.Conn, 1), echo()
	echoes := h.received
	h.received = func(c *myriad.Conn, p []byte) {
		if string(p) == "leave" {
			leaveTo(conns).received(c, p)
			return
		}
		echoes(c, p)
	}
	p := newRecordPeer(t, listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(h))))
	c := await(t, "Opened", h.opens)
	const writers, times = 4, 50
	sizes := []int{1, 3000, 70_000} // of one record, of several, of what the loop seals
	total := 0
	for w := range writers {
		for i := range times {
			total += sizes[(w+i)%len(sizes)]
		}
	}
	for w := range writers {
		go func() {
			for i := range times {
				msg := bytes.Repeat([]byte{byte(w)}, sizes[(w+i)%len(sizes)])
				for {
					_, err := c.Write(msg)
					if err == nil {
						break
					}
					if err != myriad.ErrFull {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond) // the peer reads
				}
			}
		}()
	}
	updates, sealed, counts := 0, 0, [writers]int{}
	read := func(want int, note func(text string)) {
		t.Helper()
		for got := 0; got < want; {
			kind, text, err := p.next()
			if err != nil {
				t.Fatalf("after %d of %d bytes: %v", got, want, err)
			}
			if kind == recordHandshake {
				if sealed != 3 {
					t.Fatalf("a KeyUpdate behind %d records", sealed)
				}
				updates++
				sealed = 0
				continue
			}
			if sealed++; sealed > 3 {
				t.Fatal("a key has sealed more records than it may")
			}
			got += len(text)
			note(text)
		}
	}
	read(total, func(text string) {
		for _, b := range []byte(text) {
			counts[b]++
		}
	})
	for w, n := range counts {
		want := 0
		for i := range times {
			want += sizes[(w+i)%len(sizes)]
		}
		if n != want {
			t.Errorf("writer %d: %d of %d bytes", w, n, want)
		}
	}
	if updates < total/(16<<10)/4 {
		t.Errorf("%d updates for %d bytes", updates, total)
	}
	p.write(p.seal(recordApplication, "leave", 0))
	nc := await(t, "net.Conn", conns)
	defer nc.Close()
	was := updates
	for range 10 {
		send(t, nc, "outside")
	}
	read(10*len("outside"), func(string) {})
	if updates < was+3 {
		t.Errorf("%d updates outside", updates-was)
	}
}

// So does a client of crypto/tls read it.
func TestKeyLimitForCryptoTLS(t *testing.T) {
	leanOnly(t)
	tlsloop.SetMaxSealed(t, 2)
	tc := dial(t, listen(t, start(t, myriad.Config{}), patient.Handler(serverConfig(), always(echo()))), clientConfig())
	for _, n := range []int{1, 100, 50_000, 200_000, 7} {
		msg := pattern(n)
		go func() { _, _ = io.WriteString(tc, msg) }()
		expect(t, tc, msg)
	}
}
