package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// shardHomeReport is what ledgerd shards home --json prints.
type shardHomeReport struct {
	Name    string `json:"name"`
	Home    string `json:"home"`
	Address string `json:"address"` // where the other nodes find it
	// MemberFile is what the operators add the shard with.
	MemberFile string `json:"member_file"`
	// Added reports that the shard was added, and that the home is complete. Shard and Genesis are
	// then those of its chain.
	Added   bool            `json:"added"`
	Shard   *ledger.ShardID `json:"shard,omitempty"`
	Genesis string          `json:"genesis_hash,omitempty"`
}

// newShardsHomeCommand returns the `ledgerd shards home` command.
func newShardsHomeCommand() *cobra.Command {
	var o joinOptions
	command := &cobra.Command{
		Use:   "home --home NEW --via URL",
		Short: "Make the home of a node of a shard that is to be added",
		Long: `Make the home of a node of a shard that is to be added, or complete it.

Before the shard is added, run it once on the machine of each of the shard's first
nodes. The home gets a new key, the settings that all nodes share, and member.json:
the node's name, public key and address. The operators add the shard with these
files (ledgerd shards add).

After the shard was added, run it again, with the same --home. The home then gets
the genesis of the shard and the directory with which its chain begins, seed, from
the node of --via. The directory is checked against the genesis. Compare the printed
genesis hash with the one that ledgerd shards add printed, or pass that with
--genesis. ledgerd shards add does this itself for homes that it was given as
folders.

The node has its API on port P and talks to the other nodes on port P+1, where P
is the --base-port; without it, two free ports are chosen. --address is the host
by which the others find it.`,
		Example: `  ledgerd shards home --home new-0 --via http://10.0.0.1:8080 --address 10.0.0.21 --base-port 8080

  # Once the shard was added
  ledgerd shards home --home new-0 --via http://10.0.0.1:8080
  ledgerd start --home new-0`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			nodes, ctx, done, err := o.remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			report, err := o.shardHome(ctx, command, nodes)
			if err != nil {
				return err
			}
			if o.json {
				return writeJSON(command.OutOrStdout(), report)
			}
			_, err = fmt.Fprint(command.OutOrStdout(), report)
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	bindVia(command, &o.remote)
	flags := command.Flags()
	flags.StringVar(&o.home, "home", "", "folder to make, the new node's home (required)")
	flags.StringVar(&o.name, "name", "", "name of the new node (default the name of the --home "+
		"folder)")
	flags.IntVar(&o.basePort, "base-port", 0, "port of the new node's API; the next one is for "+
		"the other nodes (default two that are free)")
	flags.StringVar(&o.address, "address", "127.0.0.1",
		"host by which the other nodes find the new one")
	flags.StringVar(&o.certificate, "api-cert", "",
		"file with the certificate of the new node's API, in PEM")
	flags.StringVar(&o.certificateKey, "api-key", "", "file with the key of --api-cert, in PEM")
	command.MarkFlagsRequiredTogether("api-cert", "api-key")
	flags.StringVar(&o.genesis, "genesis", "",
		"genesis hash that the chain of the added shard has to have")
	addFabricFlag(command, &o.fabric, fabric.P2P)
	addJSONFlag(command, &o.json)
	return command
}

// String describes the home, and what comes next.
func (r *shardHomeReport) String() string {
	text := fmt.Sprintf("%s is ready to be a node of a new shard\n"+
		"  home     %s\n  address  %s\n  member   %s\n\n"+
		"Next: the operators add the shard with the member files of its first nodes:\n"+
		"  ledgerd shards add --parent SHARD --member %s --operator FILE\n"+
		"Then run this command again.\n", r.Name, r.Home, r.Address, r.MemberFile, r.MemberFile)
	if r.Added {
		text = fmt.Sprintf("%s is a node of shard %d\n"+
			"  home     %s\n  address  %s\n  genesis  %s\n\nNext: ledgerd start --home %s\n",
			r.Name, *r.Shard, r.Home, r.Address, r.Genesis, r.Home)
	}
	return text
}

// shardHome makes the home, or completes the one that is there.
func (o *joinOptions) shardHome(ctx context.Context, command *cobra.Command,
	nodes *client.Client) (*shardHomeReport, error) {
	c := &membershipSession{nodes: nodes, progress: command.ErrOrStderr()}
	var err error
	if c.genesis, err = nodes.ChainGenesis(ctx); err != nil {
		return nil, err
	}
	if !c.genesis.Sharded() {
		return nil, errOneShard(c.genesis.Chain)
	}
	if err := c.refresh(ctx); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(o.home, home.ConfigFile)); err == nil {
		return o.completeShardHome(ctx, c)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if shard, taken := c.findElsewhere(ctx, func(member *ledger.Member) bool {
		return member.Name == o.name
	}); taken != nil {
		return nil, fmt.Errorf("the ledger has a member %s already, in shard %d: choose another "+
			"--name", o.name, shard)
	}
	if _, taken := c.membership.ByName(o.name); taken {
		return nil, fmt.Errorf("the ledger has a member %s already: choose another --name", o.name)
	}
	port, err := o.ports(ctx, c)
	if err != nil {
		return nil, err
	}
	key, err := p2p.NewIdentity(rand.Reader)
	if err != nil {
		return nil, err
	}
	member := ledger.Member{Name: o.name, Key: publicOf(key),
		Address: net.JoinHostPort(o.address, strconv.Itoa(port+1))}
	if err := member.Validate(); err != nil {
		return nil, asUsage(err)
	}
	config := o.configuration(c.cluster, port)
	if o.certificate != "" {
		config.API.Certificate, config.API.Key = certificateFile, certificateKeyFile
	}
	at, err := home.CreateJoining(o.home, config, c.genesis, key)
	if err != nil {
		return nil, err
	}
	if err := at.WriteMember(member); err != nil {
		return nil, err
	}
	if _, err := o.certify(at); err != nil {
		return nil, err
	}
	return reportShardHome(at, member)
}

// errOneShard is the error of a command that changes the shards of a ledger which has one.
func errOneShard(chain string) error {
	return fmt.Errorf("ledger %s has one shard, and its book cannot be divided: make a ledger of "+
		"several shards with ledgerd testnet --shards or a genesis of several shards", chain)
}

// completeShardHome completes a home whose shard was added.
func (o *joinOptions) completeShardHome(ctx context.Context, c *membershipSession) (
	*shardHomeReport, error) {
	at, err := home.LoadJoining(o.home)
	if err != nil {
		return nil, err
	}
	member, err := home.ReadMember(o.home)
	if err != nil {
		return nil, err
	}
	if err := completeHome(ctx, c.nodes, at, c.genesis, int(c.cluster.GetShardCount()),
		o.genesis); err != nil {
		return nil, err
	}
	return reportShardHome(at, member)
}

// completeHome gives a home the genesis of its added shard and the directory, unless the shard is
// not added yet. hash is that of the genesis, or empty.
func completeHome(ctx context.Context, nodes *client.Client, at *home.Home,
	book *ledger.Genesis, shards int, hash string) error {
	if at.Genesis.Book() != book.Book() {
		return fmt.Errorf("%s is a home of another ledger than that of %s: choose another --home",
			at.Dir, nodes.Current())
	}
	if len(at.Genesis.Grown) > 0 {
		if hash != "" && at.Genesis.Hash().String() != hash {
			return fmt.Errorf("%s has the genesis %s, not %s", at.Dir, at.Genesis.Hash(), hash)
		}
		return nil // an earlier run completed it
	}
	for shard := len(book.Shards); shard < shards; shard++ {
		genesis, err := nodes.ShardGenesis(ctx, ledger.ShardID(shard))
		if err != nil {
			return err
		}
		membership := genesis.Membership()
		if _, found := membership.ByKey(publicOf(at.Key)); !found {
			continue
		}
		if hash != "" && genesis.Hash().String() != hash {
			return fmt.Errorf("%s says that the chain of shard %d has the genesis %s, not %s: ask "+
				"another node with --via", nodes.Current(), shard, genesis.Hash(), hash)
		}
		seed, err := nodes.Seed(ctx, genesis)
		if err != nil {
			return err
		}
		return at.Begin(genesis, seed)
	}
	return nil
}

func reportShardHome(at *home.Home, member ledger.Member) (*shardHomeReport, error) {
	dir, err := filepath.Abs(at.Dir)
	if err != nil {
		return nil, err
	}
	report := &shardHomeReport{Name: member.Name, Home: dir, Address: member.Address,
		MemberFile: filepath.Join(dir, home.MemberFile)}
	if len(at.Genesis.Grown) > 0 {
		report.Added, report.Shard = true, &at.Genesis.Shard
		report.Genesis = at.Genesis.Hash().String()
	}
	return report, nil
}
