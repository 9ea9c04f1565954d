package hub

import "net/http"

// A Door is a protocol by which clients, programs or operators use the server. It turns their bytes
// into operations on a session (operations.go and subscription.go) or on the Hub, and publications
// into its own bytes. What is above the doors names no protocol.
//
// A door does the following for each client:
//
//   - It counts the connection against the limit of the client's address: by Hub.LimitConnections
//     around its handler, or by Hub.MayOpen.
//   - If the token comes with the request that opens the connection, the door calls
//     Hub.AdmitRequest, and then Hub.ServeStream or Hub.StartConnected. Without a request it calls
//     Hub.Authenticate, Hub.ConnectWait and Hub.StartConnected. If the token comes later, the door
//     calls Hub.Start, and then Session.Connect with the token. Until Connect has succeeded,
//     Session.MustBeConnected returns an error: the door calls it before every operation but
//     Connect.
//   - It calls Session.MaySubscribeNow before Subscribe, and Session.MayCommandNow before other
//     commands, such as History and Presence. Connect, AdmitAll and Publish count by themselves.
//   - An operation returns an Error, which the door sends as the answer, or an error with a
//     Disconnect, which the door passes to Session.DisconnectFor. Hub.Refuse answers an HTTP
//     request with either. A call that failed is answered by Hub.WriteFailure. Who may come back
//     learns when from both; a protocol without HTTP asks Hub.ConnectLater or Hub.CallLater.
//   - Its replies take the same way as publications: Session.Offer, so that Limits.Queue bounds both.
//     After OfferFull it calls Session.TooSlow. Session.Tell does both.
//   - When the connection has ended for any reason, the door calls Session.Ended once.
//
// Operations may block: on a hook, on the bus, and on a channel with many members. So a door calls
// them where user code may block: in an HTTP handler of package web, or in a callback of package
// websocket or resp. It never calls them in a callback of a myriad.Handler, which would hold up the
// other connections of the loop. A door with connections of its own runs commands by a
// workers.Keyed on Hub.Workers: with the connection as the key they keep their order. The
// operations of one session do not overlap. Start, StartConnected, Offer, Tell, TooSlow and
// Disconnect do not block. Ended waits at most for a delivery that runs.
//
// Session.Subscribe and Join call announce after the last publication that the client does not get,
// and before the first one that it gets. So the door queues its confirmation there, and not after
// they have returned. Some doors say in the reply to connect what the server has subscribed the
// client to. They call Session.Hold, Session.SubscribeFirst, and Session.ReleaseHeld with the
// reply, in this order. SubscribeFirst subscribes before there is a reply: what is published
// meanwhile waits behind it. ReleaseHeld comes also when SubscribeFirst has failed, with what the
// client is told.
//
// A door whose clients read one long response calls Hub.MoveStreams in Open, so that they can move
// to another process. A door with other connections calls Session.AppendState and Session.Moved in
// the old process, and Hub.ThawSession in the new one.
//
// What a door has of the bus besides, by Hub.Bus, ends by Hub.OnClose.
//
// A door belongs to one server. All doors of a server have at most 32 forms together; New returns
// an error if they have more.
type Door interface {
	// Forms are the ways in which the door writes to clients, all that it ever uses.
	Forms() []Form
	// Open prepares the door for its server, and returns what adds its paths to a mux: those that
	// clients use, and those for programs and operators. nil: there are none. New calls it once.
	Open(h *Hub) (clients, admin func(mux *http.ServeMux))
}

// FormsOf returns the forms of all doors, for Config.Forms.
func FormsOf(doors []Door) (all []Form) {
	for _, d := range doors {
		all = append(all, d.Forms()...)
	}
	return all
}
