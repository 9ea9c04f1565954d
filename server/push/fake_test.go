package push_test

import (
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/internal/tokentest"
)

const testSecret = tokentest.Secret

var (
	sign   = tokentest.Sign
	tokens = tokentest.Tokens
)

// A testServer is a servertest.Server with what single tests add to it.
type testServer struct{ *servertest.Server }

func newTestServer(t *testing.T, c push.Config) *testServer {
	t.Helper()
	return &testServer{servertest.New(t, c)}
}

// A liveServer is a servertest.Live with what single tests add to it.
type liveServer struct{ *servertest.Live }

func newLiveServer(t *testing.T, c push.Config) *liveServer {
	t.Helper()
	return &liveServer{servertest.NewLive(t, c)}
}
