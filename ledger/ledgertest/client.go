// Package ledgertest makes signed input for tests of the ledger and of packages that use it:
// clients with fixed keys, bundles and round messages. The same calls return the same bytes.
package ledgertest

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// Genesis returns a genesis of one member, without operators.
func Genesis() *ledger.Genesis {
	return &ledger.Genesis{Chain: "test", Time: 1_700_000_000_000,
		Members: []ledger.Member{{Name: "node-0", Key: []byte("key"), Address: "/memory/0"}}}
}

// Key returns the private key for a name.
func Key(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// PublicKey returns the public key for a name.
func PublicKey(name string) ledger.PublicKey { return ledger.PublicKey(Key(name)[32:]) }

// Client makes the transactions of one organisation. The organisation's only key is
// Key(organisation).
type Client struct {
	Organisation ledger.OrganisationName
	Ledger       ledger.Hash
	Stream       uint64
	Sequence     uint64
	private      ed25519.PrivateKey
}

// NewClient returns a client of the ledger with this genesis.
func NewClient(genesis *ledger.Genesis, organisation ledger.OrganisationName) *Client {
	return &Client{Organisation: organisation, Ledger: genesis.Book(),
		private: Key(string(organisation))}
}

// Next returns an empty transaction with the client's next nonce.
func (c *Client) Next() ledger.Transaction {
	c.Sequence++
	return ledger.Transaction{Ledger: c.Ledger, Signer: c.Organisation,
		Nonce: ledger.Nonce{Stream: c.Stream, Sequence: c.Sequence}}
}

// Register returns the transaction that registers the organisation and opens its accounts with
// these names. The first account is an issuer.
func (c *Client) Register(accounts ...string) ledger.Transaction {
	transaction := c.Next()
	transaction.Registrations = []ledger.Registration{{Name: c.Organisation,
		Keys: []ledger.PublicKey{PublicKey(string(c.Organisation))}}}
	for i, name := range accounts {
		transaction.Openings = append(transaction.Openings,
			ledger.Opening{Account: c.Account(name), Issuer: i == 0})
	}
	return transaction
}

// Account returns the path `organisation:name`.
func (c *Client) Account(name string) ledger.AccountPath {
	return ledger.AccountPath(fmt.Sprintf("%s:%s", c.Organisation, name))
}

// Transfer returns a transaction that moves an amount of the default asset between accounts.
func (c *Client) Transfer(from, to ledger.AccountPath, amount int64) ledger.Transaction {
	transaction := c.Next()
	transaction.Postings = []ledger.Posting{
		{Account: from, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-amount)},
		{Account: to, Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(amount)},
	}
	return transaction
}

// Cancel returns the transaction that cancels another one, with this deadline, at a shard.
func (c *Client) Cancel(id ledger.Hash, deadline ledger.Milliseconds,
	shard ledger.ShardID) ledger.Transaction {
	transaction := c.Next()
	transaction.Deadline = deadline
	transaction.Cancellation = &ledger.Cancellation{Transaction: id, Shard: shard}
	return transaction
}

// Bundle returns the transactions in a bundle signed by the client. It panics if they cannot be
// encoded.
func (c *Client) Bundle(transactions ...ledger.Transaction) *ledger.Bundle {
	bundle, err := ledger.NewBundle(transactions...)
	if err == nil {
		err = bundle.Sign(c.Organisation, c.private)
	}
	if err != nil {
		panic(fmt.Sprintf("ledgertest: %v", err))
	}
	return bundle
}

// Packed returns plain transfers in a packed bundle signed by the client. It panics if they cannot
// be packed.
func (c *Client) Packed(transactions ...ledger.Transaction) *ledger.Bundle {
	bundle, err := ledger.PackBundle(transactions...)
	if err == nil {
		err = bundle.Sign(c.Organisation, c.private)
	}
	if err != nil {
		panic(fmt.Sprintf("ledgertest: %v", err))
	}
	return bundle
}

// Batch returns a round message with these bundles.
func Batch(time ledger.Milliseconds, bundles ...*ledger.Bundle) []byte {
	encoded := make([][]byte, len(bundles))
	for i, bundle := range bundles {
		encoded[i] = bundle.Encode()
	}
	return ledger.EncodeBatch(ledger.BatchHeader{Time: time}, encoded)
}

// Block returns block 1 of a chain, with the bundles' transactions applied. No state has executed
// it, so its state digest is zero.
func Block(genesis *ledger.Genesis, bundles ...*ledger.Bundle) *ledger.Block {
	return After(genesis.Block(), bundles...)
}

// After returns the block after another one, made as Block makes it. Its roots are over the bundles
// if those of the other block are, or if one of its bundles is packed.
func After(parent *ledger.Block, bundles ...*ledger.Bundle) *ledger.Block {
	block := &ledger.Block{Header: parent.Header}
	block.Header.Height++
	block.Header.Previous = parent.Hash
	for i, bundle := range bundles {
		seal := bundle.Seal(make([]bool, bundle.Len()))
		if bundle.Packed() {
			block.Header.ByBundle = true
			block.AddPacked(seal)
			continue
		}
		for place := range bundle.Len() {
			entry := bundle.Entry(place, i)
			entry.Result = ledger.Result{Item: ledger.NoItem}
			seal.Kept[place] = true
			block.Unpacked = append(block.Unpacked, entry)
		}
		block.Bundles = append(block.Bundles, seal)
	}
	block.Header.Transactions = uint32(block.Len())
	block.Header.Total = parent.Header.Total + uint64(block.Len())
	block.Complete(ledger.Hash{})
	return block
}
