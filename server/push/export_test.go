package push

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
