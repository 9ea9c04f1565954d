package push_test

import (
	"strings"
	"testing"

	"github.com/myriad-go/myriad/server/push"
)

// Rules about users need clients that have one.
func TestPersonalChannelsNeedUsers(t *testing.T) {
	if _, err := push.New(push.Config{Namespaces: []push.Namespace{{Personal: true}}}); err == nil ||
		!strings.Contains(err.Error(), "no client has a user") {
		t.Errorf("without users: %v", err)
	}
}
