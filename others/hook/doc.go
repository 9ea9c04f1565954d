// Package hook puts web.Server behind every http.Server of a program, and client.Transport behind
// every http.Transport. Test binaries import it. Its code compiles only with the overlay that the
// command others makes, which gives net/http the variables that hook sets: hence its build tag.
package hook
