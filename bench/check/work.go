package check

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

// A Work finds out whether a process does what it is told to. Only what is bounded has to keep to a
// capacity.
type Work func(ask func(harness.Order) (harness.Report, error), bounded bool) error

// Tasks is for pools: every task runs, several at the same time, and not more of them than there
// may be.
func Tasks(ask func(harness.Order) (harness.Report, error), bounded bool) error {
	o := harness.Order{Times: 1000, Sleep: time.Millisecond, Capacity: 50, Producers: 8, Watch: true}
	r, err := ask(o)
	switch {
	case err != nil:
		return err
	case r.Done != o.Times:
		return fmt.Errorf("%d of %d tasks have run", r.Done, o.Times)
	case r.Most < 2:
		return fmt.Errorf("tasks run one after the other")
	case bounded && r.Most > o.Capacity:
		return fmt.Errorf("%d tasks ran at the same time, where %d may", r.Most, o.Capacity)
	}
	return nil
}

// UpgradeRequest is a browser's request for a WebSocket.
const UpgradeRequest = "GET /chat HTTP/1.1\r\nHost: example.com\r\nConnection: keep-alive, Upgrade\r\n" +
	"Pragma: no-cache\r\n" +
	"Cache-Control: no-cache\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:142.0) Gecko/20100101 Firefox/142.0\r\n" +
	"Upgrade: websocket\r\nOrigin: http://example.com\r\nSec-WebSocket-Version: 13\r\n" +
	"Accept-Encoding: gzip, deflate, br\r\n" +
	"Accept-Language: en-GB,en;q=0.5\r\nSec-WebSocket-Key: " + key + "\r\n\r\n"

// Upgrade is for upgrades of connections in memory: the last of them was answered rightly.
func Upgrade(ask func(harness.Order) (harness.Report, error), _ bool) error {
	r, err := ask(harness.Order{Times: 3, Input: []byte(UpgradeRequest)})
	if err != nil {
		return err
	}
	if r.Done != 3 {
		return fmt.Errorf("%d of 3 upgrades were made", r.Done)
	}
	b := bufio.NewReader(bytes.NewReader(r.Output))
	res, err := http.ReadResponse(b, nil)
	if err != nil {
		return fmt.Errorf("the answer %.300q: %w", r.Output, err)
	}
	if err := switched(res); err != nil {
		return err
	}
	if b.Buffered() > 0 {
		return fmt.Errorf("%d bytes follow the handshake", b.Buffered())
	}
	return nil
}
