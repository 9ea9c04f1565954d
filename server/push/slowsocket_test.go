package push_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

// A client that stops reading is disconnected. When it reads again, it gets everything that was
// queued for it, in order, and then a close frame with the reason. The log and a metric name the
// client, its channel and the bytes that waited; the log also has the limit. Other clients get
// everything, and the server queues no more than the limit.
func TestSlowConsumerLearnsWhy(t *testing.T) {
	const limit, size = 256 << 10, 50 << 10
	s := servertest.NewLive(t, push.Config{Limits: push.Limits{Queue: limit}, Timing: push.Timing{Close: time.Minute}})
	quick := s.SubscribeNews()
	slow, client := subscribeNarrow(s)
	padding := strings.Repeat("x", size)
	published := 0
	for ; s.Figures(0).SlowDisconnects == 0; published++ {
		if published == 2000 {
			t.Fatal("no client is slow after 100 MB")
		}
		s.PublishNews(fmt.Sprintf(`{"n":%d,"padding":%q}`, published, padding))
		if _, p := quick.Frame(); !strings.Contains(p, fmt.Sprintf(`{"n":%d,`, published)) {
			t.Fatalf("publication %d: the quick client received %.60q", published, p)
		}
		// The engine may count bytes that the quick client has received for a moment longer.
		pushtest.WaitFor(t, "no more than the limit to be queued, with the headers of frames",
			func() bool { return queuedForAll(s) <= limit+64 })
		if t.Failed() {
			return
		}
	}
	s.PublishNews(`"for the others"`)
	if _, p := quick.Frame(); !strings.Contains(p, "for the others") {
		t.Errorf("the quick client received %.60q", p)
	}

	received := 0
	for {
		op, p := slow.Frame()
		if op == 8 {
			if p != "\x0b\xc0slow" { // 3008
				t.Errorf("it was closed with %q", p)
			}
			break
		}
		if want := fmt.Sprintf(`{"n":%d,"padding":"%s"}`, received, padding); !strings.Contains(p, want) {
			t.Fatalf("instead of publication %d it received %.60q", received, p)
		}
		received++
	}
	if received != published-1 {
		t.Errorf("it received %d of %d publications, want all but the one that had no room", received, published)
	}
	io.WriteString(slow, "\x88\x82\x00\x00\x00\x00\x0b\xc0")
	if _, err := slow.R.ReadByte(); err != io.EOF {
		t.Errorf("after the close: %v", err)
	}
	wantSlowNamed(s, client, limit)
}

// subscribeNarrow is subscribe for a client with a small receive buffer. It also returns the
// client's id.
func subscribeNarrow(s *servertest.Live) (c *servertest.RawClient, client string) {
	s.T.Helper()
	narrow := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if control := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET,
				syscall.SO_RCVBUF, 4096)
		}); control != nil {
			err = control
		}
		return err
	}}
	nc, err := narrow.DialContext(s.T.Context(), "tcp", s.Addr)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(60 * time.Second))
	io.WriteString(nc, servertest.UpgradeRequest+servertest.MaskedText(servertest.ConnectAndSubscribe))
	c = &servertest.RawClient{T: s.T, Conn: nc, R: bufio.NewReaderSize(nc, 4096)}
	c.Head()
	_, replies := c.Frame()
	found := regexp.MustCompile(`"client":"([^"]+)".*\n.*"subscribe":\{\}`).FindStringSubmatch(replies)
	if found == nil {
		s.T.Fatalf("subscribing: %s", replies)
	}
	return c, found[1]
}

// queuedForAll returns the bytes queued by the server for all connections.
func queuedForAll(s *servertest.Live) int {
	n := 0
	for _, session := range s.Hub.Sessions() {
		n += session.Info().Queued
	}
	return n
}

// wantSlowNamed checks that the log, the metrics and the console name the client.
func wantSlowNamed(s *servertest.Live, client string, limit int) {
	s.T.Helper()
	line := regexp.MustCompile(`level=WARN msg="push: disconnected a slow client" client=` + client +
		fmt.Sprintf(` user="" channel=news remote=127.0.0.1:[0-9]+ queued_bytes=([0-9]+) `+
			`message_bytes=[0-9]+ limit_bytes=%d\n`,
			limit)).FindStringSubmatch(s.Log.String())
	if line == nil {
		s.T.Fatalf("the log does not name %s:\n%s", client, s.Log)
	}
	metrics, stats := getPage(s, "/metrics"), getPage(s, "/console/stats")
	named := regexp.MustCompile(`\nmyriad_slow_client_queued_bytes\{action="disconnected",at="[^"]+",` +
		`channel="news",client="` + client + `",user=""\} (\S+)\n`)
	var queued float64
	if found := named.FindStringSubmatch(metrics); found == nil {
		s.T.Errorf("the metrics do not name %s:\n%s", client, metrics)
	} else if _, err := fmt.Sscan(found[1], &queued); err != nil || fmt.Sprintf("%.0f", queued) != line[1] {
		s.T.Errorf("the metrics have %s bytes, the log %s", found[1], line[1])
	}
	if !strings.Contains(metrics, "\nmyriad_slow_disconnects_total 1\n") {
		s.T.Errorf("the metrics do not count one slow client:\n%s", metrics)
	}
	var shown struct {
		Slow []struct{ Client, Channel string }
	}
	if err := json.Unmarshal([]byte(stats), &shown); err != nil || len(shown.Slow) != 1 ||
		shown.Slow[0].Client != client || shown.Slow[0].Channel != "news" {
		s.T.Errorf("the console shows %+v of %s, %v", shown, stats, err)
	}
}

func getPage(s *servertest.Live, path string) string {
	s.T.Helper()
	r, err := http.Get("http://" + s.Addr + path)
	if err != nil {
		s.T.Fatal(err)
	}
	defer r.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		s.T.Fatalf("%s: %s, %v", path, r.Status, err)
	}
	return string(body)
}
