// Package sums is the service of the example, as protoc generates it from sums.proto.
package sums
