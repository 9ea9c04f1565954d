//go:build !linux

// Command redis needs Linux.
package main

func main() { panic("this program needs Linux") }
