package natsbus

import "testing"

// NATS expects as many nodes as there are routes: an address that is given twice counts once.
func TestRoutesCountOnce(t *testing.T) {
	options, err := new(Server).optionsOf(ServerConfig{Name: "n1", Dir: t.TempDir(), Listen: "127.0.0.1:1",
		Routes: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:1", "127.0.0.1:2"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(options.Routes) != 3 {
		t.Errorf("the routes are %v", options.Routes)
	}
}
