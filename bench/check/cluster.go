package check

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/myriad-go/myriad/bench/load"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

// Across is for clusters whose second node takes publications of size bytes that subscribers of the
// first one get, by the Centrifuge protocol. If channels have a history, answers and deliveries end
// with an offset, whose length changes.
func Across(size int, kept bool) Check {
	data := publication(size)
	return func(addrs string) (load.Talk, error) {
		first, second, found := strings.Cut(addrs, ",")
		if !found {
			return load.Talk{}, fmt.Errorf("%q is not two nodes", addrs)
		}
		p := Centrifuge
		publish, err := publishes(second, data)
		reply := p.deliver(data)
		want := reply.Prefix
		if kept {
			publish, err = publishesKept(second, publish.Request)
			want = want[:len(want)-len("}}}")]
			reply = load.Reply{Prefix: want}
		}
		if err != nil {
			return load.Talk{}, err
		}
		publish.Addr, reply.Framing = second, p.framing
		talk := load.Talk{Hello: []byte(p.hello), Welcome: []byte(p.welcome), Join: p.join, Joined: []byte(p.joined),
			Reply: reply, Publication: &publish}
		return talk, p.deliversAcross(first, second, publish.Request, want)
	}
}

// publishesKept finds out whether publications are answered with offsets that rise.
func publishesKept(addr string, request []byte) (load.Talk, error) {
	talk := load.Talk{Request: request, Requests: 1,
		Reply: load.Reply{Prefix: []byte("HTTP/1.1 200 "), Framing: load.Answers}}
	c, err := dial(addr)
	if err != nil {
		return talk, err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for range 2 {
		if err := publishOnce(c, r, request, `{"result":{"offset":`); err != nil {
			return talk, err
		}
	}
	return talk, quiet(c)
}

func publishOnce(c net.Conn, r *bufio.Reader, request []byte, want string) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	body, err := io.ReadAll(res.Body)
	right := res.StatusCode == http.StatusOK && res.ContentLength >= 0 && strings.HasPrefix(string(body), want)
	if err != nil || !right {
		return fmt.Errorf("a publication is answered with %q %.300q: %w", res.Status, body, err)
	}
	return nil
}

// deliversAcross subscribes twice at one node and publishes twice at the other.
func (p Push) deliversAcross(first, second string, request, want []byte) error {
	members, leave, err := p.members(first)
	if err != nil {
		return err
	}
	defer leave()
	publisher, err := dial(second)
	if err != nil {
		return err
	}
	defer publisher.Close()
	r := bufio.NewReader(publisher)
	for range 2 {
		if err := publishOnce(publisher, r, request, `{"result":{`); err != nil {
			return err
		}
		for _, c := range members {
			head := make([]byte, 4) // of a text message of 126 bytes and more (RFC 6455 §5.2)
			if _, err := io.ReadFull(c, head); err != nil {
				return fmt.Errorf("a publication: %w", err)
			}
			message := make([]byte, int(head[2])<<8|int(head[3]))
			if _, err := io.ReadFull(c, message); err != nil || !bytes.HasPrefix(message, want) {
				return fmt.Errorf("a publication is delivered as %.300q, not %.300q: %w", message, want, err)
			}
		}
	}
	return nil
}

// Failover is for clusters that lose a node: all subscribers of it recover elsewhere.
func Failover(ask func(harness.Order) (harness.Report, error), _ bool) error {
	r, err := ask(harness.Order{Times: 30})
	if err != nil {
		return err
	}
	if r.Done != 30 || r.Took <= 0 {
		return fmt.Errorf("%d of 30 subscribers have everything, after %v", r.Done, r.Took)
	}
	return nil
}
