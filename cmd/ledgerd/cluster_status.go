package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// membershipReport is what ledgerd cluster status --json prints.
type membershipReport struct {
	Chain       string `json:"chain"`
	GenesisHash string `json:"genesis_hash"`
	Version     int    `json:"version"` // of the chain
	// Engine is the one by which the members order, and EngineHeight that of the block that named
	// it, or 0 if it is that of the nodes' settings.
	Engine           string `json:"engine"`
	EngineHeight     uint64 `json:"engine_height"`
	Shard            uint32 `json:"shard,omitempty"`
	ShardCount       uint32 `json:"shard_count,omitempty"` // in a ledger of several shards
	AskedNode        string `json:"asked_node"`
	MembershipNumber uint64 `json:"membership_number"` // number of changes since the genesis
	// MembershipHeight is the height of the block of the last change, or 0 if there was none.
	MembershipHeight uint64         `json:"membership_height"`
	Majority         int            `json:"majority"`
	Members          []memberReport `json:"members"`
	Former           []formerReport `json:"former"`
}

// memberReport is a member as the asked node sees it.
type memberReport struct {
	Index         uint32 `json:"index"`
	Name          string `json:"name"`
	State         string `json:"state"` // ordering, following, unreachable or never seen
	Address       string `json:"address"`
	APIAddress    string `json:"api_address,omitempty"`
	PublicKey     string `json:"public_key"`
	JoinedHeight  uint64 `json:"joined_height"`
	OrderedHeight uint64 `json:"ordered_height"`
	StoredHeight  uint64 `json:"stored_height"`
	Self          bool   `json:"self"` // the asked node itself
	// Disk is the disk that counts for the member, once the chain has named one.
	Disk string `json:"disk,omitempty"`
}

// formerReport is a node that left.
type formerReport struct {
	Index        uint32 `json:"index"`
	Name         string `json:"name"`
	JoinedHeight uint64 `json:"joined_height"`
	LeftHeight   uint64 `json:"left_height"`
}

// newClusterStatusCommand returns the `ledgerd cluster status` command.
func newClusterStatusCommand() *cobra.Command {
	var remote remoteOptions
	var shard shardFlag
	var dir string
	var asJSON bool
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the members of the ledger and their condition",
		Long: `Show the members of the ledger as of the asked node's head, and their condition as
far as that node knows.

  ordering     it takes part in ordering
  following    it answers, but does not order: it starts, fetches or halted
  unreachable  it was there before, but does not answer now
  never seen   it has not been seen since the asked node started

More than half of the members have to run for transactions to go on. For each
node's own view see ledgerd status.`,
		Example: `  ledgerd cluster status --via http://127.0.0.1:26600
  ledgerd cluster status --home net/node-0 --json | \
      jq -r '.members[] | "\(.index) \(.name) \(.state)"'

  # The members of another shard than the asked node's
  ledgerd cluster status --shard 2`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if dir != "" {
				if len(remote.nodes) > 0 {
					return usagef("--home asks the node in that home: leave --via out")
				}
				at, err := home.LoadJoining(dir)
				if err != nil {
					return err
				}
				remote.nodes = []string{testnet.URL(at)}
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			membership, cluster, err := nodes.MembershipOf(ctx, shard.number)
			if err != nil {
				return err
			}
			report := reportMembership(&membership, cluster, nodes.Current())
			if asJSON {
				return writeJSON(command.OutOrStdout(), report)
			}
			return report.write(command.OutOrStdout())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	bindVia(command, &remote)
	shard.bind(command, &remote, "the members of this shard (default the asked node's)")
	command.Flags().StringVar(&dir, "home", "", "ask the node of this home, instead of --via")
	addJSONFlag(command, &asJSON)
	return command
}

func reportMembership(membership *ledger.Membership, cluster *ledgerdv1.ClusterState,
	asked string) *membershipReport {
	report := &membershipReport{
		Chain: cluster.GetChain(), GenesisHash: hex.EncodeToString(cluster.GetGenesisHash()),
		Version:      max(ledger.FirstVersion, int(cluster.GetCharter().GetVersion())),
		Engine:       cluster.GetOrdering().GetEngine(),
		EngineHeight: cluster.GetOrdering().GetEngineHeight(),
		Shard:        cluster.GetShard(), ShardCount: cluster.GetShardCount(), AskedNode: asked,
		MembershipNumber: membership.Number,
		MembershipHeight: uint64(membership.Height), Majority: membership.Majority(),
		Members: []memberReport{}, Former: []formerReport{},
	}
	for _, member := range cluster.GetMembers() {
		report.Members = append(report.Members, memberReport{
			Index: member.GetIndex(), Name: member.GetName(), State: stateOf(member.GetStanding()),
			Address: member.GetAddress(), APIAddress: member.GetApiAddress(),
			PublicKey: hex.EncodeToString(member.GetKey()), JoinedHeight: member.GetJoinedHeight(),
			OrderedHeight: member.GetOrderedHeight(),
			StoredHeight:  member.GetStoredHeight(), Self: member.GetSelf(), Disk: member.GetDisk(),
		})
	}
	for _, former := range cluster.GetFormer() {
		report.Former = append(report.Former, formerReport{Index: former.GetIndex(),
			Name: former.GetName(), JoinedHeight: former.GetJoinedHeight(),
			LeftHeight: former.GetLeftHeight()})
	}
	return report
}

// stateOf returns the name of a member's standing, in lower case.
func stateOf(standing ledgerdv1.MemberStanding) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(standing.String(),
		"MEMBER_STANDING_"), "_", " "))
}

func (r *membershipReport) write(out io.Writer) error {
	changes := "none since the genesis"
	if r.MembershipNumber > 0 {
		changes = fmt.Sprintf("%d, the last in block %d", r.MembershipNumber, r.MembershipHeight)
	}
	overview := table{}
	name := sanitize(r.Chain, 0)
	if r.ShardCount > 1 {
		name += fmt.Sprintf(", shard %d of %d", r.Shard, r.ShardCount)
	}
	overview.add("ledger", fmt.Sprintf("%s (genesis %s)", name, r.GenesisHash))
	overview.add("version", fmt.Sprint(r.Version))
	overview.add("engine", engineWords(r.Engine, r.EngineHeight))
	overview.add("members", fmt.Sprintf("%d, of which %d have to run", len(r.Members), r.Majority))
	overview.add("changes", changes)
	overview.add("asked", r.AskedNode)
	if err := overview.write(out); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	rows := table{
		header: []string{"INDEX", "NAME", "STATE", "ORDERED", "STORED", "SINCE", "ADDRESS"},
		right:  []bool{true, false, false, true, true, true},
		colour: func(column int, cell string) string {
			switch {
			case column == 2 && cell == "never seen":
				return colourBad
			case column == 2:
				return colourOfMode(cell)
			}
			return ""
		},
	}
	for i := range r.Members {
		member := &r.Members[i]
		since := "genesis"
		if member.JoinedHeight > 0 {
			since = fmt.Sprint(member.JoinedHeight)
		}
		rows.add(fmt.Sprint(member.Index), sanitize(member.Name, 0), member.State,
			fmt.Sprint(member.OrderedHeight), fmt.Sprint(member.StoredHeight), since,
			sanitize(member.Address, 0))
	}
	return rows.write(out)
}

// memberCompletion completes the names of members, as a node knows them.
func memberCompletion(remote *remoteOptions) cobra.CompletionFunc {
	return func(command *cobra.Command, arguments []string, begun string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		if len(arguments) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(command, remote, func(ctx context.Context,
			nodes *client.Client) (words []cobra.Completion) {
			cluster, err := nodes.Cluster(ctx)
			if err != nil {
				return nil
			}
			for _, member := range cluster.GetMembers() {
				if strings.HasPrefix(member.GetName(), begun) {
					words = append(words, member.GetName())
				}
			}
			return words
		})
	}
}
