package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// leaveOptions are the flags of ledgerd cluster leave.
type leaveOptions struct {
	changeOptions
	home, name string
}

// leaveReport is what ledgerd cluster leave prints with --json.
type leaveReport struct {
	Name             string `json:"name"`
	Index            uint32 `json:"index"`
	AlreadyLeft      bool   `json:"already_left"`
	Durable          bool   `json:"durable"`
	Members          int    `json:"members"`
	MembershipNumber uint64 `json:"membership_number"`
	Height           uint64 `json:"height"` // of the block that removed it
	// Shard is the shard that it left, if the book has several.
	Shard *ledger.ShardID `json:"shard,omitempty"`
}

// newClusterLeaveCommand returns the `ledgerd cluster leave` command.
func newClusterLeaveCommand() *cobra.Command {
	var o leaveOptions
	command := &cobra.Command{
		Use:   "leave --name NAME --via URL --operator FILE",
		Short: "Have the ledger let a node go",
		Long: `Have the ledger let a node go, whether it runs or is lost.

Once the change is ordered, the others go on without the node. Then stop it, if
it runs. It cannot come back with its home: its promises to the others are void.
To bring the machine back, let a node with a new home join.

If the node left before, the command changes nothing and succeeds. The last
member cannot leave. A node cannot leave if too few members would be left
running; use --force if you know better than the asked node. Nor can a node leave
that has blocks which no other running node has, because the others began with
snapshots. They fetch these blocks, and ledgerd status shows their progress.`,
		Example: `  ledgerd cluster leave --name node-1 --via http://127.0.0.1:26600 \
                        --operator net/operator.key
  ledgerd cluster leave --home net/node-1 --via http://127.0.0.1:26600 \
                        --operator net/operator.key`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) > 1 {
				return usagef("one node leaves at a time, and %d are named", len(arguments))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			if len(arguments) == 1 {
				if o.name != "" && o.name != arguments[0] {
					return usagef("one node leaves at a time, and both %s and %s are named", o.name,
						sanitize(arguments[0], 0))
				}
				o.name = arguments[0]
			}
			if (o.name == "") == (o.home == "") {
				return usagef("name the node that is to leave, either by --name NAME or by " +
					"--home DIR")
			}
			c, ctx, done, err := o.connect(command)
			if err != nil {
				return err
			}
			defer done()
			who := leavingMember{name: o.name}
			if o.home != "" {
				at, err := home.LoadJoining(o.home)
				if err != nil {
					return err
				}
				if err := c.otherShard(o.home, at); err != nil {
					return err
				}
				who.key = publicOf(at.Key)
			}
			report, err := c.leave(ctx, who)
			if err != nil {
				return err
			}
			if o.json {
				return writeJSON(command.OutOrStdout(), report)
			}
			return report.write(command.OutOrStdout())
		},
		ValidArgsFunction: memberCompletion(&o.remote),
	}
	o.bind(command)
	command.Flags().StringVar(&o.name, "name", "", "name of the node that is to leave")
	command.Flags().StringVar(&o.home, "home", "",
		"home of the node that is to leave, instead of its name")
	completeFlag(command, "name", memberCompletion(&o.remote))
	return command
}

// leavingMember identifies the member that is to leave: by its public key if key is set, otherwise
// by name.
type leavingMember struct {
	name string
	key  []byte
}

func (l *leavingMember) find(membership *ledger.Membership) (ledger.GroupMember, bool) {
	if l.key != nil {
		return membership.ByKey(l.key)
	}
	return membership.ByName(l.name)
}

// leave removes a member, unless it left before.
func (c *membershipSession) leave(ctx context.Context, who leavingMember) (*leaveReport, error) {
	member, present := who.find(&c.membership)
	if !present {
		left := c.former(func(former *ledgerdv1.FormerMember) bool {
			return who.key != nil && string(former.GetKey()) == string(who.key) || who.key == nil &&
				former.GetName() == who.name
		})
		switch {
		case left != nil:
			return &leaveReport{
				Name: left.GetName(), Index: left.GetIndex(), AlreadyLeft: true, Durable: true,
				Height:  left.GetLeftHeight(),
				Members: len(c.membership.Members), MembershipNumber: c.membership.Number,
				Shard: c.shard(),
			}, nil
		case who.key != nil:
			return nil, fmt.Errorf("the node of this home is no member of %s: its members are %s",
				c.chain(), c.memberNames())
		}
		if shard, there := c.findElsewhere(ctx, func(member *ledger.Member) bool {
			return member.Name == who.name
		}); there != nil {
			return nil, fmt.Errorf("%s is a member of shard %d, and %s keeps shard %d: say "+
				"--shard %d", who.name, shard, c.nodes.Current(), c.genesis.Shard, shard)
		}
		return nil, fmt.Errorf("%s has no member %s: its members are %s", c.chain(), who.name,
			c.memberNames())
	}
	if len(c.membership.Members) == 1 {
		return nil, fmt.Errorf("%s is the only member and cannot leave: let another node join "+
			"first (ledgerd cluster join), and start it", member.Name)
	}
	if err := c.checkMajority(len(c.membership.Members)-1, c.running(member.Index)); err != nil {
		return nil, err
	}
	if err := c.checkHolder(ctx, &member); err != nil {
		return nil, err
	}
	done, err := c.order(ctx, ledger.MembershipChange{Kind: ledger.ChangeLeave,
		Index: member.Index})
	if err != nil {
		return nil, err
	}
	if err := c.await(ctx, func(now *ledger.Membership) bool {
		_, in := now.Find(member.Index)
		return !in
	}); err != nil {
		return nil, err
	}
	return &leaveReport{
		Name: member.Name, Index: uint32(member.Index), Durable: done.Durable, Height: done.Height,
		Members: len(c.membership.Members), MembershipNumber: c.membership.Number, Shard: c.shard(),
	}, nil
}

func (r *leaveReport) write(out io.Writer) error {
	of := ""
	if r.Shard != nil {
		of = fmt.Sprintf(" of shard %d", *r.Shard)
	}
	text := fmt.Sprintf("%s, member %d%s, left in block %d: %s now\n", r.Name, r.Index, of,
		r.Height, thereAre(r.Members))
	if r.AlreadyLeft {
		text = fmt.Sprintf("%s, member %d%s, left already, in block %d: %s\n", r.Name, r.Index,
			of, r.Height, thereAre(r.Members))
	}
	if !r.Durable {
		text += "It is not durable yet: see ledgerd cluster status.\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

// replaceReport is what ledgerd cluster replace prints with --json.
type replaceReport struct {
	Left   *leaveReport `json:"left"`
	Joined *joinReport  `json:"joined"`
}

// newClusterReplaceCommand returns the `ledgerd cluster replace` command.
func newClusterReplaceCommand() *cobra.Command {
	var o joinOptions
	command := &cobra.Command{
		Use:   "replace OLD --home NEW --via URL --operator FILE",
		Short: "Replace a node that is lost or to be retired by a new one",
		Long: `Replace a node that is lost or to be retired by a new one: OLD leaves, and then
the new node joins as with ledgerd cluster join.

These are two changes, one after the other. If a group exchanged a member in one
change, the old group and the new one could each find a majority of its own. OLD
goes first: if it is lost, the others keep their majority throughout. The new
node may have the old one's name, but never its home. As with ledgerd cluster
leave, nothing changes if OLD has blocks that no other running node has. If the
command is interrupted, run it again: it goes on where it was.`,
		Example: `  ledgerd cluster replace node-1 --home net/node-4 \
                          --via http://127.0.0.1:26600 --operator net/operator.key
  ledgerd start --home net/node-4`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 1 {
				return usagef("say which one node is to be replaced, for example ledgerd " +
					"cluster replace node-1 --home NEW")
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := o.check(); err != nil {
				return err
			}
			c, ctx, done, err := o.connect(command)
			if err != nil {
				return err
			}
			defer done()
			report, err := o.replace(ctx, c, arguments[0])
			if err != nil {
				return err
			}
			if o.json {
				return writeJSON(command.OutOrStdout(), report)
			}
			if err := report.Left.write(command.OutOrStdout()); err != nil {
				return err
			}
			_, err = fmt.Fprint(command.OutOrStdout(), report.Joined.text(o.home, c))
			return err
		},
		ValidArgsFunction: memberCompletion(&o.remote),
	}
	o.bind(command)
	return command
}

// replace lets one node leave and another join. If the new node is already a member with the name
// of the old one, an earlier run did the replacement.
func (o *joinOptions) replace(ctx context.Context, c *membershipSession,
	old string) (*replaceReport,
	error) {
	who := leavingMember{name: old}
	at, err := o.unfinished(c)
	if err != nil {
		return nil, err
	}
	if at != nil && old == o.name {
		if _, joined := c.membership.ByKey(publicOf(at.Key)); joined {
			left := c.former(func(former *ledgerdv1.FormerMember) bool {
				return former.GetName() == old
			})
			if left == nil {
				return nil, fmt.Errorf("%s is the home of %s itself: choose a new --home", o.home,
					old)
			}
			who = leavingMember{key: left.GetKey()}
		}
	}
	if _, taken := c.membership.ByName(o.name); taken && old != o.name && at == nil {
		return nil, fmt.Errorf("the ledger has a member %s already: choose another --name", o.name)
	}
	if at == nil {
		// Check before OLD leaves. Otherwise OLD could leave and the new node fail to join.
		if err := o.checkPorts(ctx, c, old); err != nil {
			return nil, err
		}
	}
	// Make sure that the new node can begin without OLD, before OLD leaves.
	if leaving, present := who.find(&c.membership); present {
		if err := o.checkSource(ctx, c, leaving.Index); err != nil {
			return nil, err
		}
	}
	left, err := c.leave(ctx, who)
	if err != nil {
		return nil, err
	}
	joined, err := o.join(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%s left, but the new node has not joined yet: %w", left.Name, err)
	}
	return &replaceReport{Left: left, Joined: joined}, nil
}
