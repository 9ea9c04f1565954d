package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push"
	"github.com/urfave/cli/v3"
)

func tokenCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "token",
		Usage: "make and check the tokens of clients",
		Commands: []*cli.Command{
			{
				Name:  "make",
				Usage: "print a token, signed with the token secret (HS256)",
				Flags: []cli.Flag{secretFlag(),
					&cli.StringFlag{Name: "user", Usage: "`NAME` of the bearer, the claim sub"},
					&cli.StringFlag{Name: "expires", Value: "1h", Usage: "`TIME` until the token expires"},
					&cli.StringFlag{Name: "channel", Usage: "`NAME` of a channel, for the token of a subscription"},
					&cli.StringFlag{Name: "claims", Usage: "further claims, a `JSON` object"},
				},
				Action: func(_ context.Context, c *cli.Command) error { return makeToken(c, stdout, time.Now()) },
			},
			{
				Name:      "check",
				Usage:     "say what a token allows, or why the server refuses it",
				ArgsUsage: "TOKEN",
				Flags: []cli.Flag{secretFlag(),
					&cli.StringSliceFlag{Name: "token-key", Usage: "`FILE` with public keys (PEM); repeatable",
						Sources: cli.EnvVars("MYRIAD_TOKEN_KEY"), TakesFile: true},
					&cli.StringFlag{Name: "token-jwks-url", Usage: "`URL` of a JSON Web Key Set",
						Sources: cli.EnvVars("MYRIAD_TOKEN_JWKS_URL")},
					&cli.StringFlag{Name: "token-issuer", Usage: "`ISSUER` that iss must name",
						Sources: cli.EnvVars("MYRIAD_TOKEN_ISSUER")},
					&cli.StringFlag{Name: "token-audience", Usage: "`AUDIENCE` that aud must have",
						Sources: cli.EnvVars("MYRIAD_TOKEN_AUDIENCE")},
				},
				Action: func(ctx context.Context, c *cli.Command) error { return checkToken(ctx, c, stdout) },
			},
		},
	}
}

func secretFlag() cli.Flag {
	return &cli.StringFlag{Name: "token-secret", Usage: "`SECRET` that signs tokens",
		Sources: cli.EnvVars("MYRIAD_TOKEN_SECRET")}
}

// makeToken prints a token that the server accepts.
func makeToken(c *cli.Command, stdout io.Writer, now time.Time) error {
	if c.Args().Present() {
		return fmt.Errorf("token make takes no arguments, but got %q", c.Args().First())
	}
	secret := c.String("token-secret")
	if secret == "" {
		return errors.New("there is no secret to sign with: set --token-secret (MYRIAD_TOKEN_SECRET)")
	}
	lasting, err := parseTime(c.String("expires"))
	if err != nil {
		return fmt.Errorf("--expires is %q: %w", c.String("expires"), err)
	}
	claims := jwt.MapClaims{}
	if text := c.String("claims"); text != "" {
		if err := json.Unmarshal([]byte(text), &claims); err != nil {
			return fmt.Errorf("--claims: %w: write a JSON object, as in {\"channels\": [\"news\"]}", err)
		}
	}
	claims["exp"] = now.Add(lasting).Unix()
	for name, value := range map[string]string{"sub": c.String("user"), "channel": c.String("channel")} {
		if value != "" {
			claims[name] = value
		}
	}
	if sub, _ := claims["sub"].(string); sub == "" && claims["mercure"] == nil {
		return errors.New("clients need a token with a user: set --user")
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, token)
	return err
}

// checkToken prints the token's header and claims, and what they allow.
func checkToken(ctx context.Context, c *cli.Command, stdout io.Writer) error {
	if c.Args().Len() != 1 {
		return errors.New("name one token: myriad token check TOKEN")
	}
	s := settings{tokenKeys: c.StringSlice("token-key")}
	s.push = push.Config{TokenSecret: c.String("token-secret"), TokenKeysURL: c.String("token-jwks-url"),
		TokenIssuer: c.String("token-issuer"), TokenAudience: c.String("token-audience")}
	if err := s.readTokenKeys(); err != nil {
		return err
	}
	r, err := push.CheckToken(ctx, s.push, strings.TrimSpace(c.Args().First()))
	var out bytes.Buffer
	for _, part := range []struct {
		name string
		text json.RawMessage
	}{{"header", r.Header}, {"claims", r.Claims}} {
		if part.text != nil {
			fmt.Fprintf(&out, "%s: %s\n", part.name, part.text)
		}
	}
	if err == nil {
		explainToken(&out, r)
	}
	_, wrong := stdout.Write(out.Bytes())
	return errors.Join(wrong, err)
}

func explainToken(out io.Writer, r push.TokenReport) {
	ends := "never ends"
	if !r.Ends.IsZero() {
		ends = "ends at " + r.Ends.UTC().Format(time.RFC3339)
	}
	if r.Channel != "" {
		fmt.Fprintf(out, "valid: %s may subscribe to %q; the subscription %s\n", r.User, r.Channel, ends)
		if r.Publish {
			fmt.Fprintln(out, "and publish there, under the rule publish=token")
		}
		return
	}
	fmt.Fprintf(out, "valid: a connection of %s, which %s\n", r.User, ends)
	if len(r.Channels) > 0 {
		fmt.Fprintf(out, "the server subscribes it to %s\n", strings.Join(r.Channels, ", "))
	}
}
