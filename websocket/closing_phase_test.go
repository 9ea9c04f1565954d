package websocket

import "testing"

// No step undoes what an earlier one has said: output that has ended stays so, and so do callbacks
// that no longer come, and a connection that is gone.
func TestPhasesOnlyGoOn(t *testing.T) {
	for p := range phases {
		for s := range steps {
			var before, after closer
			before.now.Store(uint32(p))
			after.now.Store(uint32(transitions[p][s]))
			if !before.writable() && after.writable() || before.muted() && !after.muted() ||
				before.gone() && after.phase() != p || before.over() && !after.over() {
				t.Errorf("phase %d, step %d: phase %d", p, s, after.phase())
			}
			if s == vanishes && !after.gone() || (s == closes || s == answers) && after.writable() ||
				s == drops && !after.over() {
				t.Errorf("phase %d: step %d leads to phase %d", p, s, after.phase())
			}
		}
	}
}
