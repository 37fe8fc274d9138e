// Package home is a node's folder: its configuration, its identity, the genesis of the chain that
// it belongs to, and the places of its data.
//
//	config.toml      what an operator may change; every key has a default and a comment
//	genesis.json     the chain's beginning, the same on all nodes of a shard; where the book has several shards it names the members of all of them
//	membership.json  the members when this node joined; only where the genesis does not have it
//	node.key         the node's ed25519 key, PKCS #8 in PEM, readable by its owner only
//	generation       what the node promised and learned about the shard's generations (package allconcur/generation)
//	disk             which disk this is; the same identity is in data/disk
//	data/            the ledger store
//
// What always holds: a folder is either whole or refused with what is missing and what to do;
// nothing existing is overwritten by Create; the node's key is one of the genesis's members, or of
// those of the block that let it in, which gives the node its place for ever; files are written
// beside, synced and renamed.
//
// # Which disk this is
//
// A shard's majorities count disks, and a disk counts only while it remembers what it held and
// promised. Making a home makes an original disk. Starting a node never does: OpenDisk compares the
// identity in the home with the one in the data folder, and a disk that lost data or promises, or
// is a copy, becomes a new one, a learner, until the chain admits it.
package home
