package importer

import (
	"context"
	"net"
	"net/url"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/client"
)

// Nodes are some nodes of a ledger, as an import needs them; client.Client says what each method
// does.
type Nodes interface {
	ChainGenesis(ctx context.Context) (*ledger.Genesis, error)
	Tree(ctx context.Context) (*ledgerdv1.Tree, error)
	Organisation(ctx context.Context, name ledger.OrganisationName) (*ledgerdv1.Organisation, error)
	NextSequence(ctx context.Context, organisation ledger.OrganisationName, stream uint64) (uint64,
		error)
	Transaction(ctx context.Context, id ledger.Hash) (*ledgerdv1.Transaction, error)
	Submit(ctx context.Context, bundle *ledger.Bundle,
		level ledgerdv1.Level) ([]*ledgerdv1.TransactionStatus, error)
	SubmitInOrder(ctx context.Context, bundles []*ledger.Bundle,
		after ledger.Hash) ([]*ledgerdv1.BundleOutcome, error)
	Rotate()
	Close()
}

var _ Nodes = (*client.Client)(nil)

// connectTo connects to nodes as Options say.
func connectTo(addresses []string) (Nodes, error) { return client.New(addresses, client.Options{}) }

// shardNodes are the nodes of a shard: those that bundles go to in their order, one at a time, and
// those that the others go to. Both turn to another node when theirs fails, and those that keep an
// order shall not for the others' sake.
type shardNodes struct {
	ordered, loose Nodes
	// direct says that they are members of the shard. Otherwise each bundle may come to another
	// member, and one has to be acknowledged before the next is given away.
	direct bool
}

// UsableAddress is where a node's API can be asked, empty where the node does not say so usably: it
// may listen on all addresses, or not have said anything yet.
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

// meet learns where the shards' members are. Where that cannot be learned, everything goes through
// the nodes that the import was given.
func (r *run) meet(ctx context.Context) {
	if r.tree == nil {
		return
	}
	r.addresses = make([][]string, r.tree.Shards())
	tree, err := r.nodes.Tree(ctx)
	if err != nil {
		return
	}
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
	if r.tree != nil && len(r.addresses[shard]) > 0 {
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
