package push

import (
	"context"
	"strconv"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file holds the API's methods that publish. They return when the bus has accepted the
// publication; by then it is queued for the subscribers of this node.

func (s *apiDoor) apiPublish(ctx context.Context, r *apiRequest) ([]byte, error) {
	data, o, err := r.publication()
	if err != nil {
		return nil, err
	}
	at, err := s.PublishWith(ctx, r.Channel, data, o)
	if err != nil {
		return nil, err
	}
	return appendPublished(nil, at), nil
}

// apiBroadcast publishes the same data to several channels and returns one reply for each.
func (s *apiDoor) apiBroadcast(ctx context.Context, r *apiRequest) ([]byte, error) {
	data, o, err := r.publication()
	if err != nil {
		return nil, err
	}
	all, err := s.Broadcast(ctx, r.Channels, data, o)
	if err != nil {
		return nil, err
	}
	result := []byte(`{"responses":[`)
	for i, one := range all {
		if i > 0 {
			result = append(result, ',')
		}
		if one.Err == nil {
			result = append(appendPublished(append(result, `{"result":`...), one.Position), '}')
			continue
		}
		e := s.Explain("broadcast", one.Err)
		result = appendError(result, e.Code, e.Message)
	}
	return append(result, "]}"...), nil
}

// publication returns what a request publishes.
func (r *apiRequest) publication() (data []byte, o PublishOptions, err error) {
	o = PublishOptions{Tags: r.Tags, SkipHistory: r.SkipHistory, IdempotencyKey: r.IdempotencyKey,
		Bytes: r.Data == nil}
	if r.Version != 0 || r.VersionEpoch != "" {
		o.Version = &Version{Number: r.Version, Epoch: r.VersionEpoch}
	}
	if r.Data != nil && len(r.B64Data) > 0 {
		return nil, o, badRequest("data and b64data are both given: use one")
	}
	if data = r.Data; o.Bytes {
		data = r.B64Data
	}
	return data, o, nil
}

// appendPublished appends the result of a publication: its position, if the channel has a history.
func appendPublished(dst []byte, at Position) []byte {
	if at.Epoch == "" {
		return append(dst, "{}"...)
	}
	dst = strconv.AppendUint(append(dst, `{"offset":`...), at.Offset, 10)
	return append(centrifuge.AppendString(append(dst, `,"epoch":`...), at.Epoch), '}')
}
