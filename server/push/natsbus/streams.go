package natsbus

import (
	"context"
	"time"
)

const (
	// dedupe is how long a log knows the ID of a message. Every ID takes memory for that long.
	dedupe = time.Minute
	// publishTime is how long Publish tries: less than dedupe, so that it never stores twice.
	publishTime = 30 * time.Second
)

// streams creates logs, gives them replicas, and moves their leaders.
type streams struct {
	*jetStream
	config Config
	nodes  *nodes
}

type republish struct {
	Source      string `json:"src"`
	Destination string `json:"dest"`
}

// A streamConfig is the configuration of a log, with JetStream's fields. Its defaults hold for the
// rest.
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

// maxAge is how long a log keeps a message.
func (s *streams) maxAge(id logID) time.Duration {
	return max(s.config.PositionAge, id.keep.Age, minAge)
}

func (s *streams) streamConfig(id logID, replicas int) streamConfig {
	return streamConfig{
		Name: id.stream(s.prefix), Subjects: []string{id.subjects(s.prefix, "h") + ">"},
		Retention: "limits", Storage: "file", Discard: "old", Replicas: replicas,
		// One more than the history: the oldest one shows that none is missing after it.
		PerSubject: int64(id.keep.Size) + 1,
		MaxMsgs:    -1, MaxBytes: s.config.LogBytes, MaxConsumers: -1, MaxMsgSize: -1,
		MaxAge:     s.maxAge(id),
		Duplicates: min(dedupe, s.maxAge(id)),
		// For Forget. A purge would hide from readers that something is missing.
		AllowRollup: true, AllowDirect: true,
		RePublish: republish{id.subjects(s.prefix, "h") + ">", id.subjects(s.prefix, "p") + ">"},
	}
}

// ensure creates the log, or gives it more replicas if there are more nodes now.
func (s *streams) ensure(ctx context.Context, id logID) error {
	name, want := id.stream(s.prefix), s.replicas()
	i, err := s.info(ctx, name)
	switch {
	case isCode(err, codeStreamNotFound):
		err = s.call(ctx, "STREAM.CREATE."+name, s.streamConfig(id, want), nil)
		if isCode(err, codeStreamNameInUse) { // another node has just created it
			return nil
		}
		return err
	case err != nil:
		return err
	case i.Config.Replicas < want:
		return s.call(ctx, "STREAM.UPDATE."+name, s.streamConfig(id, want), nil)
	}
	return nil
}

// replicas is how many nodes should store a log now: an odd number, of the nodes that are there.
func (s *streams) replicas() int {
	want := s.config.Replicas
	if want == 0 {
		want = 3
	}
	there := len(s.nc.Servers()) // those of an external NATS
	if s.config.Server != nil {
		there = len(s.nodes.alive()) + 1
	}
	for want > there {
		want -= 2
	}
	return max(want, 1)
}

// grow gives a log more replicas, if this node leads it and there are more nodes now. i has just
// come from its leader.
func (s *streams) grow(ctx context.Context, name *logName, i streamInfo) {
	want := s.replicas()
	if i.Cluster == nil || i.Cluster.Leader != s.node || i.Config.Replicas >= want {
		return
	}
	err := s.call(ctx, "STREAM.UPDATE."+name.stream, s.streamConfig(name.id, want), nil)
	s.log.Info("natsbus: a log gets more replicas", "log", name.stream, "replicas", want, "error", err)
}

// names returns the streams of all logs, those that this node does not follow included.
func (s *streams) names(ctx context.Context) ([]string, error) {
	var answer struct {
		Streams []string `json:"streams"`
	}
	filter := map[string]string{"subject": s.prefix + ".h.>"}
	err := s.call(ctx, "STREAM.NAMES", filter, &answer)
	return answer.Streams, err
}

// preference asks for a leader. NATS chooses another one if that node cannot lead.
type preference struct {
	Placement *struct {
		Preferred string `json:"preferred"`
	} `json:"placement,omitempty"`
}

// preferring returns a preference for that node; empty: none.
func preferring(node string) (p preference) {
	if node != "" {
		p.Placement = &struct {
			Preferred string `json:"preferred"`
		}{node}
	}
	return p
}

// stepDown makes another node lead a log: the node with the name to, if it can. Empty: any node.
func (s *streams) stepDown(ctx context.Context, stream, to string) error {
	return s.call(ctx, "STREAM.LEADER.STEPDOWN."+stream, preferring(to), nil)
}
