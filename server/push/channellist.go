package push

import (
	"cmp"
	"slices"
	"strings"
)

// A ChannelList is channels that have subscribers, those with the most subscribers first.
type ChannelList struct {
	Total    int           `json:"total"` // that match, listed or not
	Channels []ChannelInfo `json:"channels"`
}

// A ChannelInfo is a channel that has subscribers.
type ChannelInfo struct {
	Name        string `json:"name"`
	Subscribers int    `json:"subscribers"` // on all nodes
}

// matching returns at most `most` channels for whose names wanted returns true. It locks one shard
// at a time; joins and leaves in that shard wait meanwhile.
func (h *hub) matching(wanted func(name string) bool, most int) ChannelList {
	l := ChannelList{Channels: []ChannelInfo{}}
	for i := range h.shards {
		h.shards[i].list(wanted, &l)
		l.trim(most)
	}
	return l
}

func (sh *shard) list(wanted func(name string) bool, l *ChannelList) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for name, ch := range sh.channels {
		if !wanted(name) {
			continue
		}
		size := ch.size()
		if size == 0 { // it has only watchers, or a client that is about to join
			continue
		}
		l.Total++
		l.Channels = append(l.Channels, ChannelInfo{name, size})
	}
}

// trim keeps the first `most` channels.
func (l *ChannelList) trim(most int) {
	slices.SortFunc(l.Channels, func(a, b ChannelInfo) int {
		return cmp.Or(cmp.Compare(b.Subscribers, a.Subscribers), strings.Compare(a.Name, b.Name))
	})
	l.Channels = l.Channels[:min(len(l.Channels), most)]
}
