package centrifuge

// An Error is the answer to one command that failed; the connection stays open. If Temporary is
// set, a retry may succeed. Codes below 400 belong to the protocol.
type Error struct {
	Code      uint32
	Message   string
	Temporary bool
}

// A Disconnect ends a connection. Over WebSocket code and reason are those of the close frame, so
// the reason must stay below 124 bytes. Clients reconnect after 3000–3499 and after 4000–4499, but
// not after 3500–3999 and 4500–4999.
type Disconnect struct {
	Code   uint16
	Reason string
}

// Reconnect reports whether clients reconnect after d.
func (d Disconnect) Reconnect() bool {
	return d.Code < 3500 || d.Code >= 4000 && d.Code < 4500
}

// An Unsubscribed is why the server has ended a subscription. Clients subscribe again if the code
// is 2500 or above.
type Unsubscribed struct {
	Code   uint32
	Reason string
}
