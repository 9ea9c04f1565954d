package mercure

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Earliest is the Last-Event-ID of a subscriber that wants the whole history.
const Earliest = "earliest"

// EventID returns the id of an update whose publisher chose none: a UUID of version 8 (RFC 9562
// §5.8) that holds the update's place in the history. So no table of ids is needed to find it.
func EventID(epoch string, offset uint64) string {
	var id [16]byte
	sum := sha256.Sum256([]byte(epoch))
	copy(id[:8], sum[:])
	binary.BigEndian.PutUint64(id[8:], offset)
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	text := hex.EncodeToString(id[:])
	return uuidPrefix + text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

const uuidPrefix = "urn:uuid:"

// ParseEventID returns the offset in an id that EventID has made for that epoch.
func ParseEventID(id, epoch string) (offset uint64, ok bool) {
	text, ok := strings.CutPrefix(strings.ToLower(id), uuidPrefix)
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if !ok || err != nil || len(raw) != 16 {
		return 0, false
	}
	raw[8] &= 0x3f
	offset = binary.BigEndian.Uint64(raw[8:])
	return offset, EventID(epoch, offset) == strings.ToLower(id)
}

// IsEventID reports whether id has the form of those that EventID makes, for any epoch.
func IsEventID(id string) bool { return strings.HasPrefix(strings.ToLower(id), uuidPrefix) }
