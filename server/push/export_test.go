package push

import "github.com/myriad-go/myriad/server/push/hub"

// What the tests, which are outside of the package, see of the inside.
const (
	MostConnections = mostConnections
	ConnectionBytes = connectionBytes
	SilentNode      = silentNode
	KeptSamples     = keptSamples
	SampleEvery     = sampleEvery
)

var (
	SampleFields = sampleFields
	CompactSize  = compactSize
)

// ConnectionsHere returns the connections of one node.
func (s *Server) ConnectionsHere(most int) ConnectionList {
	return s.cluster.connectionsHere(operation{Most: most})
}

// Hub returns the server's hub.
func (s *Server) Hub() *hub.Hub { return s.hub }
