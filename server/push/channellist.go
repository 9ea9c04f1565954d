package push

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// listedChannels is how many channels one answer has at most: those with the most subscribers.
const listedChannels = 200

type channelList struct {
	Total    int             `json:"total"` // that match, listed or not
	Channels []listedChannel `json:"channels"`
}

type listedChannel struct {
	Name        string `json:"name"`
	Subscribers int    `json:"subscribers"` // on this node
}

// serveChannels lists the channels whose name contains the query's "match", those with the most subscribers first.
func (s *Server) serveChannels(w http.ResponseWriter, r *http.Request) {
	body, err := json.Marshal(s.node.hub.list(r.URL.Query().Get("match")))
	if err != nil {
		panic("push: names of channels are always JSON: " + err.Error())
	}
	writeJSON(w, http.StatusOK, body)
}

// list returns the channels whose name contains match.
func (h *hub) list(match string) channelList {
	return h.matching(func(name string) bool { return strings.Contains(name, match) }, listedChannels)
}

// matching returns the channels that are wanted, at most so many. It looks at one shard at a time, and holds up who joins or leaves
// a channel there for as long.
func (h *hub) matching(wanted func(name string) bool, most int) channelList {
	l := channelList{Channels: []listedChannel{}}
	for i := range h.shards {
		h.shards[i].list(wanted, &l)
		l.trim(most)
	}
	return l
}

func (sh *shard) list(wanted func(name string) bool, l *channelList) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for name, ch := range sh.channels {
		if !wanted(name) {
			continue
		}
		l.Total++
		l.Channels = append(l.Channels, listedChannel{name, ch.size()})
	}
}

// trim keeps the first ones.
func (l *channelList) trim(most int) {
	slices.SortFunc(l.Channels, func(a, b listedChannel) int {
		return cmp.Or(cmp.Compare(b.Subscribers, a.Subscribers), strings.Compare(a.Name, b.Name))
	})
	l.Channels = l.Channels[:min(len(l.Channels), most)]
}
