package doors

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeIdentities writes a file of identities.
func writeIdentities(t *testing.T, dir string, file *Identities) string {
	t.Helper()
	text, err := json.Marshal(file)
	must(t, err)
	path := filepath.Join(dir, "identities.json")
	must(t, os.WriteFile(path, text, 0o600))
	return path
}

// who returns the name of the caller that the doors find, or the status of their refusal.
func who(gates *Doors, header string) string {
	r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	w := httptest.NewRecorder()
	gates.Identify(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := CallerOf(r.Context())
		fmt.Fprintf(w, "%s %s %s", caller.Name, caller.Role, caller.Organisation)
	})).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return fmt.Sprint(w.Code)
	}
	return w.Body.String()
}

// Who reaches a node's address is served without an identity only on loopback, or by choice.
func TestAccessIsChosen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pair(t, dir, 0)
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	path := writeIdentities(t, dir, &Identities{})
	cases := []struct {
		config Config
		wrong  string
	}{
		{Config{Listen: "127.0.0.1:1"}, ""},
		{Config{Listen: "[::1]:1"}, ""},
		{Config{Listen: "localhost:1"}, ""},
		{Config{Listen: "0.0.0.0:1"}, `write access = "public" under [api]`},
		{Config{Listen: ":1"}, "api.access is missing"},
		{Config{Listen: "10.0.0.1:1"}, "api.access is missing"},
		{Config{Listen: "books.example:1", Certificate: certificate, Key: key},
			"api.access is missing"},
		{Config{Listen: "10.0.0.1:1", Access: AccessPublic}, ""},
		{Config{Listen: "10.0.0.1:1", Access: AccessPublic, Identities: path}, "leave one"},
		{Config{Listen: "10.0.0.1:1", Access: "all"}, "neither public nor identified"},
		{Config{Listen: "10.0.0.1:1", Access: AccessIdentified}, "api.identities is missing"},
		{Config{Listen: "10.0.0.1:1", Identities: path}, "api.certificate is missing"},
		{Config{Listen: "10.0.0.1:1", Identities: path, Certificate: certificate, Key: key}, ""},
		{Config{Listen: "127.0.0.1:1", Identities: path}, ""},
		{Config{Listen: "127.0.0.1:1", Identities: filepath.Join(dir, "none")}, "no such file"},
	}
	for _, c := range cases {
		_, err := New(c.config)
		if (err == nil) != (c.wrong == "") || err != nil &&
			!strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.wrong)
		}
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, goodHash := NewToken()
	old, oldHash := NewToken()
	past := time.Now().Add(-time.Second)
	file := &Identities{Identities: []Identity{
		{Name: "acme", Role: RoleOrganisation, Organisation: "acme", TokenSHA256: goodHash},
		{Name: "old", Role: RoleOperator, TokenSHA256: oldHash, Expires: &past},
	}}
	path := writeIdentities(t, dir, file)
	gates, err := New(Config{Identities: path, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	for header, want := range map[string]string{
		"":                     "  ",
		"Bearer " + good:       "acme organisation acme",
		"bearer  " + good:      "acme organisation acme",
		"Bearer " + good + "x": "401",
		"Bearer " + goodHash:   "401",
		"Bearer " + old:        "401",
		"Bearer ":              "401",
		"Bearer":               "401",
		"Basic " + good:        "401",
	} {
		if got := who(gates, header); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
	// A token that is taken out of the file no longer counts, without a restart.
	file.Identities = file.Identities[1:]
	writeIdentities(t, dir, file)
	callers := gates.current.Load().callers
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+good)
	if _, err := callers.identify(r, time.Now().Add(time.Hour)); err == nil {
		t.Error("a token that was revoked counts")
	}
	// A damaged file changes nothing.
	must(t, os.WriteFile(path, []byte("{"), 0o600))
	if _, err := callers.identify(r, time.Now().Add(2*time.Hour)); err == nil {
		t.Error("a damaged file brought a token back")
	}
}

func TestWrongIdentities(t *testing.T) {
	t.Parallel()
	_, hash := NewToken()
	for wrong, file := range map[string]string{
		"unknown field":  `{"identities":[],"others":[]}`,
		"role":           `{"identities":[{"name":"a","role":"king","certificate":"CN=a"}]}`,
		"needs the name": `{"identities":[{"name":"a","role":"organisation","certificate":"CN=a"}]}`,
		"needs one of":   `{"identities":[{"name":"a","role":"auditor"}]}`,
		"64 hex digits":  `{"identities":[{"name":"a","role":"auditor","token_sha256":"secret"}]}`,
		"its issuer":     `{"identities":[{"name":"a","role":"auditor","issuer":"x","subject":"y"}]}`,
		"there twice": `{"identities":[{"name":"a","role":"auditor","certificate":"CN=a"},` +
			`{"name":"a","role":"auditor","certificate":"CN=b"}]}`,
		"the same token": `{"identities":[{"name":"a","role":"auditor","token_sha256":"` + hash +
			`"},{"name":"b","role":"auditor","token_sha256":"` + hash + `"}]}`,
		"something after": `{"identities":[]}{}`,
	} {
		path := filepath.Join(t.TempDir(), "identities.json")
		must(t, os.WriteFile(path, []byte(file), 0o600))
		if _, err := New(Config{Identities: path}); err == nil ||
			!strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func encode(part []byte) string { return base64.RawURLEncoding.EncodeToString(part) }

// signJWT makes a JWT with any header and claims.
func signJWT(t *testing.T, key crypto.Signer, header, claims map[string]any) string {
	t.Helper()
	one, err := json.Marshal(header)
	must(t, err)
	two, err := json.Marshal(claims)
	must(t, err)
	signed := encode(one) + "." + encode(two)
	digest := sha256.Sum256([]byte(signed))
	var signature []byte
	switch key := key.(type) {
	case ed25519.PrivateKey:
		signature = ed25519.Sign(key, []byte(signed))
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
		must(t, err)
		signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	default:
		signature, err = key.Sign(rand.Reader, digest[:], crypto.SHA256)
		must(t, err)
	}
	return signed + "." + encode(signature)
}

func TestJWT(t *testing.T) {
	t.Parallel()
	rsaPrivate, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	ecPrivate, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	edPublic, edPrivate, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	point, err := ecPrivate.PublicKey.Bytes()
	must(t, err)
	dir := t.TempDir()
	set := map[string]any{"keys": []map[string]string{
		{"kty": "RSA", "kid": "r", "use": "sig", "alg": "RS256", "n": encode(rsaPrivate.N.Bytes()),
			"e": "AQAB"},
		{"kty": "EC", "kid": "e", "crv": "P-256", "x": encode(point[1:33]),
			"y": encode(point[33:])},
		{"kty": "OKP", "kid": "o", "crv": "Ed25519", "x": encode(edPublic)},
		{"kty": "oct", "kid": "s", "k": "c2VjcmV0"},
	}}
	text, err := json.Marshal(set)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "jwks.json"), text, 0o600))
	const from = "https://login.example"
	path := writeIdentities(t, dir, &Identities{
		Issuers:    []Issuer{{Issuer: from, Audience: "ledgerd", JWKS: "jwks.json"}},
		Identities: []Identity{{Name: "anna", Role: RoleAuditor, Issuer: from, Subject: "u1"}},
	})
	gates, err := New(Config{Identities: path})
	must(t, err)
	now := time.Now().Unix()
	good := map[string]any{"iss": from, "sub": "u1", "aud": "ledgerd", "exp": now + 600}
	with := func(base map[string]any, key string, value any) map[string]any {
		changed := maps.Clone(base)
		if changed[key] = value; value == nil {
			delete(changed, key)
		}
		return changed
	}
	const anna = "anna auditor "
	keys := map[string]crypto.Signer{"RS256": rsaPrivate, "ES256": ecPrivate, "EdDSA": edPrivate}
	for algorithm, key := range keys {
		if got := who(gates, "Bearer "+signJWT(t, key, map[string]any{"alg": algorithm},
			good)); got != anna {
			t.Errorf("%s: %s", algorithm, got)
		}
	}
	header := map[string]any{"alg": "EdDSA", "kid": "o"}
	claiming := func(key string, value any) string {
		return signJWT(t, edPrivate, header, with(good, key, value))
	}
	token := signJWT(t, edPrivate, header, good)
	parts := strings.Split(token, ".")
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	for name, c := range map[string]struct {
		token string
		want  string
	}{
		"good":              {token, anna},
		"several audiences": {claiming("aud", []string{"x", "ledgerd"}), anna},
		"other audience":    {claiming("aud", "other"), "401"},
		"no audience":       {claiming("aud", nil), "401"},
		"other issuer":      {claiming("iss", "https://evil.example"), "401"},
		"unknown subject":   {claiming("sub", "u2"), "401"},
		"expired":           {claiming("exp", now-120), "401"},
		"never expires":     {claiming("exp", nil), "401"},
		"not yet":           {claiming("nbf", now+120), "401"},
		"critical header": {signJWT(t, edPrivate, with(header, "crit",
			[]string{"b64"}), good), "401"},
		"other key":       {signJWT(t, stranger, header, good), "401"},
		"other key's id":  {signJWT(t, edPrivate, with(header, "kid", "r"), good), "401"},
		"other algorithm": {signJWT(t, edPrivate, with(header, "alg", "RS256"), good), "401"},
		"no algorithm":    {signJWT(t, edPrivate, with(header, "alg", "none"), good), "401"},
		"none, unsigned":  {encode([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".", "401"},
		"cut":             {token[:len(token)-3], "401"},
		"padded":          {token + "=", "401"},
		"two parts":       {parts[0] + "." + parts[1], "401"},
		"other claims": {parts[0] + "." + encode([]byte(`{"sub":"root"}`)) + "." + parts[2],
			"401"},
		"huge": {token + strings.Repeat("A", tokenBytesMax), "401"},
	} {
		if got := who(gates, "Bearer "+c.token); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// FuzzJWT: no text but the issuer's own passes, and none crashes the node.
func FuzzJWT(f *testing.F) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	issuers := map[string]*issuer{"i": {Issuer: Issuer{Issuer: "i", Audience: "a"},
		keys: []publicKey{{algorithm: "EdDSA", key: public}}}}
	signed := encode([]byte(`{"alg":"EdDSA"}`)) + "." +
		encode([]byte(`{"iss":"i","sub":"s","aud":"a","exp":4102444800}`))
	good := signed + "." + encode(ed25519.Sign(private, []byte(signed)))
	f.Add(good)
	f.Add(signed + ".")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if _, _, err := verifyJWT(token, issuers, time.Unix(1, 0)); err == nil && token != good {
			t.Fatalf("%q passes", token)
		}
	})
}

// FuzzKeySet: no set of keys crashes the node.
func FuzzKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"OKP","crv":"Ed25519"}]}`))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = readKeySet(text) })
}

// A client's certificate counts if one of the configured authorities signed it and its subject is
// an identity.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	dir, clients, strangers := t.TempDir(), t.TempDir(), t.TempDir()
	roots := pair(t, dir, 0)
	pair(t, clients, 0)
	pair(t, strangers, 0)
	path := writeIdentities(t, dir, &Identities{Identities: []Identity{
		{Name: "books", Role: RoleAuditor, Certificate: "CN=ledgerd"}}})
	gates, err := New(Config{Certificate: filepath.Join(dir, "tls.crt"),
		Key: filepath.Join(dir, "tls.key"), ClientCA: filepath.Join(clients, "tls.crt"),
		Identities: path, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	server := httptest.NewUnstartedServer(gates.Identify(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(CallerOf(r.Context()).Name))
		})))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	go func() { _ = gates.Serve(server.Config, server.Listener) }()
	t.Cleanup(func() { _ = server.Config.Close() })
	for from, want := range map[string]string{"": "", clients: "books", strangers: "error"} {
		config := &tls.Config{RootCAs: roots}
		if from != "" {
			shown, err := tls.LoadX509KeyPair(filepath.Join(from, "tls.crt"),
				filepath.Join(from, "tls.key"))
			must(t, err)
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate,
				error) {
				return &shown, nil
			}
		}
		_, got, err := get(t, "https://"+server.Listener.Addr().String(), config)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("certificate from %q: %q %v, want %q", from, got, err, want)
		}
	}
}
