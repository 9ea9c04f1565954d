//go:build !race

package buf

const poison = false
