package push

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file holds the API's methods that publish. They return when the bus has accepted the
// publication; by then it is queued for the subscribers of this node.

func (s *Server) apiPublish(ctx context.Context, r *apiRequest) ([]byte, error) {
	if r.Channel == "" {
		return nil, badRequest("channel is missing")
	}
	if err := s.checkPublication(r); err != nil {
		return nil, err
	}
	at, err := s.publishTo(ctx, r.Channel, r)
	if err != nil {
		return nil, err
	}
	return appendPublished(nil, at), nil
}

// apiBroadcast publishes the same data to several channels and returns one reply for each.
func (s *Server) apiBroadcast(ctx context.Context, r *apiRequest) ([]byte, error) {
	switch most := s.node.limits.Broadcast; {
	case len(r.Channels) == 0:
		return nil, badRequest("channels is missing")
	case len(r.Channels) > most:
		return nil, &apiError{code: apiLimitExceeded,
			message: fmt.Sprintf("%d channels; one request may name at most %d",
				len(r.Channels), most)}
	}
	if err := s.checkPublication(r); err != nil {
		return nil, err
	}
	result := []byte(`{"responses":[`)
	for i, name := range r.Channels {
		if i > 0 {
			result = append(result, ',')
		}
		at, err := s.publishTo(ctx, name, r)
		if err == nil {
			result = append(appendPublished(append(result, `{"result":`...), at), '}')
			continue
		}
		e := s.explain("broadcast", err)
		result = appendError(result, e.code, e.message)
	}
	return append(result, "]}"...), nil
}

// checkPublication returns an error for data that is missing or too large for any channel.
func (s *Server) checkPublication(r *apiRequest) error {
	limit, size := s.node.limits.Publication, len(r.Data)+len(r.B64Data)+tagsSize(r.Tags)
	if size > limit {
		size += compactSize(r.Data) - len(r.Data)
	}
	switch {
	case r.Data == nil && len(r.B64Data) == 0:
		return badRequest("data is missing")
	case r.VersionEpoch != "" && r.Version == 0:
		return badRequest("version_epoch without version: give it a version of 1 or more")
	case r.Version != 0 && r.SkipHistory:
		return badRequest("version with skip_history: the history is what a version is compared with")
	case r.Data != nil && len(r.B64Data) > 0:
		return badRequest("data and b64data are both given: use one")
	case size <= limit:
		return nil
	case len(r.Tags) == 0:
		return &apiError{code: apiLimitExceeded, message: fmt.Sprintf("data is %d bytes; the limit is %d", size, limit)}
	}
	return &apiError{code: apiLimitExceeded,
		message: fmt.Sprintf("data and tags are %d bytes together; the limit is %d",
			size, limit)}
}

// publishTo publishes r's data to one channel. The idempotency key becomes the publication's ID, so
// that the bus makes one publication of several requests.
func (s *Server) publishTo(ctx context.Context, channel string, r *apiRequest) (Position, error) {
	p := Publication{ID: r.IdempotencyKey, Data: r.Data, Tags: r.Tags}
	if r.Data == nil {
		p.Data, p.Kind, p.exact = r.B64Data, kindOf(r.B64Data), true
	}
	if r.Version != 0 {
		p.Version = &Version{r.Version, r.VersionEpoch}
	}
	at, err := s.node.publishKept(ctx, channel, p, r.SkipHistory)
	switch {
	case errors.Is(err, ErrOutdated):
		return at, nil // the channel has it already, or something newer
	case errors.Is(err, ErrNoHistory):
		return at, &apiError{code: apiCode(failNotAvailable.Code),
			message: "version needs a channel whose namespace has a history"}
	case errors.Is(err, errBadVersion):
		return at, badRequest(fmt.Sprintf("version_epoch has more than %d bytes", maxID))
	case errors.Is(err, errBadChannel):
		return at, s.checkChannel(channel)
	case errors.Is(err, errBadID):
		return at, badRequest(fmt.Sprintf("idempotency_key has more than %d bytes", maxID))
	case errors.Is(err, errBadData):
		return at, badRequest("data is not UTF-8, as JSON must be")
	}
	return at, err
}

// publishKept publishes p. With skipHistory the publication is not in the channel's history and
// cannot be recovered.
func (n *node) publishKept(ctx context.Context, channel string, p Publication, skipHistory bool) (Position, error) {
	keep := n.rules.of(channel).retention()
	if skipHistory {
		keep = Retention{}
	}
	return n.publishWith(ctx, channel, p, keep)
}

// appendPublished appends the result of a publication: its position, if the channel has a history.
func appendPublished(dst []byte, at Position) []byte {
	if at.Epoch == "" {
		return append(dst, "{}"...)
	}
	dst = strconv.AppendUint(append(dst, `{"offset":`...), at.Offset, 10)
	return append(centrifuge.AppendString(append(dst, `,"epoch":`...), at.Epoch), '}')
}
