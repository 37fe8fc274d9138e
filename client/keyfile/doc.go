// Package keyfile reads and writes the files that hold the signing key of an organisation or an
// operator, or say which external signer has it.
//
//	text, err := keyfile.Encrypt("acme", privateKey, passphrase)
//	err = keyfile.Create("acme.key", text)
//
//	file, err := keyfile.Read("acme.key")
//	private, err := file.Private(passphrase)
//
// A file is text in PEM and has one of three forms. A plain file is the key, as openssl reads it
// (PKCS #8, ed25519):
//
//	Organisation: acme
//	-----BEGIN PRIVATE KEY-----
//	MC4CAQAw...
//	-----END PRIVATE KEY-----
//
// A file with a passphrase has the public key, so that it can be shown without the passphrase, and
// after it a plain file that age (https://age-encryption.org/v1) encrypted with scrypt:
//
//	Organisation: acme
//	-----BEGIN PUBLIC KEY-----
//	MCowBQYDK2VwAyEA...
//	-----END PUBLIC KEY-----
//	-----BEGIN AGE ENCRYPTED FILE-----
//	YWdlLWVuY3J5...
//	-----END AGE ENCRYPTED FILE-----
//
// The third form names an external signer (package signer). Its command is a JSON list:
//
//	Organisation: acme
//	Signer-Command: ["/usr/bin/vault-sign","acme"]
//	-----BEGIN PUBLIC KEY-----
//	MCowBQYDK2VwAyEA...
//	-----END PUBLIC KEY-----
//
// or
//
//	Signer-Socket: /run/vault/sign.sock
//
// The header Organisation is left out for operators. Files of earlier versions have it within the
// block, where openssl does not read past it.
//
// # What always holds
//
//   - Files are readable by their owner only, and appear whole or not at all: under another name at
//     first, and synced with their folder. Create never replaces a file.
//   - A hostile file costs at most one scrypt with N = 2^18, which is 256 MiB and about a second.
//     Files that ask for more are refused before any work.
//   - A wrong passphrase is ErrPassphrase; everything else that is wrong with a file is ErrFile.
//   - The key within an encrypted file is the one whose public half the file shows.
//   - A file that others than its owner may change does not start a command.
package keyfile
