package doors

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// provider is an issuer in this process that publishes its keys.
type provider struct {
	*httptest.Server
	asked    atomic.Int32 // for keys
	describe atomic.Pointer[func(w http.ResponseWriter)]

	mu      sync.Mutex
	private map[string]ed25519.PrivateKey
}

func newProvider(t *testing.T, ids ...string) *provider {
	t.Helper()
	p := new(provider)
	p.rotate(t, ids...)
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			if describe := p.describe.Load(); describe != nil {
				(*describe)(w)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": p.URL,
				"jwks_uri": p.URL + "/keys"})
		case "/keys":
			p.asked.Add(1)
			p.mu.Lock()
			defer p.mu.Unlock()
			var keys []map[string]string
			for id, key := range p.private {
				keys = append(keys, map[string]string{"kty": "OKP", "kid": id, "crv": "Ed25519",
					"x": encode(key.Public().(ed25519.PublicKey))})
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"keys": keys})
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// rotate replaces the issuer's keys.
func (p *provider) rotate(t *testing.T, ids ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.private = map[string]ed25519.PrivateKey{}
	for _, id := range ids {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		must(t, err)
		p.private[id] = private
	}
}

// token makes a token of anna, which is good for a week, with a key of the issuer.
func (p *provider) token(t *testing.T, id string) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	return signJWT(t, p.private[id], map[string]any{"alg": "EdDSA", "kid": id},
		map[string]any{"iss": p.URL, "sub": "u1", "aud": "ledgerd",
			"exp": time.Now().Add(7 * 24 * time.Hour).Unix()})
}

// believers are the callers of a node that believes an issuer.
func (p *provider) believers(t *testing.T) *callers {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "ca.crt"), pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600))
	path := writeIdentities(t, dir, &Identities{
		Issuers:    []Issuer{{Issuer: p.URL, Audience: "ledgerd", CA: "ca.crt"}},
		Identities: []Identity{{Name: "anna", Role: RoleAuditor, Issuer: p.URL, Subject: "u1"}},
	})
	gates, err := New(Config{Identities: path, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	return gates.current.Load().callers
}

// takes reports whether a token is good at a time.
func (c *callers) takes(token string, now time.Time) bool {
	r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	caller, err := c.identify(r, now)
	return err == nil && caller.Name == "anna"
}

// TestDiscovery: a node finds an issuer's keys, finds new ones when a token names one, and forgets
// withdrawn ones. Unknown keys make it ask once a minute.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	p := newProvider(t, "one")
	c, now := p.believers(t), time.Now()
	if p.asked.Load() != 0 {
		t.Error("the node asks before anybody needs it")
	}
	first := p.token(t, "one")
	for range 3 {
		if !c.takes(first, now) {
			t.Fatal("a good token is refused")
		}
	}
	if p.asked.Load() != 1 {
		t.Errorf("asked %d times", p.asked.Load())
	}
	p.rotate(t, "two")
	second := p.token(t, "two")
	if c.takes(second, now.Add(askEvery-time.Second)) {
		t.Error("the issuer was asked twice in a minute")
	}
	if now = now.Add(askEvery); !c.takes(second, now) || c.takes(first, now) {
		t.Error("the new key does not count, or the old one does")
	}
	p.rotate(t, "three")
	for range 100 {
		c.takes(p.token(t, "three"), now.Add(time.Second))
	}
	if p.asked.Load() != 2 {
		t.Errorf("unknown keys made the node ask %d times", p.asked.Load())
	}
	// A key that was withdrawn counts for an hour at most, without a token that names another.
	if now = now.Add(keysFresh); c.takes(second, now) {
		t.Error("a withdrawn key counts")
	}
}

// TestIssuerIsAway: the node starts without its issuer, goes on with the keys that it has for a
// day, and believes nothing that is not the issuer's.
func TestIssuerIsAway(t *testing.T) {
	t.Parallel()
	p := newProvider(t, "one")
	away := func(w http.ResponseWriter) { http.Error(w, "away", http.StatusBadGateway) }
	p.describe.Store(&away)
	c, now := p.believers(t), time.Now()
	token := p.token(t, "one")
	if c.takes(token, now) {
		t.Fatal("a token without its issuer's keys is taken")
	}
	p.describe.Store(nil)
	if now = now.Add(askEvery); !c.takes(token, now) {
		t.Fatal("the issuer is back, and its token is refused")
	}
	began := now
	for name, describe := range map[string]func(w http.ResponseWriter){
		"away":    away,
		"no JSON": func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) },
		"another issuer": func(w http.ResponseWriter) {
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": "https://evil.example",
				"jwks_uri": p.URL + "/keys"})
		},
		"keys over plain HTTP": func(w http.ResponseWriter) {
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": p.URL,
				"jwks_uri": "http://login.example/keys"})
		},
		"elsewhere": func(w http.ResponseWriter) {
			w.Header().Set("Location", p.URL+"/keys")
			w.WriteHeader(http.StatusFound)
		},
		"endless": func(w http.ResponseWriter) {
			text := []byte(strings.Repeat(" ", 64<<10))
			for range 64 {
				if _, err := w.Write(text); err != nil {
					return
				}
			}
		},
	} {
		p.describe.Store(&describe)
		asked := p.asked.Load()
		if now = now.Add(keysFresh); !c.takes(token, now) || p.asked.Load() != asked {
			t.Errorf("%s: the keys of before do not count, or new ones do", name)
		}
	}
	if c.takes(token, began.Add(keysGood)) {
		t.Error("keys count for ever although the issuer does not answer")
	}
}

func TestWrongIssuers(t *testing.T) {
	t.Parallel()
	for _, issuer := range []Issuer{
		{Issuer: "http://login.example", Audience: "a"},
		{Issuer: "login.example", Audience: "a"},
		{Issuer: "https://", Audience: "a"},
		{Issuer: "https://login.example"},
		{Issuer: "https://login.example", Audience: "a", CA: "none.crt"},
		{Issuer: "https://login.example", Audience: "a", CA: "none.crt", JWKS: "none.json"},
	} {
		if _, err := newIssuer(&issuer, t.TempDir()); err == nil {
			t.Errorf("%+v is taken", issuer)
		}
	}
	for _, issuer := range []string{"https://login.example", "http://127.0.0.1:8080/realm"} {
		if _, err := newIssuer(&Issuer{Issuer: issuer, Audience: "a"}, "."); err != nil {
			t.Error(err)
		}
	}
}
