package signer

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// Signer signs with one key, which it need not hold itself.
type Signer interface {
	// Public returns the public half of the key.
	Public() ledger.PublicKey
	// Sign returns the signature of message.Bytes. It may take as long as a person takes to agree,
	// and ends with the context.
	Sign(ctx context.Context, message Message) (ledger.SignatureBytes, error)
}

// Kind says what a message is.
type Kind string

// The kinds of messages.
const (
	KindBundle Kind = "bundle" // consent to all transactions of a bundle
	KindTest   Kind = "test"   // nothing: a test of the signer
)

// Message is what a Signer signs, and what it may show before it does.
type Message struct {
	Kind Kind
	// Organisation signs; it is ledger.Operator for an operator.
	Organisation ledger.OrganisationName
	// Bytes are signed. They begin with the domain of their kind.
	Bytes []byte
	// Bundle is the encoded bundle of KindBundle, with the signatures that it has so far.
	Bundle []byte
}

const testDomain = "ledgerd/signer-test/1\x00"

// SignBundle adds a signer's signature to a bundle. The organisation is ledger.Operator for an
// operator.
func SignBundle(ctx context.Context, bundle *ledger.Bundle, organisation ledger.OrganisationName,
	by Signer) error {
	if private, here := by.(Private); here {
		return bundle.Sign(organisation, private)
	}
	signature, err := by.Sign(ctx, Message{Kind: KindBundle, Organisation: organisation,
		Bytes: bundle.SigningMessage(), Bundle: bundle.Encode()})
	if err != nil {
		return err
	}
	return bundle.AddSignature(ledger.Signature{Organisation: organisation, Key: by.Public(),
		Bytes: signature})
}

// Private is a key in this process, in the form of crypto/ed25519.
type Private ed25519.PrivateKey

// Public returns the public half.
func (p Private) Public() ledger.PublicKey {
	return ledger.PublicKey(ed25519.PrivateKey(p).Public().(ed25519.PublicKey))
}

// Sign signs with the key.
func (p Private) Sign(_ context.Context, message Message) (ledger.SignatureBytes, error) {
	return ledger.SignatureBytes(ed25519.Sign(ed25519.PrivateKey(p), message.Bytes)), nil
}

// testMessage returns a message whose signature is good for nothing.
func testMessage(organisation ledger.OrganisationName) Message {
	bytes := make([]byte, len(testDomain)+32)
	_, _ = rand.Read(bytes[copy(bytes, testDomain):]) // never fails
	return Message{Kind: KindTest, Organisation: organisation, Bytes: bytes}
}

// check verifies an answer's signature.
func check(key ledger.PublicKey, message []byte, signature ledger.SignatureBytes) error {
	if !ed25519.Verify(key[:], message, signature[:]) {
		return fmt.Errorf("%w: its signature is wrong for the key %s: does it have another key?",
			ErrExternal, key)
	}
	return nil
}
