package check

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/myriad-go/myriad/bench/load"
)

// A subscribed is what of the answer to a subscription counts here.
type subscribed struct {
	ID        int `json:"id"`
	Subscribe *struct {
		Epoch        string            `json:"epoch"`
		Offset       uint64            `json:"offset"`
		Recovered    bool              `json:"recovered"`
		Publications []json.RawMessage `json:"publications"`
	} `json:"subscribe"`
}

// Recovery is for servers of the Centrifuge protocol whose channels have a history. A subscriber
// that comes back must be given what it has missed.
func Recovery(addr string) (load.Talk, error) {
	const missed = 2
	first, err := subscribeTo(addr, "")
	if err != nil {
		return load.Talk{}, err
	}
	if first.Subscribe.Epoch == "" {
		return load.Talk{}, fmt.Errorf("a subscription of a channel with a history has no epoch")
	}
	for range missed {
		if err := publishAlone(addr, publication(publicationOfRecovery)); err != nil {
			return load.Talk{}, err
		}
	}
	again, err := subscribeTo(addr, fmt.Sprintf(`,"recover":true,"epoch":%q,"offset":%d`, first.Subscribe.Epoch,
		first.Subscribe.Offset))
	if err != nil {
		return load.Talk{}, err
	}
	if s := again.Subscribe; !s.Recovered || len(s.Publications) != missed {
		return load.Talk{}, fmt.Errorf("a subscriber who has missed %d publications is given %d, recovered: %t", missed,
			len(s.Publications), s.Recovered)
	}
	return load.Talk{}, nil
}

const publicationOfRecovery = 64 // bytes

// subscribeTo subscribes once, and leaves.
func subscribeTo(addr, how string) (*subscribed, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := io.WriteString(c, Centrifuge.hello); err != nil {
		return nil, err
	}
	if head, err := upTo(c, "\r\n\r\n"); err != nil || !strings.HasPrefix(head, Centrifuge.welcome) {
		return nil, fmt.Errorf("the answer is %.300q: %w", head, err)
	}
	commands := []byte(`{"id":1,"connect":{}}` + "\n" + `{"id":2,"subscribe":{"channel":"` + channel + `"` + how + `}}`)
	if _, err := c.Write(load.ClientFrame(commands)); err != nil {
		return nil, err
	}
	for {
		message, err := frame(c)
		if err != nil {
			return nil, fmt.Errorf("subscribing: %w", err)
		}
		for line := range bytes.SplitSeq(message, []byte("\n")) {
			var s subscribed
			if err := json.Unmarshal(line, &s); err != nil {
				return nil, fmt.Errorf("subscribing: %w in %.300q", err, line)
			}
			if s.ID == 2 && s.Subscribe == nil {
				return nil, fmt.Errorf("a subscription is answered with %.300q", line)
			}
			if s.ID == 2 {
				return &s, nil
			}
		}
	}
}

// frame reads one frame of a WebSocket, of less than 64 kB.
func frame(c net.Conn) ([]byte, error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(c, head); err != nil {
		return nil, err
	}
	size := int(head[1])
	switch {
	case size == 126:
		if _, err := io.ReadFull(c, head); err != nil {
			return nil, err
		}
		size = int(binary.BigEndian.Uint16(head))
	case size > 126:
		return nil, fmt.Errorf("a frame begins with %x", head)
	}
	body := make([]byte, size)
	_, err := io.ReadFull(c, body)
	return body, err
}

// publishAlone publishes by the HTTP API.
func publishAlone(addr, data string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	body := `{"channel":"` + channel + `","data":` + data + `}`
	if _, err := fmt.Fprintf(c, "POST /api/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return err
	}
	head, err := upTo(c, "\r\n\r\n")
	if err != nil || !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		return fmt.Errorf("a publication is answered with %.300q: %w", head, err)
	}
	return nil
}
