module github.com/myriad-go/myriad/server

go 1.26.0

require github.com/myriad-go/myriad v0.0.0

require (
	github.com/golang-jwt/jwt/v5 v5.3.1 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/urfave/cli/v3 v3.14.0 // indirect
)

replace github.com/myriad-go/myriad => ../
