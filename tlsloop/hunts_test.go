package tlsloop_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// This file tries what users of other servers have reported of TLS (docs/HUNTS.md), here and on
// crypto/tls beside it.

// standardEcho is a server of crypto/tls that echoes.
func standardEcho(t *testing.T, cfg *tls.Config) (addr string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer nc.Close()
				_ = nc.SetDeadline(time.Now().Add(patience))
				_, _ = io.Copy(nc, nc)
			})
		}
	})
	t.Cleanup(func() { l.Close(); served.Wait() })
	return l.Addr().String()
}

// likeCryptoTLS runs a client on both servers, which must bring the same about.
func likeCryptoTLS(t *testing.T, cfg func() *tls.Config, run func(t *testing.T, addr string) string) {
	t.Helper()
	want := run(t, standardEcho(t, cfg()))
	e := start(t, myriad.Config{})
	if got := run(t, listen(t, e, patient.Handler(cfg(), always(echo())))); got != want {
		t.Errorf("crypto/tls: %s\nhere:       %s", want, got)
	}
}

// helloOf is the record with the ClientHello that cfg makes.
func helloOf(t *testing.T, cfg *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	go func() { _ = tls.Client(far, cfg).Handshake(); far.Close() }()
	header := make([]byte, 5)
	if _, err := io.ReadFull(near, header); err != nil {
		t.Fatal(err)
	}
	record := append(header, make([]byte, binary.BigEndian.Uint16(header[3:]))...)
	if _, err := io.ReadFull(near, record[5:]); err != nil {
		t.Fatal(err)
	}
	return record
}

// inRecords cuts a record of a handshake into records of n bytes.
func inRecords(record []byte, n int) (all []byte) {
	for part := range slices.Chunk(record[5:], n) {
		all = append(append(all, record[0], record[1], record[2], byte(len(part)>>8), byte(len(part))), part...)
	}
	return all
}

// firstRecords is what a server sends up to its end, or to the first record that is encrypted: the
// types of its records, and the numbers of its alerts.
func firstRecords(nc net.Conn) string {
	var said []string
	for {
		header := make([]byte, 5)
		if _, err := io.ReadFull(nc, header); err != nil {
			return fmt.Sprint(said, " ends") // with a reset, if not all was read
		}
		body := make([]byte, binary.BigEndian.Uint16(header[3:]))
		if _, err := io.ReadFull(nc, body); err != nil {
			return fmt.Sprint(said, " ", err)
		}
		switch header[0] {
		case recordAlert:
			said = append(said, fmt.Sprint("alert ", body[len(body)-1]))
		case recordApplication:
			return fmt.Sprint(said, " goes on")
		default:
			said = append(said, fmt.Sprint("record ", header[0]))
		}
	}
}

func TestHellosLikeCryptoTLS(t *testing.T) {
	hello := helloOf(t, clientConfig())
	patched := func(old, new string) []byte {
		if !bytes.Contains(hello, []byte(old)) || len(old) != len(new) {
			t.Fatalf("%q for %q", new, old)
		}
		return bytes.Replace(hello, []byte(old), []byte(new), 1)
	}
	record := func(kind byte, body string) []byte {
		return append([]byte{kind, 3, 3, byte(len(body) >> 8), byte(len(body))}, body...)
	}
	join := func(all ...[]byte) []byte { return bytes.Join(all, nil) }
	for name, sent := range map[string][]byte{
		"whole":                          hello,
		"in records of one byte":         inRecords(hello, 1),
		"in records of 100 bytes":        inRecords(hello, 100),
		"a name with NUL":                patched("localhost", "local\x00ost"),
		"a name with a dot behind it":    patched("localhost", "localhos."),
		"a name with a line end":         patched("localhost", "local\r\nst"),
		"a name that is an address":      patched("localhost", "127.0.0.1"),
		"a name that says 16 MiB":        append([]byte{22, 3, 1, 0, 4}, 1, 0xff, 0xff, 0xff),
		"a message of 65 KiB":            append([]byte{22, 3, 1, 0, 4}, 1, 1, 0, 1),
		"an empty record":                join(record(22, ""), hello),
		"17 empty records":               join(bytes.Repeat(record(22, ""), 17), hello),
		"a record of the largest length": append([]byte{22, 3, 1, 0xff, 0xff}, make([]byte, 70_000)...),
		"data first":                     record(23, "hello"),
		"ChangeCipherSpec first":         join(record(20, "\x01"), hello),
		"ChangeCipherSpec behind":        join(hello, record(20, "\x01")),
		"a flood of ChangeCipherSpec":    join(hello, bytes.Repeat(record(20, "\x01"), 1000)),
		"a warning first":                join(record(21, "\x01\x5a"), hello),
		"a flood of warnings":            join(bytes.Repeat(record(21, "\x01\x5a"), 1000), hello),
		"close_notify first":             record(21, "\x01\x00"),
		"close_notify behind":            join(hello, record(21, "\x01\x00")),
		"a fatal alert behind":           join(hello, record(21, "\x02\x28")),
		"an alert of one byte":           record(21, "\x01"),
		"twice":                          join(hello, hello),
		"a hello of SSL 2":               []byte("\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80"),
		"SSL 3":                          patchedVersion(hello, 0),
		"SSH":                            []byte("SSH-2.0-OpenSSH_9.6\r\n"),
		"a line end":                     []byte("\r\n\r\n\r\n"),
		"another message":                record(22, "\x10\x00\x00\x01x"),
		"a heartbeat":                    join(hello, record(24, "\x01\x40\x00")),
	} {
		t.Run(name, func(t *testing.T) {
			likeCryptoTLS(t, serverConfig, func(t *testing.T, addr string) string {
				nc := dialTCP(t, addr)
				_, _ = nc.Write(sent)
				_ = nc.(*net.TCPConn).CloseWrite()
				return firstRecords(nc)
			})
		})
	}
}

// patchedVersion is hello with another version of its record and message.
func patchedVersion(hello []byte, minor byte) []byte {
	h := bytes.Clone(hello)
	h[2], h[10] = minor, minor
	return h
}

// A corked conn keeps what is written until it is let go.
type corked struct {
	net.Conn
	held bytes.Buffer
	on   bool
}

func (c *corked) Write(p []byte) (int, error) {
	if c.on {
		return c.held.Write(p)
	}
	return c.Conn.Write(p)
}

func (c *corked) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.on = true // the flight that answers the server's
	return n, err
}

// All that a client has to say comes in one segment: the end of its handshake, data, its
// close_notify and FIN.
func TestAllAtOnceLikeCryptoTLS(t *testing.T) {
	likeCryptoTLS(t, serverConfig, func(t *testing.T, addr string) string {
		nc := &corked{Conn: dialTCP(t, addr)}
		tc := tls.Client(nc, clientConfig())
		if err := tc.Handshake(); err != nil {
			t.Fatal(err)
		}
		send(t, tc, "hello")
		_ = tc.CloseWrite()
		_, _ = nc.Conn.Write(nc.held.Bytes())
		_ = nc.Conn.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(tc)
		return fmt.Sprintf("%q %v", got, err)
	})
}

// KeyUpdates come while a large answer is encoded in slices: each record has the key that is due.
func TestKeyUpdatesInALargeAnswer(t *testing.T) {
	h, msg := newProbe(), pattern(4<<20)
	var once sync.Once
	h.opened = func(c *myriad.Conn) { c.SetWriteLimit(16 << 20) }
	h.received = func(c *myriad.Conn, _ []byte) {
		once.Do(func() {
			if _, err := c.Write([]byte(msg)); err != nil {
				t.Error(err)
			}
		})
	}
	p := newRecordPeer(t, listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(h))))
	p.write(p.seal(recordApplication, "go", 0))
	updated := make(chan struct{})
	go func() {
		defer close(updated)
		for range 50 {
			if _, err := p.Conn.Write(append(p.keyUpdate(1), p.seal(recordApplication, "x", 0)...)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	p.expect(msg)
	<-updated
	p.Conn.Close()
	await(t, "Closed", h.closes)
}

// A session without a client certificate is not resumed when the server has come to ask for one.
func TestResumptionAcrossConfigsLikeCryptoTLS(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		var strict sync.Map // the ClientAuth of a name
		cfg := func() *tls.Config {
			open, closed := serverConfig(), serverConfig()
			closed.ClientAuth, closed.ClientCAs = tls.RequireAndVerifyClientCert, trusted().pool
			cfg := serverConfig()
			cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				if v, _ := strict.Load("on"); v == true {
					return closed, nil
				}
				return open, nil
			}
			return cfg
		}
		likeCryptoTLS(t, cfg, func(t *testing.T, addr string) string {
			strict.Store("on", false)
			cc := clientConfig()
			cc.MaxVersion, cc.ClientSessionCache = version, tls.NewLRUClientSessionCache(4)
			var said []string
			for i := range 4 {
				if i == 2 {
					strict.Store("on", true)
				}
				nc := dialTCP(t, addr)
				tc := tls.Client(nc, cc)
				_, err := io.WriteString(tc, "hello")
				got := make([]byte, 5)
				if err == nil {
					_, err = io.ReadFull(tc, got)
				}
				said = append(said, fmt.Sprintf("resumed %t %q %v", tc.ConnectionState().DidResume, got, alertOf(err)))
				tc.Close()
			}
			return strings.Join(said, "; ")
		})
	})
}

// alertOf is the number of the alert in err, or err.
func alertOf(err error) any {
	var alert tls.AlertError
	var op *net.OpError
	switch {
	case errors.As(err, &alert):
		return fmt.Sprint("alert ", uint8(alert))
	case errors.As(err, &op):
		return op.Err
	}
	return err
}

// Certificates change, and with them ticket keys, while clients connect, resume and go on: none of
// them notices.
func TestCertificatesChangeUnderLoad(t *testing.T) {
	certs := []tls.Certificate{certificate("localhost"), certificate("localhost"), certificate("localhost")}
	var mu sync.Mutex
	now, served := 0, map[string]int{}
	cfg := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		return &certs[now%len(certs)], nil
	}}
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(cfg, always(echo())))
	kept := dial(t, addr, clientConfig())
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			resumes := clientConfig()
			resumes.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			for i := 0; ctx.Err() == nil; i++ {
				cc := clientConfig()
				if i%2 > 0 {
					cc = resumes
				}
				tc := tls.Client(dialTCP(t, addr), cc)
				_, err := io.WriteString(tc, "hello")
				if _, err2 := io.ReadFull(tc, make([]byte, 5)); err != nil || err2 != nil {
					t.Error(err, err2)
					return
				}
				mu.Lock()
				served[string(tc.ConnectionState().PeerCertificates[0].Raw)]++
				mu.Unlock()
				tc.Close()
			}
		})
	}
	for ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		now++
		mu.Unlock()
	}
	clients.Wait()
	send(t, kept, "still here")
	expect(t, kept, "still here")
	if len(served) < 2 {
		t.Errorf("%d certificates were served", len(served))
	}
}

// A peer that distrusts a certificate sends an alert and closes, with bytes unread. That alert is
// reported, not the reset that comes behind it.
func TestAlertBeforeAReset(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		failed := make(chan error, 100)
		o := patient
		o.Closed = func(_ *myriad.Conn, err error) { failed <- err }
		cfg := serverConfig()
		cfg.VerifyConnection = func(tls.ConnectionState) error { return nil }
		e := start(t, myriad.Config{})
		addrs := []string{listen(t, e, o.Handler(serverConfig(), always(echo()))),
			listen(t, e, o.Handler(cfg, always(echo())))} // whose steps may block
		for i := range 40 {
			addr := addrs[i%2]
			cc := clientConfig()
			cc.RootCAs, cc.MaxVersion = x509.NewCertPool(), version
			nc := dialTCP(t, addr)
			if err := tls.Client(nc, cc).Handshake(); err == nil {
				t.Fatal("an unknown authority is trusted")
			}
			_ = nc.(*net.TCPConn).SetLinger(0)
			nc.Close()
			const want = "remote error: tls: bad certificate"
			if err := await(t, "end", failed); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("failed with %v", err)
			}
		}
	})
}

// So it is with a server that refuses a client's hello: Dial fails with its alert.
func TestDialLearnsOfAnAlertBeforeAReset(t *testing.T) {
	e := start(t, myriad.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = nc.Read(make([]byte, 100)) // a part of the hello
			_, _ = nc.Write([]byte{recordAlert, 3, 3, 0, 2, 2, 70})
			nc.Close()
		}
	}()
	for range 30 {
		_, err := patient.Dial(t.Context(), e, "tcp", l.Addr().String(), clientConfig(), newProbe())
		if err == nil || !strings.Contains(err.Error(), "remote error: tls: protocol version not supported") {
			t.Errorf("Dial: %v", err)
		}
	}
}

// Load balancers connect and end without a byte, every few seconds: they hide no failure of another
// peer from the log.
func TestProbesHideNoFailure(t *testing.T) {
	failed := make(chan string, 100)
	o := patient
	o.Failed = func(_ *myriad.Conn, err error, times uint64) { failed <- fmt.Sprint(times, " ", err) }
	addr := listen(t, start(t, myriad.Config{}), o.Handler(serverConfig(), always(echo())))
	for i, sent := range []string{"", "", "SSH-2.0-OpenSSH_9.6\r\n", "", "SSH-2.0-OpenSSH_9.6\r\n"} {
		nc := dialTCP(t, addr)
		send(t, nc, sent)
		_ = nc.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(nc)
		switch i {
		case 0:
			if got := await(t, "Failed", failed); got != "1 EOF" {
				t.Errorf("Failed with %s", got)
			}
		case 2:
			if got := await(t, "Failed", failed); !strings.Contains(got, "1 tls: first record does not look like") {
				t.Errorf("Failed with %s", got)
			}
		}
	}
	if len(failed) > 0 {
		t.Errorf("another call within ten seconds: %s", <-failed)
	}
}

// sends is what a peer says in records.
type sends = func(p *recordPeer) []byte

// one is one record.
func one(kind byte, text string) sends { return padded(kind, text, 0) }

func padded(kind byte, text string, padding int) sends {
	return func(p *recordPeer) []byte { return p.seal(kind, text, padding) }
}

// inTheClear is a record without encryption.
func inTheClear(kind byte, text string) sends {
	return func(*recordPeer) []byte { return append([]byte{kind, 3, 3, 0, byte(len(text))}, text...) }
}

func updateKeys(request byte) sends {
	return func(p *recordPeer) []byte { return p.keyUpdate(request) }
}

// times is the same n times.
func times(n int, all ...sends) sends {
	return func(p *recordPeer) (sent []byte) {
		for range n {
			for _, s := range all {
				sent = append(sent, s(p)...)
			}
		}
		return sent
	}
}

// stricter are the answers that RFC 8446 wants where crypto/tls has another: they follow sections 5
// and 4.6.3 and the types of messages that a client may send.
var stricter = map[string]string{
	"a KeyUpdate of another value": `"" [record 21 022f]`, // illegal_parameter
	"two KeyUpdates of one record": `"" [record 21 020a]`, // unexpected_message, without an answer to the first
	"a message of 16 MiB":          `"" [record 21 0232]`, // decode_error: a KeyUpdate has one byte
	"a ticket of the client":       `"" [record 21 020a]`,
	"a hello":                      `"" [record 21 020a]`,
	"ChangeCipherSpec":             `"" [record 21 020a]`, // behind Finished
	"ChangeCipherSpec, sealed":     `"" [record 21 020a]`,
	"an alert in the clear":        `"" [record 21 020a]`,
}

// What a client may say behind its handshake has the same alert, data or end for an answer, or that
// of RFC 8446.
func TestRecordsLikeCryptoTLS(t *testing.T) {
	const (
		data, message, alert = recordApplication, recordHandshake, recordAlert
		canceled, notify     = "\x01\x5a", "\x01\x00"
		update               = "\x18\x00\x00\x01"
	)
	for name, sent := range map[string]sends{
		"data":                          one(data, "hello"),
		"data and padding":              padded(data, "hello", 16_000),
		"too much padding":              padded(data, "hello", 1<<14),
		"16 empty records":              times(16, one(data, "")),
		"17 empty records":              times(17, one(data, "")),
		"17 records of padding":         times(17, padded(data, "", 1000)),
		"16 KeyUpdates":                 times(16, updateKeys(0)),
		"17 KeyUpdates":                 times(17, updateKeys(0)),
		"40 KeyUpdates with data":       times(40, updateKeys(0), one(data, "x")),
		"a KeyUpdate of another value":  updateKeys(2),
		"data within a KeyUpdate":       times(1, one(message, update[:2]), one(data, "x")),
		"a message behind a KeyUpdate":  one(message, update+"\x00"+update+"\x00"),
		"two KeyUpdates of one record":  one(message, update+"\x01"+update+"\x01"),
		"an empty message record":       one(message, ""),
		"a message of 16 MiB":           one(message, "\x18\xff\xff\xff"),
		"a ticket of the client":        one(message, "\x04\x00\x00\x00"),
		"a hello":                       one(message, "\x01\x00\x00\x00"),
		"ChangeCipherSpec":              times(1, inTheClear(20, "\x01"), one(data, "x")),
		"ChangeCipherSpec, sealed":      one(20, "\x01"),
		"data in the clear":             inTheClear(data, "x"),
		"an empty record in the clear":  inTheClear(data, ""),
		"a record of 16 bytes":          inTheClear(data, "0123456789abcdef"),
		"an alert in the clear":         inTheClear(alert, notify),
		"user_canceled":                 times(1, one(alert, canceled), one(data, "x")),
		"a flood of user_canceled":      times(100, one(alert, canceled)),
		"another warning":               one(alert, "\x01\x64"),
		"an alert of three bytes":       one(alert, "\x01\x00\x00"),
		"an empty alert":                one(alert, ""),
		"close_notify and then data":    times(1, one(alert, notify), one(data, "x")),
		"data, close_notify, a rest":    times(1, one(data, "x"), one(alert, notify), inTheClear(data, "")),
		"a record that was sent before": func(p *recordPeer) []byte { return bytes.Repeat(p.seal(data, "x", 0), 2) },
	} {
		t.Run(name, func(t *testing.T) {
			talk := func(t *testing.T, addr string) string {
				p := newRecordPeer(t, addr)
				p.write(sent(p))
				_ = p.Conn.(*net.TCPConn).CloseWrite()
				return heard(p)
			}
			want, differs := stricter[name]
			if !differs || !patient.LeanTLS {
				likeCryptoTLS(t, ticketless, talk)
				return
			}
			if got := talk(t, standardEcho(t, ticketless())); got == want {
				t.Errorf("crypto/tls says what RFC 8446 wants: %s", got)
			}
			e := start(t, myriad.Config{})
			if got := talk(t, listen(t, e, patient.Handler(ticketless(), always(echo())))); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// heard is all that a peer says: its data, and its other records but close_notify. The echo of
// crypto/tls sends that also behind an error.
func heard(p *recordPeer) string {
	var said []string
	got := ""
	for {
		kind, text, err := p.next()
		switch {
		case err != nil:
			return fmt.Sprintf("%q %v", got, said)
		case kind == recordApplication:
			got += text
		case kind == recordAlert && text == "\x01\x00":
		default:
			said = append(said, fmt.Sprintf("record %d %x", kind, text))
		}
	}
}

// What a server may say behind a handshake that Dial has made brings the same about as with a
// client of crypto/tls.
func TestServersRecordsLikeCryptoTLS(t *testing.T) {
	const (
		data, message = recordApplication, recordHandshake
		ticket        = "\x04\x00\x00\x12\x00\x00\x0e\x10\x00\x00\x00\x01\x01\x00\x00\x04tick\x00\x00"
	)
	for name, sent := range map[string]sends{
		"data":                    one(data, "hello"),
		"a ticket":                times(1, one(message, ticket), one(data, "x")),
		"two of a record":         one(message, ticket+ticket),
		"a flood of tickets":      times(100, one(message, ticket)),
		"a ticket in two records": times(1, one(message, ticket[:9]), one(message, ticket[9:]), one(data, "x")),
		"a malformed ticket":      one(message, ticket[:21]),
		"a ticket for years":      one(message, ticket[:4]+"\xff"+ticket[5:]),
		"a certificate request":   one(message, "\x0d\x00\x00\x03\x00\x00\x00"),
		"a hello request":         one(message, "\x00\x00\x00\x00"),
		"KeyUpdates with data":    times(40, updateKeys(1), one(data, "x")),
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, myriad.Config{})
			var said []string
			for _, dials := range []func(addr string) error{
				func(addr string) error {
					cc := clientConfig()
					cc.ClientSessionCache = tls.NewLRUClientSessionCache(1)
					tc, err := tls.Dial("tcp", addr, cc)
					if err != nil {
						return err
					}
					go func() { _, _ = io.Copy(tc, tc); tc.Close() }()
					return nil
				},
				func(addr string) error {
					cc := clientConfig()
					cc.ClientSessionCache = tls.NewLRUClientSessionCache(1)
					_, err := patient.Dial(context.Background(), e, "tcp", addr, cc, echo())
					return err
				},
			} {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				dialled := make(chan error, 1)
				go func() { dialled <- dials(l.Addr().String()) }()
				nc, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				_ = nc.SetDeadline(time.Now().Add(patience))
				p := newRecordServer(t, nc)
				if err := await(t, "end of Dial", dialled); err != nil {
					t.Fatal(err)
				}
				p.write(sent(p), p.seal(recordAlert, "\x01\x00", 0))
				_ = nc.(*net.TCPConn).CloseWrite()
				said = append(said, heard(p))
			}
			if said[0] != said[1] {
				t.Errorf("crypto/tls: %s\nhere:       %s", said[0], said[1])
			}
		})
	}
}
