package centrifuge

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// This file parses commands in Protobuf's wire format
// (https://protobuf.dev/programming-guides/encoding). Fields that this package does not know are
// skipped. As the format wants it, the last value of a field counts, and the members of a message
// that comes in parts are merged.

var (
	errTruncated = errors.New("centrifuge: a Protobuf message ends within a field")
	errVarint    = errors.New("centrifuge: a Protobuf varint is longer than 64 bits")
	errWireType  = errors.New("centrifuge: a Protobuf field has a wire type that does not fit it")
	errText      = errors.New("centrifuge: a Protobuf string is not UTF-8")
	errNumber    = errors.New("centrifuge: a Protobuf field has the number 0 or a too large one")
	errDepth     = errors.New("centrifuge: a filter is nested too deeply")
)

// maxFilterDepth bounds how deeply the nodes of a filter may be nested. parseJSON has the bound of
// encoding/json; what evaluates the filter has a lower one.
const maxFilterDepth = 32

// wire types
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

// A field is one field of a message: a number, or bytes that belong to the message's.
type field struct {
	number int
	wire   uint8
	value  uint64 // of a number
	body   []byte // of wireBytes
}

func (f field) uint() (uint64, error) {
	if f.wire != wireVarint {
		return 0, errWireType
	}
	return f.value, nil
}

// uint32 truncates, as Protobuf does for values that are too large.
func (f field) uint32() (uint32, error) { v, err := f.uint(); return uint32(v), err }
func (f field) int32() (int32, error)   { v, err := f.uint(); return int32(v), err }
func (f field) bool() (bool, error)     { v, err := f.uint(); return v != 0, err }

// bytes returns a copy, which is not nil.
func (f field) bytes() ([]byte, error) {
	if f.wire != wireBytes {
		return nil, errWireType
	}
	return append(make([]byte, 0, len(f.body)), f.body...), nil
}

func (f field) raw() (json.RawMessage, error) { return f.bytes() }

func (f field) text() (string, error) {
	switch {
	case f.wire != wireBytes:
		return "", errWireType
	case !utf8.Valid(f.body):
		return "", errText
	}
	return string(f.body), nil
}

// message parses the field's bytes as a message.
func (f field) message(each func(field) error) error {
	if f.wire != wireBytes {
		return errWireType
	}
	return parseMessage(f.body, each)
}

// parseMessage calls each with every field of p.
func parseMessage(p []byte, each func(field) error) error {
	for len(p) > 0 {
		f, n, err := parseField(p)
		if err != nil {
			return err
		}
		if err := each(f); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func parseField(p []byte) (f field, n int, err error) {
	key, n, err := parseVarint(p)
	if err != nil {
		return f, 0, err
	}
	if key>>3 == 0 || key>>3 > 1<<29-1 {
		return f, 0, errNumber
	}
	f.number, f.wire = int(key>>3), uint8(key&7)
	size := 0
	switch f.wire {
	case wireVarint:
		f.value, size, err = parseVarint(p[n:])
	case wire64:
		size = 8
	case wire32:
		size = 4
	case wireBytes:
		var length uint64
		length, size, err = parseVarint(p[n:])
		if err == nil && length > uint64(len(p)-n-size) {
			err = errTruncated
		}
		if err == nil {
			f.body = p[n+size : n+size+int(length)]
			size += int(length)
		}
	default: // a group, which Protobuf 3 does not have
		err = errWireType
	}
	if err == nil && size > len(p)-n {
		err = errTruncated
	}
	if err != nil {
		return f, 0, err
	}
	return f, n + size, nil
}

func parseVarint(p []byte) (v uint64, n int, err error) {
	for i, b := range p {
		if i == 9 && b > 1 {
			return 0, 0, errVarint
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return v, i + 1, nil
		}
	}
	return 0, 0, errTruncated
}

// parseProtobuf parses a command after its length.
func parseProtobuf(p []byte) (n int, c Command, err error) {
	if len(p) == 0 {
		return 0, c, ErrEmpty
	}
	length, n, err := parseVarint(p)
	switch {
	case err == nil && length > uint64(min(len(p)-n, math.MaxInt32)):
		err = errTruncated
	case err == nil:
		err = parseMessage(p[n:n+int(length)], c.parse)
	}
	if err != nil {
		return 0, Command{}, fmt.Errorf("centrifuge: malformed command in a frame of %d bytes: %w", len(p), err)
	}
	return n + int(length), c, nil
}

// made returns *p, after creating it if it is nil.
func made[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

func (c *Command) parse(f field) (err error) {
	switch f.number {
	case 1:
		c.ID, err = f.uint32()
	case 4:
		r := made(&c.Connect)
		return f.message(func(f field) error { return parseConnect(r, f) })
	case 5:
		r := made(&c.Subscribe)
		return f.message(func(f field) error { return parseSubscribe(r, f) })
	case 6:
		return parseChannel(made(&c.Unsubscribe), f)
	case 7:
		return parsePublish(made(&c.Publish), f)
	case 8:
		return parseChannel(made(&c.Presence), f)
	case 9:
		return parseChannel(made(&c.PresenceStats), f)
	case 10:
		return parseHistory(made(&c.History), f)
	case 11:
		made(&c.Ping)
		return f.message(func(field) error { return nil })
	case 12:
		r := made(&c.Send)
		return f.message(func(f field) (err error) {
			if f.number == 1 {
				r.Data, err = f.raw()
			}
			return err
		})
	case 13:
		return parseRPC(made(&c.RPC), f)
	case 14:
		r := made(&c.Refresh)
		return f.message(func(f field) (err error) {
			if f.number == 1 {
				r.Token, err = f.text()
			}
			return err
		})
	case 15:
		return parseSubRefresh(made(&c.SubRefresh), f)
	}
	return err
}

func parseConnect(r *ConnectRequest, f field) (err error) {
	switch f.number {
	case 1:
		r.Token, err = f.text()
	case 2:
		r.Data, err = f.raw()
	case 3:
		if r.Subs == nil {
			r.Subs = make(map[string]*SubscribeRequest)
		}
		var channel string
		sub := new(SubscribeRequest)
		err = f.message(func(f field) (err error) {
			switch f.number {
			case 1:
				channel, err = f.text()
			case 2:
				err = f.message(func(f field) error { return parseSubscribe(sub, f) })
			}
			return err
		})
		r.Subs[channel] = sub
	case 4:
		r.Name, err = f.text()
	case 5:
		r.Version, err = f.text()
	}
	return err
}

func parseSubscribe(r *SubscribeRequest, f field) (err error) {
	switch f.number {
	case 1:
		r.Channel, err = f.text()
	case 2:
		r.Token, err = f.text()
	case 3:
		r.Recover, err = f.bool()
	case 6:
		r.Epoch, err = f.text()
	case 7:
		r.Offset, err = f.uint()
	case 8:
		r.Data, err = f.raw()
	case 11:
		r.JoinLeave, err = f.bool()
	case 12:
		r.Delta, err = f.text()
	case 13:
		node := made(&r.Filter)
		err = f.message(func(f field) error { return parseFilter(node, f, maxFilterDepth) })
	case 14:
		var flag uint64
		flag, err = f.uint()
		r.Flag = int64(flag)
	case 15:
		r.Type, err = f.int32()
	}
	return err
}

func parseFilter(r *FilterNode, f field, depth int) (err error) {
	switch f.number {
	case 1:
		r.Op, err = f.text()
	case 2:
		r.Key, err = f.text()
	case 3:
		r.Compare, err = f.text()
	case 4:
		r.Value, err = f.text()
	case 5:
		var value string
		value, err = f.text()
		r.Values = append(r.Values, value)
	case 6:
		if depth == 0 {
			return errDepth
		}
		node := new(FilterNode)
		err = f.message(func(f field) error { return parseFilter(node, f, depth-1) })
		r.Nodes = append(r.Nodes, node)
	}
	return err
}

func parseChannel(r *ChannelRequest, f field) error {
	return f.message(func(f field) (err error) {
		if f.number == 1 {
			r.Channel, err = f.text()
		}
		return err
	})
}

func parsePublish(r *PublishRequest, f field) error {
	return f.message(func(f field) (err error) {
		switch f.number {
		case 1:
			r.Channel, err = f.text()
		case 2:
			r.Data, err = f.raw()
		case 3:
			r.Type, err = f.int32()
		}
		return err
	})
}

func parseHistory(r *HistoryRequest, f field) error {
	return f.message(func(f field) (err error) {
		switch f.number {
		case 1:
			r.Channel, err = f.text()
		case 7:
			r.Limit, err = f.int32()
		case 8:
			since := made(&r.Since)
			err = f.message(func(f field) (err error) {
				switch f.number {
				case 1:
					since.Offset, err = f.uint()
				case 2:
					since.Epoch, err = f.text()
				}
				return err
			})
		case 9:
			r.Reverse, err = f.bool()
		}
		return err
	})
}

func parseRPC(r *RPCRequest, f field) error {
	return f.message(func(f field) (err error) {
		switch f.number {
		case 1:
			r.Data, err = f.raw()
		case 2:
			r.Method, err = f.text()
		}
		return err
	})
}

func parseSubRefresh(r *SubRefreshRequest, f field) error {
	return f.message(func(f field) (err error) {
		switch f.number {
		case 1:
			r.Channel, err = f.text()
		case 2:
			r.Token, err = f.text()
		case 3:
			r.Type, err = f.int32()
		}
		return err
	})
}

// Channels returns the names of the subscriptions, sorted.
func (r *ConnectRequest) Channels() []string {
	names := make([]string, 0, len(r.Subs))
	for name := range r.Subs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
