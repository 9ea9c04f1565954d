module github.com/myriad-go/myriad/server/clients/testdata/gocent

go 1.26.0

require github.com/centrifugal/gocent/v3 v3.3.0
