//go:build cgo

package main

import (
	"context"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/miekg/pkcs11"

	"github.com/ledgerd/ledgerd/client/signer"
	"github.com/ledgerd/ledgerd/ledger"
)

// Constants of PKCS #11 3.0 that the package pkcs11 lacks.
const (
	keyEdwards       = 0x40   // CKK_EC_EDWARDS
	generateEdwards  = 0x1055 // CKM_EC_EDWARDS_KEY_PAIR_GEN
	mechanismEdDSA   = 0x1057 // CKM_EDDSA
	publicKeyBytes   = 32
	keysOfLabelLimit = 2
)

// The curve of Ed25519 in CKA_EC_PARAMS: the identifier of RFC 8410, and the name that PKCS #11
// uses. Modules take one of them, or both.
var curves = [][]byte{
	{0x06, 0x03, 0x2b, 0x65, 0x70},
	append([]byte{0x13, 0x0c}, "edwards25519"...),
}

// module is a loaded PKCS #11 module.
type module struct{ context *pkcs11.Ctx }

// load loads and initialises a module.
func load(path string) (*module, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("the module: %w: name the shared library of the token's vendor", err)
	}
	loaded := pkcs11.New(path)
	if loaded == nil {
		return nil, fmt.Errorf("%s is no PKCS #11 module that can be loaded", path)
	}
	if err := loaded.Initialize(); err != nil {
		loaded.Destroy()
		return nil, fmt.Errorf("initialising %s: %w", path, err)
	}
	return &module{loaded}, nil
}

func (m *module) close() {
	_ = m.context.Finalize() // the process ends
	m.context.Destroy()
}

// tokenInfo is a token as the module shows it.
type tokenInfo struct {
	slot                   uint
	label, maker, model    string
	hasOwnPad, initialised bool
}

// tokens lists the tokens.
func (m *module) tokens() ([]tokenInfo, error) {
	slots, err := m.context.GetSlotList(true)
	if err != nil {
		return nil, fmt.Errorf("listing the tokens: %w", err)
	}
	var found []tokenInfo
	for _, slot := range slots {
		info, err := m.context.GetTokenInfo(slot)
		if err != nil {
			return nil, fmt.Errorf("listing the tokens: %w", err)
		}
		found = append(found, tokenInfo{slot: slot, label: trim(info.Label),
			maker: trim(info.ManufacturerID), model: trim(info.Model),
			hasOwnPad:   info.Flags&pkcs11.CKF_PROTECTED_AUTHENTICATION_PATH != 0,
			initialised: info.Flags&pkcs11.CKF_TOKEN_INITIALIZED != 0})
	}
	return found, nil
}

// trim removes the padding of a text in PKCS #11.
func trim(text string) string { return strings.TrimRight(text, " \x00") }

// token is a session with a token, logged in. Its methods may be called concurrently.
type token struct {
	module  *module
	session pkcs11.SessionHandle
	mutex   sync.Mutex // of the session
}

// open logs in to the token with a label. pin is called if the token needs it.
func (m *module) open(label string, write bool, pin func() ([]byte, error)) (*token, error) {
	all, err := m.tokens()
	if err != nil {
		return nil, err
	}
	var found []tokenInfo
	var labels []string
	for _, each := range all {
		if each.label == label {
			found = append(found, each)
		}
		if each.initialised {
			labels = append(labels, each.label)
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("there is no token %q: there are %q", label, labels)
	case len(found) > 1:
		return nil, fmt.Errorf("%d tokens have the label %q: give them different ones", len(found),
			label)
	}
	flags := uint(pkcs11.CKF_SERIAL_SESSION)
	if write {
		flags |= pkcs11.CKF_RW_SESSION
	}
	session, err := m.context.OpenSession(found[0].slot, flags)
	if err != nil {
		return nil, fmt.Errorf("opening the token %q: %w", label, err)
	}
	var secret []byte
	if !found[0].hasOwnPad {
		if secret, err = pin(); err != nil {
			return nil, err
		}
	}
	err = m.context.Login(session, pkcs11.CKU_USER, string(secret))
	clear(secret)
	if err != nil && !errors.Is(err, pkcs11.Error(pkcs11.CKR_USER_ALREADY_LOGGED_IN)) {
		return nil, fmt.Errorf("logging in to the token %q: %w: after a few wrong PINs tokens "+
			"lock themselves", label, err)
	}
	return &token{module: m, session: session}, nil
}

// attributes of a key of a class.
func attributes(class uint, label string) []*pkcs11.Attribute {
	return []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, class),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, keyEdwards),
		pkcs11.NewAttribute(pkcs11.CKA_LABEL, label),
	}
}

// find returns the Ed25519 keys of a class with a label, keysOfLabelLimit at most.
func (t *token) find(class uint, label string) ([]pkcs11.ObjectHandle, error) {
	c := t.module.context
	if err := c.FindObjectsInit(t.session, attributes(class, label)); err != nil {
		return nil, fmt.Errorf("looking for the key %q: %w", label, err)
	}
	found, _, err := c.FindObjects(t.session, keysOfLabelLimit)
	if err = errors.Join(err, c.FindObjectsFinal(t.session)); err != nil {
		return nil, fmt.Errorf("looking for the key %q: %w", label, err)
	}
	return found, nil
}

// one returns the only key of a class with a label.
func (t *token) one(class uint, label string) (pkcs11.ObjectHandle, error) {
	found, err := t.find(class, label)
	switch {
	case err != nil:
		return 0, err
	case len(found) == 0:
		return 0, fmt.Errorf("the token has no Ed25519 key %q: make one with `ledgerd-pkcs11 "+
			"generate`", label)
	case len(found) > 1:
		return 0, fmt.Errorf("the token has several Ed25519 keys %q: give them different labels",
			label)
	}
	return found[0], nil
}

// key is an Ed25519 key on a token. It implements signer.Signer.
type key struct {
	token  *token
	handle pkcs11.ObjectHandle
	public ledger.PublicKey
}

// key returns the key with a label.
func (t *token) key(label string) (*key, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	private, err := t.one(pkcs11.CKO_PRIVATE_KEY, label)
	if err != nil {
		return nil, err
	}
	shown, err := t.one(pkcs11.CKO_PUBLIC_KEY, label)
	if err != nil {
		return nil, fmt.Errorf("the public half: %w", err)
	}
	values, err := t.module.context.GetAttributeValue(t.session, shown,
		[]*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_EC_POINT, nil)})
	if err != nil {
		return nil, fmt.Errorf("reading the public half of %q: %w", label, err)
	}
	public, err := parsePoint(values[0].Value)
	if err != nil {
		return nil, fmt.Errorf("the public half of %q: %w", label, err)
	}
	return &key{token: t, handle: private, public: public}, nil
}

// parsePoint parses CKA_EC_POINT: the 32 bytes of RFC 8032, as they are, or in an octet string or a
// bit string of DER.
func parsePoint(value []byte) (public ledger.PublicKey, err error) {
	point := value
	if len(value) != publicKeyBytes {
		bits := asn1.BitString{}
		if rest, err := asn1.Unmarshal(value, &point); err != nil || len(rest) > 0 {
			rest, err = asn1.Unmarshal(value, &bits)
			if err != nil || len(rest) > 0 || bits.BitLength%8 != 0 {
				point = nil
			} else {
				point = bits.Bytes
			}
		}
	}
	if len(point) != publicKeyBytes {
		return public, fmt.Errorf("%s is no point of Ed25519", hex.EncodeToString(value))
	}
	return ledger.PublicKey(point), nil
}

// generate makes a key on the token.
func (t *token) generate(label string) (*key, error) {
	t.mutex.Lock()
	found, err := t.find(pkcs11.CKO_PRIVATE_KEY, label)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("the token has a key %q already: choose another label", label)
	}
	for i := 0; i < len(curves) && err == nil; i++ {
		public := append(attributes(pkcs11.CKO_PUBLIC_KEY, label),
			pkcs11.NewAttribute(pkcs11.CKA_ID, []byte(label)),
			pkcs11.NewAttribute(pkcs11.CKA_TOKEN, true),
			pkcs11.NewAttribute(pkcs11.CKA_VERIFY, true),
			pkcs11.NewAttribute(pkcs11.CKA_EC_PARAMS, curves[i]))
		private := append(attributes(pkcs11.CKO_PRIVATE_KEY, label),
			pkcs11.NewAttribute(pkcs11.CKA_ID, []byte(label)),
			pkcs11.NewAttribute(pkcs11.CKA_TOKEN, true),
			pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, true),
			pkcs11.NewAttribute(pkcs11.CKA_SENSITIVE, true),
			pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, false),
			pkcs11.NewAttribute(pkcs11.CKA_SIGN, true))
		_, _, failed := t.module.context.GenerateKeyPair(t.session,
			[]*pkcs11.Mechanism{pkcs11.NewMechanism(generateEdwards, nil)}, public, private)
		if failed == nil {
			break
		}
		if i == len(curves)-1 {
			err = fmt.Errorf("making an Ed25519 key on the token: %w", failed)
		}
	}
	t.mutex.Unlock()
	if err != nil {
		return nil, err
	}
	return t.key(label)
}

// Public returns the public key.
func (k *key) Public() ledger.PublicKey { return k.public }

// Sign has the token sign a message.
func (k *key) Sign(_ context.Context, message signer.Message) (signature ledger.SignatureBytes,
	err error) {
	t := k.token
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if err := t.module.context.SignInit(t.session,
		[]*pkcs11.Mechanism{pkcs11.NewMechanism(mechanismEdDSA, nil)}, k.handle); err != nil {
		return signature, fmt.Errorf("the token does not sign: %w", err)
	}
	made, err := t.module.context.Sign(t.session, message.Bytes)
	if err == nil && copy(signature[:], made) != len(made) || len(made) != len(signature) {
		err = errors.Join(err, fmt.Errorf("it made a signature of %d bytes", len(made)))
	}
	if err != nil {
		return ledger.SignatureBytes{}, fmt.Errorf("the token does not sign: %w", err)
	}
	return signature, nil
}
