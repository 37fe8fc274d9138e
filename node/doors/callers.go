package doors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
)

// Access says who is served.
type Access string

// The values of Access.
const (
	// AccessPublic serves every caller everything.
	AccessPublic Access = "public"
	// AccessIdentified serves callers what their roles allow.
	AccessIdentified Access = "identified"
)

// Role says what a caller may do.
type Role string

// The roles. RoleNone is that of an unidentified caller.
const (
	RoleNone         Role = ""
	RoleOrganisation Role = "organisation" // reads its own accounts, submits what it signs
	RoleAuditor      Role = "auditor"      // reads everything, submits nothing
	RoleOperator     Role = "operator"     // reads and submits everything
)

// Caller is the source of a request.
type Caller struct {
	Name string
	Role Role
	// Organisation is that of RoleOrganisation.
	Organisation string
}

// ReadsAll reports whether the caller may read the whole book.
func (c *Caller) ReadsAll() bool { return c.Role == RoleAuditor || c.Role == RoleOperator }

// anyCaller is the caller of every request to a public node.
var anyCaller = &Caller{Name: "public", Role: RoleOperator}

// nobody is an unidentified caller.
var nobody = &Caller{Role: RoleNone}

type callerKey struct{}

// CallerOf returns the caller that Identify found. Without Identify, it is an unidentified one.
func CallerOf(ctx context.Context) *Caller {
	if caller, ok := ctx.Value(callerKey{}).(*Caller); ok {
		return caller
	}
	return nobody
}

// callers identifies callers. It is nil if every caller may do everything.
type callers struct {
	path   string
	logger *slog.Logger
	loaded atomic.Pointer[identities]
	files  *files
}

// newCallers reads the choice of access and the identities.
func newCallers(config *Config, secure bool, logger *slog.Logger) (*callers, error) {
	access := config.Access
	if access == "" && config.Identities != "" {
		access = AccessIdentified
	}
	reachable := false
	if host, _, err := net.SplitHostPort(config.Listen); err == nil {
		reachable = !IsLoopback(host)
	}
	switch {
	case access == "" && reachable:
		return nil, fmt.Errorf("api.access is missing, and api.listen %s is not a loopback "+
			"address: every caller that reaches it could read the whole book and submit to it; "+
			"write access = \"public\" under [api] if that is meant, or else access = "+
			"\"identified\" and identities = \"identities.json\" (`ledgerd access add` writes "+
			"that file)",
			config.Listen)
	case access == "" || access == AccessPublic:
		if config.Identities != "" {
			return nil, errors.New("api.identities: nobody asks for identities with access = " +
				"\"public\": leave one of the two out")
		}
		return nil, nil
	case access != AccessIdentified:
		return nil, fmt.Errorf("api.access: %q is neither public nor identified", access)
	case config.Identities == "":
		return nil, errors.New("api.identities is missing: access = \"identified\" needs the " +
			"file of those that may call")
	case reachable && !secure:
		return nil, fmt.Errorf("api.certificate is missing: tokens that callers send to %s would "+
			"be readable on the way; set certificate and key, or listen at a loopback address "+
			"behind a proxy that serves TLS", config.Listen)
	}
	c := &callers{path: config.Identities, logger: logger}
	c.files = watch(c.path)
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// load reads the identities, and the issuers' keys that they name.
func (c *callers) load() error {
	next, err := readIdentities(c.path)
	if err == nil {
		// The file says which others to look at. Read again after the look, so that a change in
		// between is not missed.
		c.files.paths = append([]string{c.path}, next.jwksFiles()...)
		c.files.seen = c.files.stamps()
		next, err = readIdentities(c.path)
	}
	if err != nil {
		return fmt.Errorf("api.identities: %w", err)
	}
	for _, issuer := range next.issuers {
		if issuer.published != nil {
			issuer.published.logger = c.logger
		}
	}
	c.loaded.Store(next)
	return nil
}

// identify finds the caller of a request. It returns an error if the request has a token that is
// not good.
func (c *callers) identify(r *http.Request, now time.Time) (*Caller, error) {
	c.files.ifChanged(now, func() {
		if err := c.load(); err != nil {
			c.logger.Warn("the API keeps its identities: the changed files cannot be used",
				"error", err)
			return
		}
		c.logger.Info("the API's identities were read again", "file", c.path)
	})
	known := c.loaded.Load()
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, fmt.Errorf("authorization %q is unknown: send a bearer token", scheme)
		}
		return known.byToken(strings.TrimSpace(token), now)
	}
	// A certificate counts only if one of the authorities of client_ca signed it.
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		if caller := known.byCertificate(r.TLS.PeerCertificates[0], now); caller != nil {
			return caller, nil
		}
	}
	return nobody, nil
}

// Identify finds the caller of each request, for CallerOf. It refuses requests with a token that is
// not good, and lets those without any identity pass: what is behind decides about them.
func (d *Doors) Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := anyCaller
		if callers := d.current.Load().callers; callers != nil {
			var err error
			if caller, err = callers.identify(r, time.Now()); err != nil {
				w.Header().Set("WWW-Authenticate", `Bearer realm="ledgerd", error="invalid_token"`)
				Refuse(w, r, http.StatusUnauthorized,
					connect.NewError(connect.CodeUnauthenticated, err))
				return
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

// ErrUnidentified is the error of a call without an identity.
var ErrUnidentified = errors.New("this node serves identified callers only: show a token or a " +
	"client's certificate")

// Readers serves callers that may read the whole book, and refuses others.
func Readers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch caller := CallerOf(r.Context()); {
		case caller.ReadsAll():
			next.ServeHTTP(w, r)
		case caller.Role == RoleNone:
			w.Header().Set("WWW-Authenticate", `Bearer realm="ledgerd"`)
			http.Error(w, ErrUnidentified.Error(), http.StatusUnauthorized)
		default:
			http.Error(w, "only auditors and operators may read this", http.StatusForbidden)
		}
	})
}
