//go:build !linux

package main

// adoptNodes does nothing: here nodes do not upgrade themselves under cluster dev.
func adoptNodes() error { return nil }

// endNodes does nothing: the commands of the nodes end with their context.
func endNodes(string) {}
