package p2p

import (
	"crypto/ed25519"
	"fmt"
	"io"

	libp2pcrypto "github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// NewIdentity makes a host's key from 32 random bytes: from crypto/rand.Reader, or from a
// repeatable source in tests.
func NewIdentity(random io.Reader) (ed25519.PrivateKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return nil, fmt.Errorf("new identity: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// PeerID returns the identity that belongs to a public key.
func PeerID(key ed25519.PublicKey) (rdmanet.PeerID, error) {
	public, err := libp2pcrypto.UnmarshalEd25519PublicKey(key)
	if err != nil {
		return "", fmt.Errorf("peer identity: %w", err)
	}
	id, err := peer.IDFromPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("peer identity: %w", err)
	}
	return rdmanet.PeerID(id.String()), nil
}

// PublicKey returns the public key that belongs to a peer's identity.
func PublicKey(id rdmanet.PeerID) (ed25519.PublicKey, error) {
	decoded, err := peer.Decode(string(id))
	if err != nil {
		return nil, fmt.Errorf("peer identity %q: %w", id, err)
	}
	public, err := decoded.ExtractPublicKey()
	if err != nil {
		return nil, fmt.Errorf("peer identity %q: %w", id, err)
	}
	raw, err := public.Raw()
	if err != nil || public.Type() != libp2pcrypto.Ed25519 {
		return nil, fmt.Errorf("peer identity %q: not an ed25519 key", id)
	}
	return raw, nil
}
