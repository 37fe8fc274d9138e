package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/home"
)

// shardsAddOptions are the flags of ledgerd shards add.
type shardsAddOptions struct {
	charterOptions
	parent  uint32
	members []string
}

// shardAddedReport is what ledgerd shards add --json prints.
type shardAddedReport struct {
	// Transaction is the change of the book. It is empty if the shard was there already.
	Transaction string `json:"transaction,omitempty"`

	Shard   ledger.ShardID `json:"shard"`
	Parent  ledger.ShardID `json:"parent"`
	Members []string       `json:"members"`
	// Genesis is the hash of the genesis of the new shard's chain, and Directory that of the
	// directory with which the chain begins.
	Genesis   string `json:"genesis_hash"`
	Directory string `json:"directory_hash"`
	// Homes are the folders that were completed: their nodes can start. Others get the genesis with
	// ledgerd shards home.
	Homes []string `json:"homes"`
}

// newShardsAddCommand returns the `ledgerd shards add` command.
func newShardsAddCommand() *cobra.Command {
	o := shardsAddOptions{charterOptions: charterOptions{wait: "durable"}}
	command := &cobra.Command{
		Use:   "add --parent SHARD --member FILE... --operator FILE",
		Short: "Add a shard to a running ledger",
		Long: `Add a shard below a running one, while the ledger runs.

Each --member is the member.json of a node of the new shard, or the home that has
it: make the homes with ledgerd shards home. The operators sign the change. It is
ordered as any other transaction, and all shards make it at the same place of their
common order. From there on the new shard is part of the ledger. Its number is the
number of shards before.

The command waits until the change is durable. Then it completes the homes that were
given as folders: their nodes can start. On other machines, ledgerd shards home
completes them; compare the printed genesis hash. Start more than half of the nodes
soon: what concerns all shards waits for the new one, too.

The new shard begins empty. No organisation moves into it by itself: those whose
registration pins them to it live there (ledgerd org add --shard). The parent should
be a shard that deals much with the new one; it must run. A shard is not removed
again.

All programs have to know the change, and the ledger needs version 6 for it: see
ledgerd cluster upgrade. If the operators' keys are in several hands, write the
change to a file with --out; the others add their signatures with ledgerd tx submit
FILE --operator KEYFILE. If the command is interrupted, run it again: it goes on
where it was.

Fields with --json: transaction (the change; none if the shard was there already),
shard, parent, members, genesis_hash, directory_hash, homes (that were completed);
with --out: transaction, file, signed_by, missing_signatures.`,
		Example: `  ledgerd shards home --home new-0 --via http://127.0.0.1:26600
  ledgerd shards home --home new-1 --via http://127.0.0.1:26600
  ledgerd shards home --home new-2 --via http://127.0.0.1:26600
  ledgerd shards add --parent 0 --member new-0,new-1,new-2 --operator net/operator.key \
                     --via http://127.0.0.1:26600
  ledgerd start --home new-0`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if len(o.members) == 0 {
				return usagef("--member is missing: name the member.json of each node of the new " +
					"shard, or its home; ledgerd shards home makes one")
			}
			return o.run(command)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	bindVia(command, &o.remote)
	o.signing.bind(command)
	flags := command.Flags()
	flags.Uint32Var(&o.parent, "parent", 0, "the shard right above the new one")
	flags.StringSliceVar(&o.members, "member", nil, "the member.json of a node of the new shard, "+
		"or its home; several with commas or repeated (required)")
	flags.StringVar(&o.out, "out", "",
		"write the signed change to this file instead of submitting it")
	addJSONFlag(command, &o.json)
	if err := command.MarkFlagRequired("parent"); err != nil {
		panic("shards add: no such flag: parent")
	}
	return command
}

// growing is a session that adds a shard to a book.
type growing struct {
	*bookSession
	genesis *ledger.Genesis
	shards  int // of the book, when the session began
}

// grow asks the node for the book, and checks that it has several shards and can be changed.
func (s *bookSession) grow(ctx context.Context) (*growing, error) {
	genesis, err := s.nodes.ChainGenesis(ctx)
	if err != nil {
		return nil, err
	}
	if !genesis.Sharded() {
		return nil, errOneShard(genesis.Chain)
	}
	cluster, err := s.nodes.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	charter, err := api.CharterFromProto(cluster.GetCharter())
	if err != nil {
		return nil, fmt.Errorf("the node's answer: %w", err)
	}
	return &growing{s, genesis, int(cluster.GetShardCount())}, checkTakesBookChanges(&charter)
}

// find returns the genesis of the added shard with exactly these members, or nil.
func (g *growing) find(ctx context.Context, members []ledger.Member) (*ledger.Genesis, error) {
	cluster, err := g.nodes.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	for shard := len(g.genesis.Shards); shard < int(cluster.GetShardCount()); shard++ {
		genesis, err := g.nodes.ShardGenesis(ctx, ledger.ShardID(shard))
		if err != nil {
			return nil, err
		}
		same := len(genesis.Members) == len(members)
		for i := 0; i < len(members) && same; i++ {
			same = bytes.Equal(genesis.Members[i].Key, members[i].Key)
		}
		if same {
			return genesis, nil
		}
	}
	return nil, nil
}

func (o *shardsAddOptions) run(command *cobra.Command) error {
	addition := &ledger.ShardAddition{Parent: ledger.ShardID(o.parent)}
	for _, path := range o.members {
		member, err := home.ReadMember(path)
		if err != nil {
			return err
		}
		addition.Members = append(addition.Members, member)
	}
	session, ctx, done, err := o.begin(command, true)
	if err != nil {
		return err
	}
	defer done()
	g, err := session.grow(ctx)
	if err != nil {
		return err
	}
	if o.out != "" {
		return g.write(ctx, command, ledger.BookChange{Addition: addition})
	}
	report, err := g.add(ctx, addition)
	if err != nil {
		return err
	}
	if report.Homes, err = g.complete(ctx, report, o.members); err != nil {
		return fmt.Errorf("%w; run the same command again", err)
	}
	if o.json {
		return writeJSON(command.OutOrStdout(), report)
	}
	_, err = fmt.Fprint(command.OutOrStdout(), report)
	return err
}

// add adds the shard, unless it is there already, and waits until that is durable.
func (g *growing) add(ctx context.Context,
	addition *ledger.ShardAddition) (*shardAddedReport, error) {
	if _, _, err := g.check(ctx); err != nil {
		return nil, err
	}
	genesis, err := g.find(ctx, addition.Members)
	if err != nil {
		return nil, err
	}
	report := &shardAddedReport{Homes: []string{}}
	if genesis == nil {
		status, err := g.submit(ctx, ledger.BookChange{Addition: addition})
		if err != nil {
			return nil, fmt.Errorf("%w; the same command goes on with it", err)
		}
		if status.GetReasonCode() != "" {
			return nil, fmt.Errorf("the shard is not added: %s", status.GetReason())
		}
		report.Transaction = status.GetIdHex()
		for genesis == nil {
			if genesis, err = g.find(ctx, addition.Members); err != nil {
				return nil, err
			}
			if genesis == nil { // another node answers, which is not so far yet
				if err := sleep(ctx, membershipPause); err != nil {
					return nil, err
				}
			}
		}
	}
	report.describe(genesis)
	return report, nil
}

// describe fills in the shard, given the genesis of its chain.
func (report *shardAddedReport) describe(genesis *ledger.Genesis) {
	last := &genesis.Grown[len(genesis.Grown)-1]
	report.Shard, report.Parent = genesis.Shard, last.Parent
	report.Genesis, report.Directory = genesis.Hash().String(), last.Directory.String()
	for i := range last.Members {
		report.Members = append(report.Members, last.Members[i].Name)
	}
}

// complete completes the homes among the folders given.
func (g *growing) complete(ctx context.Context, report *shardAddedReport,
	folders []string) ([]string, error) {
	completed := []string{}
	for _, folder := range folders {
		if filepath.Base(folder) == home.MemberFile {
			folder = filepath.Dir(folder)
		}
		if _, err := os.Stat(filepath.Join(folder, home.ConfigFile)); errors.Is(err,
			os.ErrNotExist) {
			continue // it is on another machine
		}
		at, err := home.LoadJoining(folder)
		if err == nil {
			err = completeHome(ctx, g.nodes, at, g.genesis, int(report.Shard)+1, report.Genesis)
		}
		if err != nil {
			return nil, fmt.Errorf("shard %d was added, and %s could not be completed: %w",
				report.Shard, folder, err)
		}
		completed = append(completed, folder)
	}
	return completed, nil
}

// String says what was added, and what comes next.
func (r *shardAddedReport) String() string {
	text := fmt.Sprintf("shard %d is part of the ledger, below shard %d, with %s\n"+
		"  genesis    %s\n  directory  %s\n\n", r.Shard, r.Parent, plural(len(r.Members), "node"),
		r.Genesis, r.Directory)
	if len(r.Homes) < len(r.Members) {
		text += "On the machine of each node: ledgerd shards home --home HOME --via URL\n"
	}
	text += "Next, for more than half of its nodes soon:\n"
	for _, folder := range r.Homes {
		text += fmt.Sprintf("  ledgerd start --home %s\n", folder)
	}
	if len(r.Homes) == 0 {
		text += "  ledgerd start --home HOME\n"
	}
	return text
}
