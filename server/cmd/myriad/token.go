package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/myriad-go/myriad/server/push"
	"github.com/urfave/cli/v3"
)

func tokenCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "token",
		Usage: "make, check and explain the tokens of clients",
		Commands: []*cli.Command{
			{
				Name:  "make",
				Usage: "print a token, signed with the token secret or a private key",
				Flags: []cli.Flag{secretFlag(),
					&cli.StringFlag{Name: "key",
						Usage:     "`FILE` with a private key (PEM or JWK), instead of the secret",
						TakesFile: true},
					&cli.StringFlag{Name: "algorithm",
						Usage: "`NAME`, as in HS512 or PS256; without it, the key's usual one"},
					&cli.StringFlag{Name: "kid", Usage: "`ID` of the key, for the header"},
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
			explainCommand(stdout, stderr),
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
	key, err := signerOf(c)
	if err != nil {
		return err
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
	token, err := key.sign(claims)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, token)
	return err
}

// signerOf returns what the flags say: the key of --key, or the secret.
func signerOf(c *cli.Command) (s signer, err error) {
	switch file, secret := c.String("key"), c.String("token-secret"); {
	case file != "":
		s, err = readSigner(file)
	case secret != "":
		s.key = []byte(secret)
	default:
		err = errors.New("there is no secret to sign with: set --token-secret (MYRIAD_TOKEN_SECRET), or --key")
	}
	s.algorithm, s.id = cmp.Or(c.String("algorithm"), s.algorithm), cmp.Or(c.String("kid"), s.id)
	return s, err
}

// explainCommand has the options of serve that matter for tokens and channels.
func explainCommand(stdout, stderr io.Writer) *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "`FILE` of the server", Sources: cli.EnvVars("MYRIAD_CONFIG"),
			TakesFile: true},
		&cli.StringSliceFlag{Name: "channel",
			Usage: "`NAME` of a channel: say what the bearer may do there; repeatable"},
	}
	for _, o := range options {
		if strings.HasPrefix(o.name, "token-") || o.name == "namespace" || o.name == "deny-client-publish" {
			flags = append(flags, o.flag())
		}
	}
	return &cli.Command{
		Name:                      "explain",
		Usage:                     "say what each claim of a token does, what its bearer may do, and why",
		ArgsUsage:                 "TOKEN",
		Flags:                     flags,
		DisableSliceFlagSeparator: true,
		Action: func(ctx context.Context, c *cli.Command) error {
			return explainToken(ctx, c, stdout, stderr)
		},
	}
}

func explainToken(ctx context.Context, c *cli.Command, stdout, stderr io.Writer) error {
	if c.Args().Len() != 1 {
		return errors.New("name one token: myriad token explain TOKEN")
	}
	s, err := configure(c, os.Environ(), stderr)
	if err = errors.Join(err, s.readTokenKeys()); err != nil {
		return err
	}
	e, err := push.ExplainToken(ctx, s.push, strings.TrimSpace(c.Args().First()), c.StringSlice("channel")...)
	_, wrong := io.WriteString(stdout, e.String())
	return errors.Join(wrong, err)
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
		reportToken(&out, r)
	}
	_, wrong := stdout.Write(out.Bytes())
	return errors.Join(wrong, err)
}

func reportToken(out io.Writer, r push.TokenReport) {
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
	for _, one := range r.Capabilities {
		fmt.Fprintf(out, "it may %s in %s %s\n", strings.Join(one.Allow, ", "), cmp.Or(one.Match, "the channels"),
			strings.Join(one.Channels, ", "))
	}
}
