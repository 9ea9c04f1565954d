//go:build race

package buf

// poison overwrites freed bytes in builds with the race detector. A view that outlives its
// reference then shows in a test, as wrong bytes or as a race.
const poison = true
