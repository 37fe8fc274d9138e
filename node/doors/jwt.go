package doors

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// tokenBytesMax bounds a JWT.
	tokenBytesMax = 8 << 10
	// clockLeeway is how far an issuer's clock may differ from this node's.
	clockLeeway = time.Minute
	// rsaBitsMin is the smallest RSA key that is taken.
	rsaBitsMin = 2048
)

// issuer is an Issuer with its keys: those of a file, or those that it publishes.
type issuer struct {
	Issuer
	path      string // empty if published is set
	keys      []publicKey
	published *discovery
}

// keysFor returns the keys that may have made a signature.
func (i *issuer) keysFor(id string, now time.Time) []publicKey {
	if i.published != nil {
		return i.published.keysFor(id, now)
	}
	return i.keys
}

// publicKey is a key of a set [RFC 7517], for one algorithm [RFC 7518, RFC 8037].
type publicKey struct {
	id        string
	algorithm string // RS256, ES256 or EdDSA
	key       crypto.PublicKey
}

func newIssuer(config *Issuer, dir string) (*issuer, error) {
	if config.Issuer == "" || config.Audience == "" {
		return nil, errors.New("issuer and audience are needed")
	}
	beside := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
	made := &issuer{Issuer: *config, path: beside(config.JWKS)}
	var err error
	if made.path == "" {
		made.published, err = newDiscovery(config.Issuer, beside(config.CA))
		return made, err
	}
	if config.CA != "" {
		return nil, errors.New("ca is for an issuer without jwks")
	}
	text, err := os.ReadFile(made.path)
	if err != nil {
		return nil, err
	}
	made.keys, err = readKeySet(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", made.path, err)
	}
	return made, nil
}

// readKeySet reads the keys that sign with a known algorithm. It skips all others, as [RFC 7517,
// section 5] asks.
func readKeySet(text []byte) (keys []publicKey, err error) {
	var set struct {
		Keys []struct {
			Type      string `json:"kty"`
			ID        string `json:"kid"`
			Use       string `json:"use"`
			Algorithm string `json:"alg"`
			Curve     string `json:"crv"`
			N, E      string
			X, Y      string
		} `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, err
	}
	for i := range set.Keys {
		k := &set.Keys[i]
		if k.Use != "" && k.Use != "sig" {
			continue
		}
		read := publicKey{id: k.ID}
		switch {
		case k.Type == "RSA" && (k.Algorithm == "" || k.Algorithm == "RS256"):
			read.algorithm = "RS256"
			read.key, err = rsaKey(k.N, k.E)
		case k.Type == "EC" && k.Curve == "P-256":
			read.algorithm = "ES256"
			read.key, err = ecKey(k.X, k.Y)
		case k.Type == "OKP" && k.Curve == "Ed25519":
			read.algorithm = "EdDSA"
			var x []byte
			if x, err = base64.RawURLEncoding.DecodeString(k.X); err == nil &&
				len(x) != ed25519.PublicKeySize {
				err = errors.New("an Ed25519 key has 32 bytes")
			}
			read.key = ed25519.PublicKey(x)
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", k.ID, err)
		}
		keys = append(keys, read)
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no key for RS256, ES256 or EdDSA")
	}
	return keys, nil
}

func rsaKey(n, e string) (*rsa.PublicKey, error) {
	modulus, err := base64.RawURLEncoding.DecodeString(n)
	if err != nil {
		return nil, err
	}
	exponent, err := base64.RawURLEncoding.DecodeString(e)
	if err != nil {
		return nil, err
	}
	key := &rsa.PublicKey{N: new(big.Int).SetBytes(modulus)}
	large := new(big.Int).SetBytes(exponent)
	if key.N.BitLen() < rsaBitsMin || !large.IsInt64() || large.Int64() < 3 ||
		large.Int64() > 1<<31-1 || large.Bit(0) == 0 {
		return nil, fmt.Errorf("an RSA key has at least %d bits and an odd exponent", rsaBitsMin)
	}
	key.E = int(large.Int64())
	return key, nil
}

func ecKey(x, y string) (*ecdsa.PublicKey, error) {
	point := []byte{4}
	for _, text := range []string{x, y} {
		coordinate, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		if len(coordinate) != 32 {
			return nil, errors.New("a coordinate of P-256 has 32 bytes")
		}
		point = append(point, coordinate...)
	}
	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
}

// verifies reports whether a key made a signature.
func (k *publicKey) verifies(signed, signature []byte) bool {
	digest := sha256.Sum256(signed)
	switch key := k.key.(type) {
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], signature) == nil
	case *ecdsa.PublicKey:
		return len(signature) == 64 && ecdsa.Verify(key, digest[:],
			new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:]))
	case ed25519.PublicKey:
		return ed25519.Verify(key, signed, signature)
	}
	return false
}

// audience is the claim aud: one text or several.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte{'"'}) {
		*a = make(audience, 1)
		return json.Unmarshal(text, &(*a)[0])
	}
	return json.Unmarshal(text, (*[]string)(a))
}

func (a audience) has(name string) bool {
	for _, each := range a {
		if each == name {
			return true
		}
	}
	return false
}

// verifyJWT checks a JWT [RFC 7519] that one of the issuers signed in compact form [RFC 7515], and
// returns its issuer and subject. The key decides about the algorithm, not the token.
func verifyJWT(token string, issuers map[string]*issuer, now time.Time) (iss, subject string,
	err error) {
	parts := strings.Split(token, ".")
	if len(token) > tokenBytesMax || len(parts) != 3 {
		return "", "", errors.New("not a signed JWT")
	}
	var decoded [3][]byte
	for i, part := range parts {
		if decoded[i], err = base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return "", "", err
		}
	}
	var header struct {
		Algorithm string          `json:"alg"`
		KeyID     string          `json:"kid"`
		Critical  json.RawMessage `json:"crit"`
	}
	var claims struct {
		Issuer    string   `json:"iss"`
		Subject   string   `json:"sub"`
		Audience  audience `json:"aud"`
		Expires   *float64 `json:"exp"`
		NotBefore *float64 `json:"nbf"`
	}
	if err := errors.Join(json.Unmarshal(decoded[0], &header),
		json.Unmarshal(decoded[1], &claims)); err != nil {
		return "", "", err
	}
	from := issuers[claims.Issuer]
	seconds := float64(now.UnixMilli()) / 1000
	switch {
	case from == nil:
		return "", "", errors.New("unknown issuer")
	case header.Critical != nil:
		return "", "", errors.New("unknown critical headers")
	case !claims.Audience.has(from.Audience):
		return "", "", errors.New("for another audience")
	case claims.Expires == nil || seconds >= *claims.Expires+clockLeeway.Seconds():
		return "", "", errors.New("expired")
	case claims.NotBefore != nil && seconds < *claims.NotBefore-clockLeeway.Seconds():
		return "", "", errors.New("not valid yet")
	case claims.Subject == "":
		return "", "", errors.New("no subject")
	}
	signed := []byte(parts[0] + "." + parts[1])
	keys := from.keysFor(header.KeyID, now)
	for i := range keys {
		key := &keys[i]
		if key.algorithm == header.Algorithm && (header.KeyID == "" || key.id == header.KeyID) &&
			key.verifies(signed, decoded[2]) {
			return claims.Issuer, claims.Subject, nil
		}
	}
	return "", "", errors.New("no key of the issuer made the signature")
}
