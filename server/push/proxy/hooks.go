package proxy

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/myriad-go/myriad/server/push"
)

// who is what every request says of the client.
type who struct {
	Client    string          `json:"client"`
	Transport string          `json:"transport"`
	Protocol  string          `json:"protocol"`
	Encoding  string          `json:"encoding"`
	User      string          `json:"user,omitempty"`
	Meta      json.RawMessage `json:"meta,omitempty"`
}

func whoIs(c push.Caller) who {
	return who{c.Client, c.Transport, c.Protocol, c.Encoding, c.User, c.Meta}
}

// A payload is data in a request or an answer: JSON, or bytes in base64.
type payload struct {
	Data    json.RawMessage `json:"data,omitempty"`
	B64Data []byte          `json:"b64data,omitempty"`
}

// payloadOf returns a client's data. Data in Protobuf may be any bytes.
func payloadOf(c push.Caller, data []byte) payload {
	if c.Encoding == "binary" {
		return payload{B64Data: data}
	}
	return payload{Data: data}
}

func (p payload) bytes() []byte {
	if len(p.B64Data) > 0 {
		return p.B64Data
	}
	if string(p.Data) == "null" {
		return nil
	}
	return p.Data
}

// An info is what others see of a client.
type info struct {
	Info    json.RawMessage `json:"info"`
	B64Info []byte          `json:"b64info"`
}

func (i info) bytes() []byte {
	if len(i.B64Info) > 0 {
		return i.B64Info
	}
	return i.Info
}

// An instant is a time in seconds since 1970; 0: never.
type instant int64

// lastInstant is the end of the year 9999. What is after it is milliseconds.
const lastInstant = 253402300799

// UnmarshalJSON refuses a time that cannot be meant: it would never come.
func (i *instant) UnmarshalJSON(text []byte) error {
	var n int64
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	if n < 0 || n > lastInstant {
		return fmt.Errorf("the time %d is not in seconds since 1970", n)
	}
	*i = instant(n)
	return nil
}

func (p *proxy) connect(ctx context.Context, c push.Caller, r push.ConnectRequest) (a push.ConnectAnswer, err error) {
	var result struct {
		User     string          `json:"user"`
		ExpireAt instant         `json:"expire_at"`
		Channels []string        `json:"channels"`
		Subs     map[string]info `json:"subs"`
		Meta     json.RawMessage `json:"meta"`

		Caps []push.Capability `json:"caps"`
		info
		payload
	}
	err = p.call(ctx, p.Connect, c, struct {
		who
		payload
		Name     string   `json:"name,omitempty"`
		Version  string   `json:"version,omitempty"`
		Channels []string `json:"channels,omitempty"`
	}{whoIs(c), payloadOf(c, r.Data), r.Name, r.Version, r.Channels}, &result)
	a = push.ConnectAnswer{User: result.User, ExpireAt: int64(result.ExpireAt), Info: result.info.bytes(),
		Data: result.payload.bytes(), Channels: result.Channels, Infos: map[string][]byte{}, Meta: result.Meta,
		Caps: result.Caps}
	for name, sub := range result.Subs {
		a.Channels = append(a.Channels, name)
		if shown := sub.bytes(); len(shown) > 0 {
			a.Infos[name] = shown
		}
	}
	return a, err
}

func (p *proxy) refresh(ctx context.Context, c push.Caller) (a push.RefreshAnswer, err error) {
	var result struct {
		Expired  bool              `json:"expired"`
		ExpireAt instant           `json:"expire_at"`
		Caps     []push.Capability `json:"caps"`
		Meta     json.RawMessage   `json:"meta"`
		info
	}
	err = p.call(ctx, p.Refresh, c, whoIs(c), &result)
	return push.RefreshAnswer{Expired: result.Expired, ExpireAt: int64(result.ExpireAt), Caps: result.Caps,
		Info: result.info.bytes(), Meta: result.Meta}, err
}

func (p *proxy) subRefresh(ctx context.Context, c push.Caller, channel string) (push.SubRefreshAnswer, error) {
	var result struct {
		Expired  bool    `json:"expired"`
		ExpireAt instant `json:"expire_at"`
	}
	err := p.call(ctx, p.SubRefresh, c, struct {
		who
		Channel string `json:"channel"`
	}{whoIs(c), channel}, &result)
	return push.SubRefreshAnswer{Expired: result.Expired, ExpireAt: int64(result.ExpireAt)}, err
}

func (p *proxy) subscribe(ctx context.Context, c push.Caller, r push.SubscribeRequest) (push.SubscribeAnswer, error) {
	var result struct {
		ExpireAt instant  `json:"expire_at"`
		Allow    []string `json:"allow"`
		info
		payload
	}
	err := p.call(ctx, p.Subscribe, c, struct {
		who
		payload
		Channel string `json:"channel"`
		Token   string `json:"token,omitempty"`
	}{whoIs(c), payloadOf(c, r.Data), r.Channel, r.Token}, &result)
	a := push.SubscribeAnswer{Info: result.info.bytes(), Data: result.payload.bytes(), ExpireAt: int64(result.ExpireAt)}
	for _, right := range result.Allow {
		switch right {
		case "pub":
			a.Publish = true
		case "sub", "prs", "hst": // every subscriber may
		default:
			return a, fmt.Errorf("proxy: the answer of %s: result.allow has %q: use pub", p.Subscribe, right)
		}
	}
	return a, err
}

func (p *proxy) publish(ctx context.Context, c push.Caller, r push.PublishRequest) (push.PublishAnswer, error) {
	var result struct {
		SkipHistory bool `json:"skip_history"`
		payload
	}
	err := p.call(ctx, p.Publish, c, struct {
		who
		payload
		Channel string `json:"channel"`
	}{whoIs(c), payloadOf(c, r.Data), r.Channel}, &result)
	return push.PublishAnswer{Data: result.payload.bytes(), SkipHistory: result.SkipHistory}, err
}

func (p *proxy) rpc(ctx context.Context, c push.Caller, method string, data []byte) ([]byte, error) {
	var result payload
	err := p.call(ctx, p.RPC, c, struct {
		who
		payload
		Method string `json:"method"`
	}{whoIs(c), payloadOf(c, data), method}, &result)
	return result.bytes(), err
}
