package doors

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Identities is the file of those that may call a node.
type Identities struct {
	Identities []Identity `json:"identities"`
	Issuers    []Issuer   `json:"issuers,omitempty"`
}

// Identity is a caller, and how a node recognises it: by a token, by a certificate, or by a JWT.
type Identity struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Organisation is that of RoleOrganisation.
	Organisation string `json:"organisation,omitempty"`
	// TokenSHA256 is the hash of a token that NewToken made, in hex.
	TokenSHA256 string `json:"token_sha256,omitempty"`
	// Certificate is the subject of a client's certificate, as "CN=books,O=Acme".
	Certificate string `json:"certificate,omitempty"`
	// Issuer and Subject are the claims iss and sub of a JWT.
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	// Expires ends the identity; nil means never.
	Expires *time.Time `json:"expires,omitempty"`
}

// Issuer signs JWTs, such as an OpenID provider.
type Issuer struct {
	Issuer   string `json:"issuer"`   // the claim iss
	Audience string `json:"audience"` // one of the claim aud
	// JWKS is the file with the issuer's public keys; a relative path is beside the file. Without
	// it, Issuer is an https:// address below which the issuer publishes its keys (OpenID Connect
	// Discovery), and CA may be a file with the authority of its certificate.
	JWKS string `json:"jwks,omitempty"`
	CA   string `json:"ca,omitempty"`
}

// identities are the file, checked, and found by what callers show.
type identities struct {
	tokens       map[[sha256.Size]byte]*Identity
	certificates map[string]*Identity
	subjects     map[[2]string]*Identity // by issuer and subject
	issuers      map[string]*issuer
}

// NewToken makes a token, and its hash for Identity.TokenSHA256. A token has 256 random bits, so
// that its plain hash cannot be inverted.
func NewToken() (token, hash string) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails
	token = "ledgerd_" + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}

// ReadIdentities reads and checks a file of identities.
func ReadIdentities(path string) (*Identities, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	file := new(Identities)
	if err := decoder.Decode(file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if decoder.More() {
		return nil, fmt.Errorf("%s: there is something after the identities", path)
	}
	if err := file.Check(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

func readIdentities(path string) (*identities, error) {
	file, err := ReadIdentities(path)
	if err != nil {
		return nil, err
	}
	return file.index(filepath.Dir(path))
}

// Check returns an error that says what is wrong. Relative paths are below dir.
func (f *Identities) Check(dir string) error {
	_, err := f.index(dir)
	return err
}

// index checks the identities. Relative paths are below dir.
func (f *Identities) index(dir string) (*identities, error) {
	found := &identities{tokens: map[[sha256.Size]byte]*Identity{},
		certificates: map[string]*Identity{}, subjects: map[[2]string]*Identity{},
		issuers: map[string]*issuer{}}
	for i := range f.Issuers {
		made, err := newIssuer(&f.Issuers[i], dir)
		if err != nil {
			return nil, fmt.Errorf("issuer %q: %w", f.Issuers[i].Issuer, err)
		}
		if _, twice := found.issuers[made.Issuer.Issuer]; twice {
			return nil, fmt.Errorf("issuer %q is there twice", made.Issuer.Issuer)
		}
		found.issuers[made.Issuer.Issuer] = made
	}
	names := map[string]bool{}
	for i := range f.Identities {
		identity := &f.Identities[i]
		err := found.add(identity)
		if err == nil && (identity.Name == "" || names[identity.Name]) {
			err = errors.New("its name is empty or there twice")
		}
		if err != nil {
			return nil, fmt.Errorf("identity %q: %w", identity.Name, err)
		}
		names[identity.Name] = true
	}
	return found, nil
}

func (k *identities) add(identity *Identity) error {
	if !slices.Contains([]Role{RoleOrganisation, RoleAuditor, RoleOperator}, identity.Role) {
		return fmt.Errorf("role %q is none of organisation, auditor, operator", identity.Role)
	}
	if (identity.Role == RoleOrganisation) != (identity.Organisation != "") {
		return errors.New("the role organisation, and no other, needs the name of one")
	}
	ways, taken := 0, false
	if identity.TokenSHA256 != "" {
		ways++
		decoded, err := hex.DecodeString(identity.TokenSHA256)
		if err != nil || len(decoded) != sha256.Size {
			return errors.New("token_sha256 is not 64 hex digits")
		}
		hash := [sha256.Size]byte(decoded)
		taken = k.tokens[hash] != nil
		k.tokens[hash] = identity
	}
	if identity.Certificate != "" {
		ways++
		taken = taken || k.certificates[identity.Certificate] != nil
		k.certificates[identity.Certificate] = identity
	}
	if identity.Issuer != "" || identity.Subject != "" {
		ways++
		if k.issuers[identity.Issuer] == nil || identity.Subject == "" {
			return fmt.Errorf("it needs a subject, and its issuer %q has to be among the issuers",
				identity.Issuer)
		}
		key := [2]string{identity.Issuer, identity.Subject}
		taken = taken || k.subjects[key] != nil
		k.subjects[key] = identity
	}
	switch {
	case ways != 1:
		return errors.New("it needs one of token_sha256, certificate, or issuer and subject")
	case taken:
		return errors.New("another identity has the same token, certificate or subject")
	}
	return nil
}

func (k *identities) jwksFiles() (paths []string) {
	for _, issuer := range k.issuers {
		if issuer.path != "" {
			paths = append(paths, issuer.path)
		}
	}
	slices.Sort(paths)
	return paths
}

// caller returns an identity's caller, unless it has expired.
func (i *Identity) caller(now time.Time) *Caller {
	if i == nil || i.Expires != nil && !now.Before(*i.Expires) {
		return nil
	}
	return &Caller{Name: i.Name, Role: i.Role, Organisation: i.Organisation}
}

// errToken is the error of any token that is not good. It does not say why, which would help to
// guess one.
var errToken = errors.New("the token is unknown, or it has expired")

// byToken returns the caller with a token: one of the file, or a JWT.
func (k *identities) byToken(token string, now time.Time) (*Caller, error) {
	if caller := k.tokens[sha256.Sum256([]byte(token))].caller(now); caller != nil {
		return caller, nil
	}
	issuer, subject, err := verifyJWT(token, k.issuers, now)
	if err != nil {
		return nil, errToken
	}
	if caller := k.subjects[[2]string{issuer, subject}].caller(now); caller != nil {
		return caller, nil
	}
	return nil, errToken
}

// byCertificate returns the caller with a certificate, or nil.
func (k *identities) byCertificate(certificate *x509.Certificate, now time.Time) *Caller {
	return k.certificates[certificate.Subject.String()].caller(now)
}
