//go:build race

package buf

// poison overwrites freed bytes in builds with the race detector, so that a view that outlived its
// reference shows in a test, as wrong bytes or as a race, before it does in production.
const poison = true
