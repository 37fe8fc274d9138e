// Package signer signs transactions for organisations and operators, with a key in memory or with
// an external signer: a program or a server that keeps the key, such as a token, a key service or a
// person with a second machine.
//
//	key := signer.Private(privateKey)
//	err := signer.SignBundle(ctx, bundle, "acme", key)
//
//	remote := signer.Remote{Command: []string{"/usr/bin/vault-sign", "acme"}}
//	public, err := remote.PublicKey(ctx, "acme")
//	outside, err := signer.NewExternal(remote, public)
//	err = outside.Test(ctx, "acme")
//
// # The protocol
//
// A request is one JSON object on one line, and so is its answer. A command is started for each
// request: the request is all of its standard input, the answer is all of its standard output, and
// its exit status is 0. Its standard error goes to the caller's. A server listens on a Unix socket
// and answers the requests of a connection one after the other. Bytes are in hex.
//
//	{"version": 1, "request": "public_key", "organisation": "acme"}
//	{"public_key": "4f…"}
//
//	{"version": 1, "request": "sign", "organisation": "acme", "public_key": "4f…",
//	 "kind": "bundle", "message": "6c65…", "bundle": "01…"}
//	{"signature": "9a…"}
//
//	{"error": "the token is locked"}
//
// The signature is ed25519 (RFC 8032, pure) over the bytes of message. The organisation is empty
// for an operator. Of kind "bundle" the message is "ledgerd/bundle/1", a zero byte and the root of
// the bundle; the bundle itself is there, so that the signer can show what it signs. It has to
// check that the message is the bundle's: Request.Check does. Of kind "test" the message is
// "ledgerd/signer-test/1", a zero byte and 32 random bytes: such a signature is good for nothing.
// A signer refuses what it does not know, and takes no other fields for granted.
//
// # What always holds
//
//   - A signature of an external signer is used only if it is good for the message and the key that
//     the caller expects.
//   - Answers have at most 16 KiB, and each request has a deadline (AnswerTime, or the context's if
//     that is earlier). A signer that hangs, floods, closes early or answers something else is an
//     ErrExternal, and no signature.
//   - The requests of one External go out one after the other.
//   - A request is repeated, once, only if a connection broke that an earlier request had opened,
//     before any of the answer came. Signing twice is harmless: ed25519 signatures of one message
//     are equal.
package signer
