package hub

// The doors import this package, so its own tests cannot import them. Package hub_test can, and
// gives them to the tests here.

// Given by UseDoors.
var (
	testDoors  func() []Door
	runMessage func(s *Session, p []byte) // of a client of Centrifuge

	jsonForm, protobufForm, uniForm, eventForm Form // of Centrifuge in a WebSocket, and of /events
)

// UseDoors gives the tests what they need of the doors.
func UseDoors(all func() []Door, run func(*Session, []byte)) {
	testDoors, runMessage = all, run
	jsonForm, protobufForm = formOf("websocket", "json"), formOf("websocket", "protobuf")
	uniForm, eventForm = formOf("uni_websocket", "json"), formOf("events", "json")
}

// formOf returns the first form of that kind.
func formOf(transport, protocol string) Form {
	for _, d := range testDoors() {
		for _, f := range d.Forms() {
			if t, p := f.Kind(); t == transport && p == protocol {
				return f
			}
		}
	}
	panic("no form of " + transport + " in " + protocol)
}
