package importer

import (
	"context"
	"net"
	"net/url"
	"strings"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Nodes is the interface of an import to some nodes of a ledger. See client.Client for each method.
type Nodes interface {
	ChainGenesis(ctx context.Context) (*ledger.Genesis, error)
	Tree(ctx context.Context) (*ledgerdv1.Tree, error)
	Organisation(ctx context.Context, name ledger.OrganisationName) (*ledgerdv1.Organisation, error)
	NextSequence(ctx context.Context, organisation ledger.OrganisationName, stream uint64) (uint64,
		error)
	Transaction(ctx context.Context, id ledger.Hash) (*ledgerdv1.Transaction, error)
	WaitAll(ctx context.Context, ids []ledger.Hash,
		level ledgerdv1.Level) ([]*ledgerdv1.TransactionStatus, error)
	Packs(ctx context.Context) (bool, error)
	NeedsDeadlines(ctx context.Context) (bool, error)
	Asset(ctx context.Context, name ledger.AssetName) (*ledgerdv1.Asset, error)
	Record(ctx context.Context, key ledger.RecordKey) (*ledgerdv1.GetRecordResponse, error)
	Submit(ctx context.Context, bundle *ledger.Bundle,
		level ledgerdv1.Level) ([]*ledgerdv1.TransactionStatus, error)
	SubmitInOrder(ctx context.Context, bundles []*ledger.Bundle,
		after ledger.Hash) ([]*ledgerdv1.BundleOutcome, error)
	Rotate()
	Close()
}

var _ Nodes = (*client.Client)(nil)

// connectTo connects to nodes with default options.
func connectTo(addresses []string) (Nodes, error) { return client.New(addresses, client.Options{}) }

// shardNodes are the nodes of a shard. ordered gets the bundles that go to one node at a time, in
// order; loose gets all others. Each turns to another node when its node fails. They are separate
// so that a failure of loose does not move ordered to another node.
type shardNodes struct {
	ordered, loose Nodes
	// direct reports that they are members of the shard. Otherwise each bundle may reach another
	// member, and each must be acknowledged before the next is sent.
	direct bool
}

// UsableAddress returns the address of a node's API, or "" if the reported one is unusable: the
// node may listen on all addresses, or have reported none yet.
func UsableAddress(address string) string {
	if address != "" && !strings.Contains(address, "://") {
		address = "http://" + address
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Hostname() == "" || parsed.Port() == "0" {
		return ""
	}
	if ip := net.ParseIP(parsed.Hostname()); ip != nil && ip.IsUnspecified() {
		return ""
	}
	return strings.TrimRight(address, "/")
}

// meet gets the shards that were added to the book, and the addresses of the shards' members. If it
// fails, all calls go through the nodes that the import was given.
func (r *run) meet(ctx context.Context, genesis *ledger.Genesis) {
	if r.tree == nil {
		return
	}
	tree, err := r.nodes.Tree(ctx)
	if err != nil {
		return
	}
	r.tree = client.TreeOf(genesis, tree)
	r.addresses = make([][]string, r.tree.Shards())
	for _, shard := range tree.GetShards() {
		if int(shard.GetShard()) >= len(r.addresses) {
			continue
		}
		for _, member := range shard.GetMembers() {
			if address := UsableAddress(member.GetApiAddress()); address != "" {
				r.addresses[shard.GetShard()] = append(r.addresses[shard.GetShard()], address)
			}
		}
	}
}

// shard returns the nodes of a shard.
func (r *run) shard(shard ledger.ShardID) *shardNodes {
	if found := r.shards[shard]; found != nil {
		return found
	}
	made := &shardNodes{ordered: r.nodes, loose: r.nodes, direct: r.tree == nil}
	if int64(shard) < int64(len(r.addresses)) && len(r.addresses[shard]) > 0 {
		ordered, err := r.options.Connect(r.addresses[shard])
		if err == nil {
			if loose, err := r.options.Connect(r.addresses[shard]); err == nil {
				made = &shardNodes{ordered: ordered, loose: loose, direct: true}
				r.connected = append(r.connected, loose)
			}
			r.connected = append(r.connected, ordered)
		}
	}
	r.shards[shard] = made
	return made
}
