package buf

// A Reporter is the part of testing.TB that CheckLeaks needs.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Cleanup(f func())
}

// CheckLeaks fails a test if more blocks are in use at its end than at the call of CheckLeaks. Call
// it first: cleanups run last in, first out, and those that release blocks must run before it. Do
// not use it in parallel tests, because it counts the blocks of the whole process.
func CheckLeaks(t Reporter) {
	t.Helper()
	before := InUse()
	t.Cleanup(func() {
		t.Helper()
		if after := InUse(); after > before {
			t.Errorf("buf: %d blocks not released (%d in use, %d at the start)", after-before, after, before)
		}
	})
}

// overwrite fills freed memory with a recognisable pattern.
func overwrite(p []byte) {
	for i := range p {
		p[i] = 0xDB
	}
}
