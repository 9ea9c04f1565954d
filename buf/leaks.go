package buf

// A Reporter is the part of testing.TB that CheckLeaks needs.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Cleanup(f func())
}

// CheckLeaks makes a test fail if more blocks are in use when it ends than were when CheckLeaks was
// called. Call it first, because cleanups run last in, first out and what the test stops must be
// stopped by then; and not in parallel tests, because the count is that of the process.
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

// overwrite makes freed memory recognisable in a dump.
func overwrite(p []byte) {
	for i := range p {
		p[i] = 0xDB
	}
}
