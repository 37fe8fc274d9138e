//go:build cgo

// Command ledgerd-pkcs11 signs for ledgerd with keys on a token: a smart card, a security module,
// or SoftHSM. It is an external signer (package client/signer), apart from ledgerd because PKCS #11
// is an interface in C, and ledgerd is one static file that is built without C.
//
//	ledgerd-pkcs11 generate --module M --token T --key acme
//	ledgerd keys create acme --pkcs11-module M --token-label T --key-label acme
//
// # What always holds
//
//   - Keys never leave the token: they are generated there, sensitive and not extractable.
//   - It signs messages that the protocol knows, and of bundles only those that it was shown
//     (signer.Serve), with the mechanism CKM_EDDSA for Ed25519.
//   - A label that several keys of the token have, or several tokens, is refused.
//   - The PIN is read for one login and then overwritten.
//
// Sources: PKCS #11 Cryptographic Token Interface Current Mechanisms Specification, version 3.0
// (OASIS 2020), section 2.3.14 (EdDSA); RFC 8410 (the curve's identifier).
package main
