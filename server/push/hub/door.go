package hub

import "net/http"

// A Door is a protocol by which clients, programs or operators use the server. It turns their bytes
// into operations on a session (operations.go and subscription.go) or on the Server, and
// publications into its own bytes. What is above the doors names no protocol.
//
// A door does the following for each client:
//
//   - It counts the connection against the limit of the client's address: by
//     Server.LimitConnections around its handler, or by Server.MayOpen.
//   - If the token comes with the request that opens the connection, the door calls
//     Server.AuthenticateRequest or Server.Authenticate, then Server.ConnectWait, then
//     Server.StartConnected. If the token comes later, the door calls Server.Start, and then
//     Session.Connect with the token. Until Connect has succeeded, Session.MustBeConnected returns
//     an error: the door calls it before every operation but Connect.
//   - After the start it calls Session.Introduce with what Hub.RequestInfo returns. Without that,
//     hooks do not know the client's transport, protocol and header.
//   - It calls Session.MaySubscribeNow before Subscribe, and Session.MayCommandNow before other
//     commands, such as History and Presence. Connect, AdmitAll and Publish count by themselves.
//   - An operation returns an Error, which the door sends as the answer, or an error with a
//     Disconnect, which the door passes to Session.DisconnectFor.
//   - When the connection has ended for any reason, the door calls Session.Ended once.
//
// A door belongs to one server. All doors of a server have at most 32 forms together; New
// returns an error if they have more.
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
