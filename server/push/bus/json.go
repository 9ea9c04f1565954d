package bus

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// This file makes JSON of what programs get as the HTTP API does (docs/guides/api.md), so that a
// page reads the same from both. The API itself uses the codec of its protocol, which does not
// escape < and >.

// MarshalJSON returns p as the API's history has it. Text is a string, and bytes are a string in
// base64 (RFC 4648 §4).
func (p Publication) MarshalJSON() ([]byte, error) {
	shown := struct {
		Data   any               `json:"data"`
		Info   *ClientInfo       `json:"info,omitempty"`
		Offset uint64            `json:"offset,omitempty"`
		Tags   map[string]string `json:"tags,omitempty"`
	}{Offset: p.Offset, Tags: p.Tags}
	if p.Client != "" {
		shown.Info = &ClientInfo{Client: p.Client, User: p.User}
	}
	switch p.Kind {
	case JSON:
		shown.Data = json.RawMessage(p.Data)
	case Text:
		shown.Data = strings.ToValidUTF8(string(p.Data), "\uFFFD")
	default:
		shown.Data = base64.StdEncoding.EncodeToString(p.Data)
	}
	return json.Marshal(shown)
}

// MarshalJSON returns h as the answer of the API's history.
func (h History) MarshalJSON() ([]byte, error) {
	list := h.Publications
	if list == nil {
		list = []Publication{}
	}
	return json.Marshal(struct {
		Publications []Publication `json:"publications"`
		Position
	}{list, h.Top})
}

// MarshalJSON returns p as the answers of the API's presence and presence_stats, in one object.
func (p Presence) MarshalJSON() ([]byte, error) {
	clients := make(map[string]ClientInfo, len(p.Clients))
	for _, c := range p.Clients {
		clients[c.Client] = c
	}
	return json.Marshal(struct {
		Clients map[string]ClientInfo `json:"presence"`
		Count   int                   `json:"num_clients"`
		Users   int                   `json:"num_users"`
	}{clients, p.Count, p.Users})
}
