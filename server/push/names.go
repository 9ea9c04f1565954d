package push

import (
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/policy"
)

// These types of package bus appear in the calls of a Server and in Hooks. A program that embeds a
// server, and has no bus of its own, needs no import of that package.
type (
	Publication = bus.Publication
	Version     = bus.Version
	Kind        = bus.Kind
	Position    = bus.Position
	Query       = bus.Query
	History     = bus.History
	ClientInfo  = bus.ClientInfo
	Presence    = bus.Presence
)

// What the Data of a Publication is.
const (
	JSON   = bus.JSON   // one valid JSON value in UTF-8
	Text   = bus.Text   // UTF-8
	Binary = bus.Binary // any bytes
)

// ErrUncertain is what a call returns that may or may not have published: repeat it, with the same
// IdempotencyKey.
var ErrUncertain = bus.ErrUncertain

// These types of package answer are what hooks return, and what calls of a Server fail with.
type (
	Error      = answer.Error
	Disconnect = answer.Disconnect
)

// The server's own errors.
var (
	ErrInternal          = answer.ErrInternal
	ErrUnauthorized      = answer.ErrUnauthorized
	ErrUnknownChannel    = answer.ErrUnknownChannel
	ErrPermissionDenied  = answer.ErrPermissionDenied
	ErrMethodNotFound    = answer.ErrMethodNotFound
	ErrAlreadySubscribed = answer.ErrAlreadySubscribed
	ErrLimitExceeded     = answer.ErrLimitExceeded
	ErrBadRequest        = answer.ErrBadRequest
	ErrNotAvailable      = answer.ErrNotAvailable
	ErrTokenExpired      = answer.ErrTokenExpired
	ErrTooManyRequests   = answer.ErrTooManyRequests
	ErrUnrecoverable     = answer.ErrUnrecoverable

	// ErrDraining is returned by calls while the server shuts down.
	ErrDraining = answer.ErrDraining
	// ErrOverloaded is returned by calls that publish while what was published before cannot be
	// delivered. Nothing was published.
	ErrOverloaded = answer.ErrOverloaded
)

// These types of package policy say what is allowed in channels, and how often.
type (
	Namespace   = policy.Namespace
	PublishRule = policy.PublishRule
	SlowPolicy  = policy.SlowPolicy
	Rates       = policy.Rates
	Rate        = policy.Rate
	Capability  = policy.Capability
	ChannelNote = policy.ChannelNote
)

// The values of Namespace.Publish and Namespace.Slow.
const (
	PublishClients     = policy.PublishClients
	PublishSubscribers = policy.PublishSubscribers
	PublishToken       = policy.PublishToken
	PublishNobody      = policy.PublishNobody

	SlowDisconnect = policy.SlowDisconnect
	SlowDropOldest = policy.SlowDropOldest
	SlowLatestOnly = policy.SlowLatestOnly
)

// MaxHistorySize bounds Namespace.HistorySize, in publications.
const MaxHistorySize = policy.MaxHistorySize

// ErrNeedsRestart is the error of CheckNamespaces and Reload for namespaces that are valid, and to
// which a running server cannot change.
var ErrNeedsRestart = policy.ErrNeedsRestart

// These types of package hub are what a Config has, what hooks get and answer, and what calls of a
// Server return.
type (
	Door   = hub.Door
	Limits = hub.Limits
	Timing = hub.Timing
	Clock  = hub.Clock

	Hooks            = hub.Hooks
	Caller           = hub.Caller
	ConnectRequest   = hub.ConnectRequest
	ConnectAnswer    = hub.ConnectAnswer
	RefreshAnswer    = hub.RefreshAnswer
	SubscribeRequest = hub.SubscribeRequest
	SubscribeAnswer  = hub.SubscribeAnswer
	SubRefreshAnswer = hub.SubRefreshAnswer
	PublishRequest   = hub.PublishRequest
	PublishAnswer    = hub.PublishAnswer

	Override       = hub.Override
	ChannelInfo    = hub.ChannelInfo
	ChannelList    = hub.ChannelList
	ConnectionInfo = hub.ConnectionInfo
	Counts         = hub.Counts
	SlowClient     = hub.SlowClient
	ShownRefusal   = hub.ShownRefusal
)

// KindOf returns the kind of bytes that a client or backend publishes without naming one: JSON if
// they are, else Binary.
func KindOf(data []byte) Kind { return hub.KindOf(data) }
