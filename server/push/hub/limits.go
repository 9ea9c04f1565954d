package hub

import (
	"time"

	"github.com/myriad-go/myriad/server/push/membus"
)

// BodySlack is how much longer than its data the body of a request that publishes may be, in bytes.
// It leaves room for the channel and other fields.
const BodySlack = 4 << 10

// QueueSlack is how much more than Limits.Queue a transport's queue holds. It leaves room for the
// framing of messages.
const QueueSlack = 64 << 10

// Limits bounds what one client, and one message, may cost. The zero value is the default for every
// field.
type Limits struct {
	// Queue is how many bytes may wait for one client, default 1 MiB. If a message does not fit,
	// its client is disconnected with code 3008 "slow"; other clients are not affected.
	Queue int
	// Frame is the size of a client's WebSocket message in bytes, default 64 KiB. A longer one
	// closes the connection with 1009.
	Frame int
	// Commands is how many commands one frame, or one batch of the API, may hold, default 256. A
	// client that sends more is disconnected with 3501 "bad request"; the API answers 413.
	Commands int
	// Channels is how many channels one client may be subscribed to, default 128. Another one is
	// error 106 "limit exceeded", or status 400 for SSE.
	Channels int
	// ChannelName is the length of a channel's name in bytes, default 255. A longer one is error
	// 107 "bad request" or status 400.
	ChannelName int
	// Publication is the size of a publication's data and tags in bytes, default 256 KiB and at
	// most 8 MiB. Spaces between tokens of JSON do not count. More is error 107 "bad request" for a
	// client and 106 "limit exceeded" for the API.
	Publication int
	// HistoryBytes is how much memory the histories of all channels may take, default 256 MiB.
	// Above it, the channels without a publication for the longest time lose their histories. A
	// client that wants to recover in such a channel cannot.
	HistoryBytes int
	// HistoryChannels is how many channels may have a history or a position, default 100,000. Above
	// it, channels lose their histories as for HistoryBytes.
	HistoryChannels int
	// Recovered is how many publications one reply may hold, for recovery or for a history command,
	// default 1,000. A client that has missed more is answered that not all could be recovered. A
	// history command returns as many, and the client may ask for more. Queue bounds the bytes of a
	// reply in the same way.
	Recovered int
	// Present is how many clients the answer to a presence command may hold, default 1,000. More is
	// error 106 "limit exceeded"; presence_stats has no limit.
	Present int
	// Broadcast is how many channels one broadcast of the API may name, default 10,000. More is
	// error 106 "limit exceeded".
	Broadcast int
	// Batch is the size in bytes of an API request: default 4 MiB, at least twice Publication; that
	// of a publish is also at most 16 times Publication. A larger one is answered 413. It also
	// bounds the replies to a batch: after that many bytes, the remaining commands are answered 106
	// "limit exceeded".
	Batch int
	// IdempotencyKeys is how many idempotency keys of publications the server remembers, for five
	// minutes each, default 100,000. Above it the server forgets the oldest key; a publication that
	// repeats that key is made again.
	IdempotencyKeys int
}

// WithDefaults returns l with the defaults of fields that are not set.
func (l Limits) WithDefaults() Limits {
	setDefault(&l.Queue, 1<<20)
	setDefault(&l.Frame, 64<<10)
	setDefault(&l.Commands, 256)
	setDefault(&l.Channels, 128)
	setDefault(&l.ChannelName, 255)
	setDefault(&l.Publication, 256<<10)
	setDefault(&l.HistoryBytes, membus.DefaultHistoryBytes)
	setDefault(&l.HistoryChannels, membus.DefaultHistoryChannels)
	setDefault(&l.Recovered, 1000)
	setDefault(&l.Present, 1000)
	setDefault(&l.Broadcast, 10_000)
	setDefault(&l.Batch, 4<<20)
	setDefault(&l.IdempotencyKeys, membus.DefaultIdempotencyKeys)
	l.Publication = min(l.Publication, 8<<20)
	l.Batch = max(l.Batch, 2*l.Publication+BodySlack) // base64 takes four bytes for three
	return l
}

// Timing holds the server's intervals and timeouts. The zero value is the default for every field.
type Timing struct {
	// Ping is the time between two pings to a client, default 25 s, in whole seconds. An SSE
	// subscriber gets a comment instead.
	Ping time.Duration
	// Pong is how long a client may take to answer a ping, less than Ping. The default is 10 s or
	// 2/5 of Ping, whichever is less. After that it is disconnected with code 3012 "no pong".
	Pong time.Duration
	// Connect is how long a client may take to connect successfully, default 10 s. After that it is
	// disconnected with 3502 "stale".
	Connect time.Duration
	// Spread is the time over which Shutdown disconnects clients, default 0: at once. In a cluster
	// the other nodes get them a part at a time.
	Spread time.Duration
	// Refresh is how long after its token has expired a client may still send a new one, default 25
	// s, and twice that if the loops are late. After that it is disconnected with 3005 "connection
	// expired". SSE subscribers cannot send tokens: their streams end when the token expires.
	Refresh time.Duration
	// Close is how long a client may take to read what is queued and answer the close frame,
	// default 5 s. After that the server drops the connection.
	Close time.Duration
}

func (t Timing) withDefaults() Timing {
	setDefault(&t.Ping, 25*time.Second)
	t.Ping = max(t.Ping.Truncate(time.Second), time.Second)
	setDefault(&t.Pong, min(10*time.Second, t.Ping*2/5))
	setDefault(&t.Connect, 10*time.Second)
	setDefault(&t.Refresh, 25*time.Second)
	setDefault(&t.Close, 5*time.Second)
	return t
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}
