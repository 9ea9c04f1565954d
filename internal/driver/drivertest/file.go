package drivertest

import (
	"errors"
	"os"

	"github.com/myriad-go/myriad/internal/driver"
)

var fileCases = []testCase{
	{"SendFile", sendFile},
	{"SendFileBehindBytes", sendFileBehindBytes},
	{"SendFileUnderPressure", sendFileUnderPressure},
	{"SendFileTooShort", sendFileTooShort},
	{"SendFileDropped", sendFileDropped},
	{"SendFileStale", sendFileStale},
}

// file makes a file of the content, and returns what a driver takes of it. The original is closed
// already.
func (b *bed) file(content []byte) driver.File {
	b.Helper()
	name := b.TempDir() + "/file"
	if err := os.WriteFile(name, content, 0o600); err != nil {
		b.Fatalf("%v", err)
	}
	f, err := os.Open(name)
	if err != nil {
		b.Fatalf("%v", err)
	}
	defer f.Close()
	d, err := b.sys.Duplicate(f)
	if errors.Is(err, driver.ErrUnsupported) {
		b.Skipf("Duplicate: %v", err)
	}
	if err != nil {
		b.Fatalf("Duplicate: %v", err)
	}
	return d
}

func (b *bed) sendFile(c *Conn, f driver.File, off, n int64) {
	b.Helper()
	if _, err := c.SendFile(f, off, n); err != nil {
		b.Fatalf("SendFile: %v", err)
	}
}

func sendFile(b *bed) {
	b.start()
	p, c := b.connect()
	content := pattern(1<<20, 3)
	b.sendFile(c, b.file(content), 0, int64(len(content)))
	b.until("the file is reported sent", func() bool { return c.Left() == 0 })
	b.sendFile(c, b.file(content), 1000, 2000)
	b.until("the file is reported sent", func() bool { return c.Left() == 0 })
	c.Send([]byte("behind"))
	c.CloseWrite()
	b.until("the peer sees the end", p.Ended)
	want := append(append(append([]byte(nil), content...), content[1000:3000]...), "behind"...)
	b.same("the peer received", p.Received(), want)
	b.closed(c)
}

func sendFileBehindBytes(b *bed) {
	b.start()
	p, c := b.connect()
	p.StopReading()
	want := b.press(c)
	content := pattern(100_000, 3)
	b.sendFile(c, b.file(content), 0, int64(len(content)))
	c.CloseWrite()
	p.Resume()
	b.until("the peer sees the end", func() bool { return p.Ended() || p.Err() != nil })
	b.same("the peer received", p.Received(), append(want, content...))
	b.until("Sent adds up to what was queued", func() bool { return c.Left() == 0 })
	b.closed(c)
}

func sendFileUnderPressure(b *bed) {
	b.start()
	p, c := b.connect()
	p.StopReading()
	content := pattern(16<<20, 3)
	b.sendFile(c, b.file(content), 0, int64(len(content)))
	b.idles("with a file queued")
	if c.Left() == 0 {
		b.Fatalf("a file of %d bytes was reported sent to a peer that does not read", len(content))
	}
	p.Resume()
	b.until("the file is reported sent", func() bool { return c.Left() == 0 })
	b.arrives(p, content)
	b.closed(c)
}

func sendFileTooShort(b *bed) {
	b.start()
	_, c := b.connect()
	b.sendFile(c, b.file(pattern(1000, 1)), 0, 2000)
	b.over(c, true)
}

func sendFileDropped(b *bed) {
	b.start()
	content := pattern(16<<20, 3)
	for _, end := range []func(c *Conn){(*Conn).Close, (*Conn).Abort} {
		p, c := b.connect()
		p.StopReading()
		b.sendFile(c, b.file(content), 0, int64(len(content)))
		b.settle()
		end(c)
		b.over(c, false)
		p.Resume()
	}
	p, c := b.connect()
	p.StopReading()
	b.sendFile(c, b.file(content), 0, int64(len(content)))
	b.settle()
	p.Reset()
	b.over(c, true)
}

func sendFileStale(b *bed) {
	b.start()
	_, c := b.connect()
	b.closed(c)
	f := b.file(pattern(10, 1))
	if n, err := c.SendFile(f, 0, 10); n != 0 || err != nil && !errors.Is(err, driver.ErrStale) {
		b.Errorf("SendFile on a stale id: %d, %v", n, err)
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); err == nil {
		b.Errorf("SendFile on a stale id left the file open")
	}
}
