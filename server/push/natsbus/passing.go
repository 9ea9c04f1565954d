package natsbus

import (
	"context"
	"errors"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

// passing carries what no log keeps: publications of channels without a retention, and notices.
// Nodes whose connection is down miss it.
type passing struct {
	*conn
	registry *registry
	holds    *holds
}

var errNotConnected = errors.New("natsbus: the connection to NATS is down")

// open subscribes to what other nodes send.
func (p *passing) open() error {
	_, err := p.nc.Subscribe(p.prefix+".t.>", p.receive)
	return err
}

// publish sends data, which is one in the form of messages, to the receivers of all nodes. It waits
// for nodes that move to another process.
func (p *passing) publish(ctx context.Context, name, token string, one bus.Publication, data []byte) error {
	if err := p.holds.enter(ctx); err != nil {
		return err
	}
	defer p.holds.leave()
	one.ID, one.Position = "", bus.Position{}
	return p.registry.publish(name, one, func() error {
		if !p.nc.IsConnected() {
			return errNotConnected
		}
		return p.nc.Publish(p.prefix+".t."+token, data)
	})
}

// announce sends a notice to the receivers of all nodes.
func (p *passing) announce(channel string, n bus.Notice) error {
	token, err := tokenOf(channel)
	if err != nil {
		return err
	}
	p.registry.tell(channel, func(r bus.Receiver) { r.Notice(channel, n) })
	return p.nc.Publish(p.prefix+".t."+token, appendNotice(nil, &n))
}

// receive handles what another node has sent.
func (p *passing) receive(m *nats.Msg) {
	name, ok := channelOf(m.Subject[len(p.prefix)+len(".t."):])
	if !ok {
		return
	}
	r := reader{rest: m.Data}
	switch form(r.byte()) {
	case formPublication:
		if one := r.publication(); !r.wrong {
			p.registry.receive(name, one, func() {})
		}
	case formNotice:
		if n := r.notice(); !r.wrong {
			p.registry.tell(name, func(r bus.Receiver) { r.Notice(name, n) })
		}
	}
}
