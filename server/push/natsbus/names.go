package natsbus

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// This file makes the names of streams and subjects. A channel's name is one token, in base64url: a
// subject with a dot, a wildcard or a space in it would reach other channels, or break the
// protocol.
//
//	PREFIX.h.CLASS.PART.TOKEN  what a log stores
//	PREFIX.p.CLASS.PART.TOKEN  the same, published again by the log: what nodes listen to
//	PREFIX.h.CLASS.PART.$e     the log's epoch; no token has a $
//	PREFIX.h.CLASS.PART.$m.N   marks, which say how far back positions are valid; probes
//	PREFIX.t.TOKEN             publications without a history, and notices
//	PREFIX.q.TOKEN             questions to all nodes
//	PREFIX.n.NODE.TOKEN        the same to one node, by a hash of its name
//	PREFIX.b                   signs of life

// maxName bounds a channel's name in bytes. A control line of NATS has at most 4,096 bytes.
const maxName = 1024

var errName = fmt.Errorf("natsbus: the name of a channel has 1 to %d bytes", maxName)

func tokenOf(channel string) (string, error) {
	if channel == "" || len(channel) > maxName {
		return "", errName
	}
	return base64.RawURLEncoding.EncodeToString([]byte(channel)), nil
}

func channelOf(token string) (string, bool) {
	name, err := base64.RawURLEncoding.DecodeString(token)
	return string(name), err == nil && len(name) > 0
}

// A logID names one log: the channels with the same retention that fall into one part.
type logID struct {
	keep        bus.Retention
	part, parts int
}

// idOf returns the log of a channel.
func idOf(t bus.Topic, parts int) logID {
	return logID{t.Keep, int(hash64(t.Name) % uint64(parts)), parts}
}

// class is what all logs of one retention share. It has the number of parts, so that nodes with
// another number do not mix up their logs.
func (id logID) class() string {
	return fmt.Sprintf("%dx%dx%d", id.keep.Size, int64(id.keep.Age), id.parts)
}

func (id logID) stream(prefix string) string {
	return fmt.Sprintf("%s_H_%s_%d", prefix, id.class(), id.part)
}

// subjects returns the beginning of the log's subjects; kind is "h" or "p".
func (id logID) subjects(prefix, kind string) string {
	return prefix + "." + kind + "." + id.class() + "." + strconv.Itoa(id.part) + "."
}

// A logName is what NATS knows a log by.
type logName struct {
	id       logID
	stream   string
	stored   string // what the log stores has subjects that begin with it
	received string // of what it publishes again
}

func (id logID) name(prefix string) *logName {
	return &logName{id: id, stream: id.stream(prefix), stored: id.subjects(prefix, "h"),
		received: id.subjects(prefix, "p")}
}

// parseStream is the inverse of stream.
func parseStream(prefix, name string) (id logID, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix+"_H_")
	class, part, ok2 := strings.Cut(rest, "_")
	fields := strings.Split(class, "x")
	if !ok || !ok2 || len(fields) != 3 {
		return id, false
	}
	size, err1 := strconv.Atoi(fields[0])
	age, err2 := strconv.ParseInt(fields[1], 10, 64)
	parts, err3 := strconv.Atoi(fields[2])
	n, err4 := strconv.Atoi(part)
	id = logID{bus.Retention{Size: size, Age: time.Duration(age)}, n, parts}
	valid := err1 == nil && err2 == nil && err3 == nil && err4 == nil && size > 0 && age > 0 && n >= 0 && n < parts
	return id, valid && id.stream(prefix) == name
}

// channelEpoch makes a channel's epoch of its log's: so two channels never have the same.
func channelEpoch(log, channel string) string {
	if log == "" {
		return ""
	}
	sum := hash64(log + "\x00" + channel)
	return hex.EncodeToString([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}
