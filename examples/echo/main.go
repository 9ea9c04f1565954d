// Command echo runs an echo application on Myriad: routes with parameters, a stream of lines, and a
// file.
//
//	go run ./examples/echo
//	curl localhost:8080/hello/Ann
//	curl -N localhost:8080/count/5
//	curl localhost:8080/source
package main

import (
	"embed"
	"flag"
	"fmt"
	"log"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/myriad-go/myriad/web"
)

//go:embed main.go
var source embed.FS

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "host:port to listen on")
	flag.Parse()
	log.Print("serving on http://", *addr)
	log.Fatal(web.ListenAndServe(*addr, routes()))
}

func routes() http.Handler {
	e := echo.New()
	e.Use(middleware.Recover(), middleware.Gzip())
	e.GET("/hello/:name", func(c echo.Context) error {
		return c.JSON(http.StatusOK, map[string]string{"hello": c.Param("name")})
	})
	e.POST("/shout", func(c echo.Context) error {
		var in struct{ Text string }
		if err := c.Bind(&in); err != nil {
			return err
		}
		return c.String(http.StatusOK, in.Text+"!")
	})
	e.GET("/count/:to", count)
	e.FileFS("/source", "main.go", source)
	return e
}

// count writes a line at a time: each is on its way before the next is made.
func count(c echo.Context) error {
	to, err := strconv.Atoi(c.Param("to"))
	if err != nil {
		return echo.NewHTTPError(http.StatusBadRequest, "count to a number")
	}
	c.Response().Header().Set("Content-Type", "text/plain")
	for i := range min(to, 1000) {
		if _, err := fmt.Fprintln(c.Response(), i+1); err != nil {
			return err
		}
		c.Response().Flush()
	}
	return nil
}
