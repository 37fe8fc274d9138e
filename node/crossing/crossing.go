package crossing

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"net/http"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/shard"
)

// Crossing is a node's connection to the other shards of its book. Make it with New.
type Crossing interface {
	// Hook adds the input from other shards to the pool, and listens to the pipeline.
	Hook(pool *mempool.Config, executing *pipeline.Config)
	// Start begins the exchange with the other shards that feeds into blocks. It must run before
	// the node makes blocks.
	Start(host rdmanet.Host, lane *wire.Datagrams) error
	// Serve begins to answer the other shards' calls with a handler, and to make calls. The node
	// must already make blocks.
	Serve(forwarded http.Handler) error
	// Close ends the exchange with the other shards. Closing again does nothing.
	Close()

	// Addresses adds the other shards' members to those of the own shard. The fabric admits these
	// peers and finds them at these addresses.
	Addresses(own map[rdmanet.PeerID]string) map[rdmanet.PeerID]string
	// MembersChanged reports whether any shard's members changed since it last reported a change.
	// Only one goroutine may call it.
	MembersChanged() bool
	// SetOwn sets the members of this node's shard.
	SetOwn(membership ledger.Membership)
	// Heard records the announcement of a member of the own shard.
	Heard(from rdmanet.PeerID, announcement *shard.Announcement)
	// Changed announces soon that this node's state changed.
	Changed()

	// Lies returns how often members of this shard or another one said something about other shards
	// that contradicts what this node believes, in a book with vouched crossings.
	Lies() uint64

	// Waiting returns what entries of this node's chain wait for. It is cheap enough for several
	// calls a second.
	Waiting() report.Waiting

	// Owes reports whether a shard below lacks an entry of this shard's stream that lies in a block
	// that is absent here (store.ErrAbsent), as far as this node has heard. It may read the disk.
	Owes() bool

	// Misrouted returns why a bundle that enters at another shard is not admitted here, or nil if
	// it enters here.
	Misrouted(bundle *ledger.Bundle) *report.Refusal
	// AwaitArrival waits, for some seconds at most, until the organisations of bundles have arrived
	// that are on their way to another shard. The function that it returns says why a bundle is not
	// admitted if it waited in vain, or nil. Bundles with a failure are passed over.
	AwaitArrival(ctx context.Context, bundles []*ledger.Bundle,
		failures []error) func(bundle int) *report.Refusal
	// Expires reports whether a transaction's last valid block is a block of this chain.
	Expires(transaction *ledger.Transaction) bool

	// API makes the server of a node's API, which answers for the whole book.
	API(backend api.Backend, options api.Options) (*api.Server, error)
}

// Config is the configuration of a Crossing. RefuseAfter and AlarmAfter may be 0, and Opened
// nil; all other fields are required.
type Config struct {
	Genesis *ledger.Genesis
	// Self is this node's identity on the fabric.
	Self rdmanet.PeerID
	// Key is the node's private key. With it the node vouches for what comes from other shards.
	Key ed25519.PrivateKey
	// Dir is the node's home, which keeps the members of other shards.
	Dir string
	// Opened is the store with which the node starts. It says which shards were added to the book.
	// Without it the node learns of them from its chain once it runs.
	Opened *store.Store
	// RefuseAfter is how long another shard must be down until transactions that cross to it are
	// refused at admission. 0 means that none are, also not for full shards.
	RefuseAfter time.Duration
	// AlarmAfter is how long an entry may wait for another shard before the alarm is on, or 0 for
	// no alarm.
	AlarmAfter time.Duration
	// Now returns the time of day.
	Now    func() time.Time
	Node   Node
	Logger *slog.Logger
}

// Node is the node around a Crossing, which calls it from Start on. Every method is safe for
// concurrent use.
type Node interface {
	// Store returns the current store.
	Store() *store.Store
	// Heights returns how far the chain has come.
	Heights() (report.Heights, <-chan struct{})
	// Report returns what this node tells other shards about itself.
	Report() Report
	// Admit verifies bundles and puts them into the mempool.
	Admit(ctx context.Context, bundles []*ledger.Bundle, inOrder bool) []*report.Refusal
	// AdmitArrival puts an arrival into the mempool, which the chain checks. It returns why it did
	// not, or nil.
	AdmitArrival(arrival *ledger.Bundle) *report.Refusal
	// Wake makes the pool ask for input from other shards.
	Wake()
}

// Report is what a node tells other shards about itself, besides its chain's state.
type Report struct {
	Mode       report.NodeMode
	APIAddress string
	Heights    report.Heights
	Head       ledger.Hash // of the block at Heights.Ordered
	// Transactions counts those of the chain.
	Transactions uint64
}

// New makes the Crossing of a node. The exchange with other shards begins with Start.
func New(config Config) (Crossing, error) {
	if !config.Genesis.Sharded() {
		return alone{}, nil
	}
	return newBook(config)
}

// alone is the Crossing of a book of one shard, which has no other shards.
type alone struct{}

// Hook implements Crossing: batches have clients' bundles only.
func (alone) Hook(*mempool.Config, *pipeline.Config) {}

// Start implements Crossing.
func (alone) Start(rdmanet.Host, *wire.Datagrams) error { return nil }

// Serve implements Crossing.
func (alone) Serve(http.Handler) error { return nil }

// Close implements Crossing.
func (alone) Close() {}

// Addresses implements Crossing: the fabric admits the members of the own shard only.
func (alone) Addresses(own map[rdmanet.PeerID]string) map[rdmanet.PeerID]string { return own }

// Owes implements Crossing: there are no shards below.
func (alone) Owes() bool { return false }

// MembersChanged implements Crossing.
func (alone) MembersChanged() bool { return false }

// SetOwn implements Crossing.
func (alone) SetOwn(ledger.Membership) {}

// Heard implements Crossing.
func (alone) Heard(rdmanet.PeerID, *shard.Announcement) {}

// Changed implements Crossing.
func (alone) Changed() {}

// Lies implements Crossing.
func (alone) Lies() uint64 { return 0 }

// Waiting implements Crossing: nothing waits.
func (alone) Waiting() report.Waiting { return report.Waiting{} }

// Misrouted implements Crossing: each bundle enters here.
func (alone) Misrouted(*ledger.Bundle) *report.Refusal { return nil }

// AwaitArrival implements Crossing: no organisation moves.
func (alone) AwaitArrival(context.Context, []*ledger.Bundle, []error) func(int) *report.Refusal {
	return nobodyMoves
}

func nobodyMoves(int) *report.Refusal { return nil }

// Expires implements Crossing: there is no other chain.
func (alone) Expires(*ledger.Transaction) bool { return true }

// API implements Crossing: this shard is the whole book.
func (alone) API(backend api.Backend, options api.Options) (*api.Server, error) {
	return api.New(backend, options)
}
