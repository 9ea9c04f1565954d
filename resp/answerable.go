package resp

import (
	"errors"
	"fmt"
	"strings"
)

var errNoCommand = errors.New("resp: the command was not sent: it has no name")

// answerable says why a Client cannot send a command: no reply of its own comes to it. The commands
// behind it would wait for theirs in vain, or get those of others.
func answerable[T string | []byte](args []T) error {
	if len(args) == 0 {
		return errNoCommand
	}
	const longest = len("PUNSUBSCRIBE")
	if len(args[0]) < len("SYNC") || len(args[0]) > longest {
		return nil
	}
	var room [longest]byte
	name := room[:copy(room[:], args[0])]
	for i, b := range name {
		name[i] = upper(b)
	}
	switch string(name) {
	case "SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE":
		return fmt.Errorf("resp: the command was not sent: %s has no reply: use Subscribe, PSubscribe and "+
			"Subscription.Close of Client", string(name))
	case "MONITOR", "SYNC", "PSYNC":
		return fmt.Errorf("resp: the command was not sent: after %s a connection takes no other commands", string(name))
	case "CLIENT":
		if len(args) > 1 && strings.EqualFold(string(args[1]), "REPLY") {
			return errors.New("resp: the command was not sent: a Client needs the replies that CLIENT REPLY turns off")
		}
	}
	return nil
}
