package natsbus

import (
	"context"
	"strconv"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

// This file orders publications by their versions. The log compares: it stores a publication with a
// version only behind the message that this node has compared it with.

// follows makes the log store a message only behind the channel's last one, if version may follow
// that. Else it returns the position of the last one and bus.ErrOutdated.
func (f *follower) follows(ctx context.Context, channel, token string, version bus.Version, m *nats.Msg) (
	bus.Position, error) {
	s, found, err := f.b.leaderGet(ctx, f.stream, directGet{Last: f.stored + token})
	if err != nil {
		return bus.Position{}, err
	}
	if found && !version.After(versionIn(s.data)) {
		if err := f.waitFor(ctx, s.seq); err != nil {
			return bus.Position{}, err
		}
		return bus.Position{Offset: s.seq, Epoch: channelEpoch(f.epochNow(), channel)}, bus.ErrOutdated
	}
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(s.seq, 10))
	return bus.Position{}, nil
}

// versionIn returns the version of the publication in a message, or the zero Version.
func versionIn(data []byte) (v bus.Version) {
	r := reader{rest: data}
	if form(r.byte()) != formPublication {
		return v
	}
	if p := r.publication(); !r.wrong && p.Version != nil {
		v = *p.Version
	}
	return v
}
