package natsbus

import (
	"context"
	"time"
)

// This file creates logs.

const (
	// dedupe is how long a log knows the ID of a message. Every ID takes memory for that long.
	dedupe = time.Minute
	// publishTime is how long Publish tries: less than dedupe, so that it never stores twice.
	publishTime = 30 * time.Second
)

type republish struct {
	Source      string `json:"src"`
	Destination string `json:"dest"`
}

// A streamConfig is the configuration of a log. JetStream's defaults hold for the rest.
type streamConfig struct {
	Name         string        `json:"name"`
	Subjects     []string      `json:"subjects"`
	Retention    string        `json:"retention"`
	Storage      string        `json:"storage"`
	Discard      string        `json:"discard"`
	Replicas     int           `json:"num_replicas"`
	PerSubject   int64         `json:"max_msgs_per_subject"`
	MaxMsgs      int64         `json:"max_msgs"`
	MaxBytes     int64         `json:"max_bytes"`
	MaxAge       time.Duration `json:"max_age"`
	MaxConsumers int           `json:"max_consumers"`
	MaxMsgSize   int           `json:"max_msg_size"`
	Duplicates   time.Duration `json:"duplicate_window"`
	AllowDirect  bool          `json:"allow_direct"`
	AllowRollup  bool          `json:"allow_rollup_hdrs"`
	RePublish    republish     `json:"republish"`
}

// minAge is the least MaxAge of JetStream.
const minAge = 100 * time.Millisecond

func (b *Bus) streamConfig(id logID, replicas int) streamConfig {
	return streamConfig{
		Name: id.stream(b.prefix), Subjects: []string{id.subjects(b.prefix, "h") + ">"},
		Retention: "limits", Storage: "file", Discard: "old", Replicas: replicas,
		// One more than the history: the oldest one shows that none is missing after it.
		PerSubject: int64(id.keep.Size) + 1,
		MaxMsgs:    -1, MaxBytes: b.config.LogBytes, MaxConsumers: -1, MaxMsgSize: -1,
		MaxAge:     max(b.config.PositionAge, id.keep.Age, minAge),
		Duplicates: min(dedupe, max(b.config.PositionAge, id.keep.Age, minAge)),
		// For Forget. A purge would hide from readers that something is missing.
		AllowRollup: true, AllowDirect: true,
		RePublish: republish{id.subjects(b.prefix, "h") + ">", id.subjects(b.prefix, "p") + ">"},
	}
}

// ensure creates the log, or gives it more replicas if there are more nodes now.
func (b *Bus) ensure(ctx context.Context, id logID) error {
	name, want := id.stream(b.prefix), b.replicas()
	i, err := b.info(ctx, name)
	switch {
	case isCode(err, codeStreamNotFound):
		err = b.call(ctx, "STREAM.CREATE."+name, b.streamConfig(id, want), nil)
		if isCode(err, codeStreamNameInUse) { // another node has just created it
			return nil
		}
		return err
	case err != nil:
		return err
	case i.Config.Replicas < want:
		return b.call(ctx, "STREAM.UPDATE."+name, b.streamConfig(id, want), nil)
	}
	return nil
}
