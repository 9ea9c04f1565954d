package centrifuge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

func parseJSON(p []byte) (n int, c Command, err error) {
	line := p
	n = len(p)
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		line, n = p[:i], i+1
	}
	if len(line) == 0 {
		return 0, Command{}, ErrEmpty
	}
	if err := json.Unmarshal(line, &c); err != nil {
		return 0, Command{}, fmt.Errorf("centrifuge: malformed command of %d bytes: %w", len(line), err)
	}
	return n, c, nil
}

// ParseConnect parses the first message of a unidirectional client: the body of a connect command,
// without a command around it.
func (c Codec) ParseConnect(p []byte) (ConnectRequest, error) {
	var r ConnectRequest
	if c == Protobuf {
		err := parseMessage(p, func(f field) error { return parseConnect(&r, f) })
		return r, err
	}
	if err := json.Unmarshal(p, &r); err != nil {
		return r, fmt.Errorf("centrifuge: malformed connect request of %d bytes: %w", len(p), err)
	}
	return r, nil
}

// ParseEmulation parses the body of a request to /emulation. In JSON, data is a string.
func (c Codec) ParseEmulation(p []byte) (r EmulationRequest, err error) {
	if c == Protobuf {
		err = parseMessage(p, func(f field) (err error) {
			switch f.number {
			case 1:
				r.Node, err = f.text()
			case 2:
				r.Session, err = f.text()
			case 3:
				r.Data, err = f.bytes()
			}
			return err
		})
		return r, err
	}
	var body struct{ Node, Session, Data string }
	if err := json.Unmarshal(p, &body); err != nil {
		return r, fmt.Errorf("centrifuge: malformed emulation request of %d bytes: %w", len(p), err)
	}
	return EmulationRequest{body.Node, body.Session, []byte(body.Data)}, nil
}

func appendJSONReply(dst []byte, r *Reply) []byte {
	dst = append(dst, '{')
	start := len(dst)
	if r.ID > 0 {
		dst = appendUint(append(dst, `,"id":`...), uint64(r.ID))
	}
	switch {
	case r.Error != nil:
		dst = appendJSONError(append(dst, `,"error":`...), r.Error)
	case r.Push != nil:
		dst = appendJSONPush(append(dst, `,"push":`...), r.Push)
	case r.Method != None:
		dst = append(append(append(dst, `,"`...), r.Method.String()...), `":{}`...)
	case r.Connect != nil:
		dst = appendJSONConnect(append(dst, `,"connect":`...), r.Connect)
	case r.Subscribe != nil:
		dst = appendJSONSubscribe(append(dst, `,"subscribe":`...), r.Subscribe)
	case r.Presence != nil:
		dst = AppendPresenceResult(append(dst, `,"presence":`...), r.Presence)
	case r.Stats != nil:
		dst = AppendPresenceStatsResult(append(dst, `,"presence_stats":`...), r.Stats)
	case r.History != nil:
		dst = AppendHistoryResult(append(dst, `,"history":`...), r.History)
	case r.RPC != nil:
		dst = appendJSONData(append(dst, `,"rpc":`...), r.RPC.Data)
	case r.Refresh != nil:
		dst = appendJSONRefresh(append(dst, `,"refresh":`...), r.Refresh)
	case r.SubRefresh != nil:
		dst = appendJSONRefresh(append(dst, `,"sub_refresh":`...), r.SubRefresh)
	}
	return append(withoutComma(dst, start), '}')
}

func appendJSONPush(dst []byte, p *Push) []byte {
	dst = append(dst, '{')
	start := len(dst)
	if p.Channel != "" {
		dst = AppendString(append(dst, `,"channel":`...), p.Channel)
	}
	switch {
	case p.Publication != nil:
		dst = appendJSONPublication(append(dst, `,"pub":`...), p.Publication)
	case p.Join != nil:
		dst = append(appendJSONInfo(append(dst, `,"join":{"info":`...), p.Join), '}')
	case p.Leave != nil:
		dst = append(appendJSONInfo(append(dst, `,"leave":{"info":`...), p.Leave), '}')
	case p.Unsubscribe != nil:
		dst = appendUint(append(dst, `,"unsubscribe":{"code":`...), uint64(p.Unsubscribe.Code))
		dst = append(AppendString(append(dst, `,"reason":`...), p.Unsubscribe.Reason), '}')
	case p.Message != nil:
		dst = appendJSONData(append(dst, `,"message":`...), p.Message)
	case p.Subscribe != nil:
		dst = appendJSONSubscribe(append(dst, `,"subscribe":`...), p.Subscribe)
	case p.Connect != nil:
		dst = appendJSONConnect(append(dst, `,"connect":`...), p.Connect)
	case p.Disconnect != nil:
		dst = appendUint(append(dst, `,"disconnect":{"code":`...), uint64(p.Disconnect.Code))
		dst = AppendString(append(dst, `,"reason":`...), p.Disconnect.Reason)
		if p.Disconnect.Reconnect() {
			dst = append(dst, `,"reconnect":true`...)
		}
		dst = append(dst, '}')
	case p.Refresh != nil:
		dst = appendJSONRefresh(append(dst, `,"refresh":`...), p.Refresh)
	}
	return append(withoutComma(dst, start), '}')
}

func appendJSONError(dst []byte, e *Error) []byte {
	dst = appendUint(append(dst, `{"code":`...), uint64(e.Code))
	dst = AppendString(append(dst, `,"message":`...), e.Message)
	if e.Temporary {
		dst = append(dst, `,"temporary":true`...)
	}
	return append(dst, '}')
}

func appendJSONConnect(dst []byte, r *ConnectResult) []byte {
	dst = AppendString(append(dst, `{"client":`...), r.Client)
	if r.Version != "" {
		dst = AppendString(append(dst, `,"version":`...), r.Version)
	}
	dst = appendJSONTTL(dst, r.Expires, r.TTL)
	if r.Data != nil {
		dst = append(append(dst, `,"data":`...), r.Data...)
	}
	if len(r.Subs) > 0 {
		dst = append(dst, `,"subs":`...)
		open := byte('{')
		for i := range r.Subs {
			dst = AppendString(append(dst, open), r.Subs[i].Channel)
			dst = appendJSONSubscribe(append(dst, ':'), &r.Subs[i].SubscribeResult)
			open = ','
		}
		dst = append(dst, '}')
	}
	if r.Ping > 0 {
		dst = appendUint(append(dst, `,"ping":`...), uint64(r.Ping))
	}
	if r.Pong {
		dst = append(dst, `,"pong":true`...)
	}
	if r.Session != "" {
		dst = AppendString(append(dst, `,"session":`...), r.Session)
	}
	if r.Node != "" {
		dst = AppendString(append(dst, `,"node":`...), r.Node)
	}
	return append(dst, '}')
}

func appendJSONSubscribe(dst []byte, r *SubscribeResult) []byte {
	dst = append(dst, '{')
	start := len(dst)
	dst = appendJSONTTL(dst, r.Expires, r.TTL)
	if r.Recoverable {
		dst = AppendString(append(dst, `,"recoverable":true,"epoch":`...), r.Epoch)
	}
	if len(r.Publications) > 0 {
		dst = appendJSONPublications(append(dst, `,"publications":`...), r.Publications)
	}
	if r.Recovered {
		dst = append(dst, `,"recovered":true`...)
	}
	if r.Offset > 0 {
		dst = appendUint(append(dst, `,"offset":`...), r.Offset)
	}
	if r.Recoverable {
		dst = append(dst, `,"positioned":true`...)
	}
	if len(r.Data) > 0 {
		dst = append(append(dst, `,"data":`...), r.Data...)
	}
	if r.WasRecovering {
		dst = append(dst, `,"was_recovering":true`...)
	}
	if r.Delta {
		dst = append(dst, `,"delta":true`...)
	}
	return append(withoutComma(dst, start), '}')
}

func appendJSONRefresh(dst []byte, r *RefreshResult) []byte {
	dst = append(dst, '{')
	start := len(dst)
	if r.Client != "" {
		dst = AppendString(append(dst, `,"client":`...), r.Client)
	}
	if r.Version != "" {
		dst = AppendString(append(dst, `,"version":`...), r.Version)
	}
	dst = appendJSONTTL(dst, r.Expires, r.TTL)
	return append(withoutComma(dst, start), '}')
}

func appendJSONTTL(dst []byte, expires bool, ttl uint32) []byte {
	if expires {
		dst = append(dst, `,"expires":true`...)
	}
	if ttl > 0 {
		dst = appendUint(append(dst, `,"ttl":`...), uint64(ttl))
	}
	return dst
}

// appendJSONData appends an object with data alone. Without data it is empty.
func appendJSONData(dst, data []byte) []byte {
	if len(data) == 0 {
		return append(dst, "{}"...)
	}
	return append(append(append(dst, `{"data":`...), data...), '}')
}

// AppendHistoryResult appends the result object of a history as JSON.
func AppendHistoryResult(dst []byte, r *HistoryResult) []byte {
	dst = appendJSONPublications(append(dst, `{"publications":`...), r.Publications)
	dst = AppendString(append(dst, `,"epoch":`...), r.Epoch)
	return append(appendUint(append(dst, `,"offset":`...), r.Offset), '}')
}

// AppendPresenceResult appends the result object of a presence as JSON.
func AppendPresenceResult(dst []byte, r *PresenceResult) []byte {
	dst = append(dst, `{"presence":{`...)
	for i := range r.Clients {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONInfo(append(AppendString(dst, r.Clients[i].Client), ':'), &r.Clients[i])
	}
	return append(dst, "}}"...)
}

// AppendPresenceStatsResult appends the result object of presence stats as JSON.
func AppendPresenceStatsResult(dst []byte, r *PresenceStatsResult) []byte {
	dst = appendUint(append(dst, `{"num_clients":`...), uint64(r.Clients))
	return append(appendUint(append(dst, `,"num_users":`...), uint64(r.Users)), '}')
}

func appendJSONInfo(dst []byte, i *ClientInfo) []byte {
	dst = AppendString(append(dst, `{"user":`...), i.User)
	dst = AppendString(append(dst, `,"client":`...), i.Client)
	if i.ConnInfo != nil {
		dst = append(append(dst, `,"conn_info":`...), i.ConnInfo...)
	}
	if i.ChanInfo != nil {
		dst = append(append(dst, `,"chan_info":`...), i.ChanInfo...)
	}
	return append(dst, '}')
}

func appendJSONPublications(dst []byte, list []Publication) []byte {
	dst = append(dst, '[')
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONPublication(dst, &list[i])
	}
	return append(dst, ']')
}

func appendJSONPublication(dst []byte, p *Publication) []byte {
	dst = append(append(dst, `{"data":`...), p.Data...)
	if p.Client != "" {
		dst = appendJSONInfo(append(dst, `,"info":`...), &ClientInfo{Client: p.Client, User: p.User})
	}
	if p.Offset > 0 {
		dst = appendUint(append(dst, `,"offset":`...), p.Offset)
	}
	if len(p.Tags) > 0 {
		dst = appendJSONTags(append(dst, `,"tags":`...), p.Tags)
	}
	if p.Delta {
		dst = append(dst, `,"delta":true`...)
	}
	return append(dst, '}')
}

// appendJSONTags appends tags sorted by name, so that equal publications have equal bytes.
func appendJSONTags(dst []byte, tags map[string]string) []byte {
	open := byte('{')
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		dst = AppendString(append(dst, open), name)
		dst = AppendString(append(dst, ':'), tags[name])
		open = ','
	}
	return append(dst, '}')
}

// withoutComma removes the comma before the first member of an object.
func withoutComma(dst []byte, start int) []byte {
	if len(dst) == start {
		return dst
	}
	return append(dst[:start], dst[start+1:]...)
}

func appendUint(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Bytes that are not UTF-8 become the replacement
// character, because a frame must be valid text. U+2028 and U+2029, which JSON allows, stay.
func AppendString[S string | []byte](dst []byte, s S) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, size := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
			dst = utf8.AppendRune(dst, r) // RuneError for a byte that is not UTF-8
			i += size
			continue
		}
		i++
	}
	return append(dst, '"')
}
