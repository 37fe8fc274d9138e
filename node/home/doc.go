// Package home is a node's folder: its configuration, its identity, the genesis of its chain, and
// the places of its data.
//
//	config.toml      settings for operators; every key has a default and a comment
//	genesis.json     the chain's beginning, the same on all nodes of a shard; in a book of several
//	                 shards it names the members of all of them
//	membership.json  the members when this node joined; if not those of the genesis
//	node.key         the node's ed25519 key, PKCS #8 in PEM, readable by its owner only
//	generation       the node's promises and knowledge about the shard's generations
//	                 (package allconcur/generation)
//	disk             the identity of this disk; the same identity is in data/disk
//	data/            the ledger store
//
// What always holds:
//
//   - A folder is either whole, or refused with what is missing and what to do.
//   - Create overwrites nothing.
//   - The node's key is that of a member of the genesis, or of the block that let the node in. This
//     gives the node its index for ever.
//   - Files are written under another name, synced and renamed.
//
// # Which disk this is
//
// A shard's majorities count disks. A disk counts only while it remembers everything that it held
// and promised. Making a home makes an original disk; starting a node never does. OpenDisk compares
// the identity in the home with the one in the data folder. A disk that lost data or promises, or
// that is a copy, becomes a new disk: a learner, until the chain admits it.
package home
