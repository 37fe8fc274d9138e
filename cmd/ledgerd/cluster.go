package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

const (
	// changeLife is the number of blocks for which a change of the members stays valid. A change
	// that got lost then cannot be applied long after the operator gave it up.
	changeLife = 1000
	// changePause is the pause before the retry of a change that came too soon after another one.
	changePause = 300 * time.Millisecond
	// durablePatience limits the wait until an ordered change is durable. Durability may need a new
	// member that does not run yet.
	durablePatience = 5 * time.Second
	// membershipPause is the pause between two questions to a node for a change ordered elsewhere.
	membershipPause = 100 * time.Millisecond
)

// newClusterCommand returns the `ledgerd cluster` command.
func newClusterCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "cluster",
		Short: "Let nodes join and leave a running ledger",
		Long: `Let nodes join and leave a running ledger, and show its members.

The ledger itself decides its members: a change is a transaction. An operator
signs it, it is ordered like all others, and it takes effect at the same place on
every node, while transactions go on. Nodes accept transactions as long as more
than half of the members run and reach each other. So members change one at a
time, and a member that is gone for good should leave, or be replaced.

The operators are those of the chain's genesis, until they change themselves
(ledgerd cluster operators); ledgerd init and ledgerd testnet write the key of one
to operator.key in their folders. If several operators have to sign a change, name
the file of each with --operator.`,
		Example: `  # A fifth node for the four of ledgerd testnet --dir net --run
  ledgerd cluster join --home net/node-4 --via http://127.0.0.1:26600 --operator net/operator.key
  ledgerd start --home net/node-4

  # A machine is lost: another one replaces it
  ledgerd cluster replace node-1 --home new --via http://127.0.0.1:26600 --operator net/operator.key

  # Show the members and their condition
  ledgerd cluster status --via http://127.0.0.1:26600`,
	}, newClusterJoinCommand(), newClusterLeaveCommand(), newClusterReplaceCommand(),
		newClusterStatusCommand(), newClusterOperatorsCommand(), newClusterQuotasCommand(),
		newClusterUpgradeCommand(), newClusterEngineCommand())
}

// changeOptions are the flags of the commands that change the members.
type changeOptions struct {
	remote  remoteOptions
	shard   shardFlag
	signing operatorOptions
	force   bool
	json    bool
}

func (o *changeOptions) bind(command *cobra.Command) {
	bindVia(command, &o.remote)
	o.shard.bind(command, &o.remote, "the shard whose members change (default the one of the "+
		"node of --via)")
	flags := command.Flags()
	o.signing.bind(command)
	flags.BoolVar(&o.force, "force", false, "do it even if too few members may be left running "+
		"to go on, or if blocks are lost with a member that is away")
	addJSONFlag(command, &o.json)
}

// bindVia adds the flags that name the nodes to ask.
func bindVia(command *cobra.Command, remote *remoteOptions) {
	command.Flags().StringSliceVar(&remote.nodes, "via",
		nil, "address of a node of the ledger; several with commas or repeated (default $"+
			nodeVariable+" or "+client.DefaultURL+")")
	command.Flags().DurationVar(&remote.timeout, "timeout", 2*time.Minute,
		"give up after this time; 0 means never")
	remote.credentials.bind(command.Flags())
	completeFlag(command, "via", cobra.FixedCompletions([]string{client.DefaultURL},
		cobra.ShellCompDirectiveNoFileComp))
}

// membershipSession is the state of a command that changes the members, connected to a node.
type membershipSession struct {
	nodes      *client.Client
	genesis    *ledger.Genesis
	operators  []client.Key
	charter    ledger.Charter
	membership ledger.Membership
	others     map[ledger.ShardID][]ledger.Member // of other shards, once needed
	cluster    *ledgerdv1.ClusterState
	// tree asks for the tree of the book's shards as it is now. Only a refusal needs it.
	tree     func(context.Context) (*ledgerdv1.Tree, error)
	progress io.Writer
	force    bool
}

// connect asks a node for the chain and its members, and reads the operator's key.
func (o *changeOptions) connect(command *cobra.Command) (c *membershipSession, ctx context.Context,
	done func(), err error) {
	operators, err := o.signing.load()
	if err != nil {
		return nil, nil, nil, err
	}
	asked, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return nil, nil, nil, err
	}
	// A change is signed for the chain of one shard and ordered by its members. So ask the members
	// of that shard directly.
	nodes, close, err := o.shard.nodesOf(ctx, asked)
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	done = func(before func()) func() {
		return func() {
			close()
			before()
		}
	}(done)
	c = &membershipSession{nodes: nodes, operators: operators, progress: command.ErrOrStderr(),
		force: o.force, tree: nodes.Tree}
	if c.genesis, err = nodes.ChainGenesis(ctx); err == nil {
		err = c.refresh(ctx)
	}
	if err == nil {
		c.charter, err = api.CharterFromProto(c.cluster.GetCharter())
	}
	if err == nil {
		err = checkOperators(&c.charter, c.genesis.Chain, operators, o.signing.files)
	}
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	return c, ctx, done, nil
}

// shard returns the shard whose members change, or nil in a ledger of one shard.
func (c *membershipSession) shard() *ledger.ShardID {
	if !c.genesis.Sharded() {
		return nil
	}
	return &c.genesis.Shard
}

// chain names the chain or shard in messages.
func (c *membershipSession) chain() string {
	if !c.genesis.Sharded() {
		return "chain " + c.genesis.Chain
	}
	return fmt.Sprintf("shard %d of chain %s", c.genesis.Shard, c.genesis.Chain)
}

// otherShard returns an error if a home belongs to a node of a shard other than the one whose
// members change, and nil otherwise.
func (c *membershipSession) otherShard(dir string, at *home.Home) error {
	if at.Genesis.Book() != c.genesis.Book() || at.Genesis.Shard == c.genesis.Shard {
		return nil
	}
	return fmt.Errorf("%s is the home of a node of shard %d, and %s keeps shard %d: say --shard "+
		"%d, or choose another --home", dir, at.Genesis.Shard, c.nodes.Current(), c.genesis.Shard,
		at.Genesis.Shard)
}

// bookShards returns the number of shards of the book: those of the genesis, and those that the
// node knows to have been added.
func (c *membershipSession) bookShards() int {
	if !c.genesis.Sharded() {
		return 0
	}
	return max(c.genesis.BookShards(), int(c.cluster.GetShardCount()))
}

// elsewherePatience limits how long another shard is asked for its members.
const elsewherePatience = 2 * time.Second

// elsewhere returns the members of the other shards. They come from a shard's chain if one of its
// nodes answers, otherwise from the genesis.
func (c *membershipSession) elsewhere(ctx context.Context) map[ledger.ShardID][]ledger.Member {
	if c.others != nil {
		return c.others
	}
	c.others = map[ledger.ShardID][]ledger.Member{}
	for i := range c.bookShards() {
		shard := ledger.ShardID(i)
		if shard == c.genesis.Shard {
			continue
		}
		var members []ledger.Member
		if first, err := c.nodes.ShardGenesis(ctx, shard); err == nil {
			members = first.Members
		} else if i < len(c.genesis.Shards) {
			members = c.genesis.Shards[i]
		}
		bounded, cancel := context.WithTimeout(ctx, elsewherePatience)
		number := uint32(shard)
		if now, _, err := c.nodes.MembershipOf(bounded, &number); err == nil {
			members = nil
			for j := range now.Members {
				members = append(members, now.Members[j].Member)
			}
		}
		cancel()
		c.others[shard] = members
	}
	return c.others
}

// findElsewhere finds a member of another shard.
func (c *membershipSession) findElsewhere(ctx context.Context,
	is func(*ledger.Member) bool) (shard ledger.ShardID, found *ledger.Member) {
	others := c.elsewhere(ctx)
	for i := range c.bookShards() {
		members := others[ledger.ShardID(i)]
		for j := range members {
			if is(&members[j]) {
				return ledger.ShardID(i), &members[j]
			}
		}
	}
	return 0, nil
}

// refresh asks a node for the members.
func (c *membershipSession) refresh(ctx context.Context) (err error) {
	c.membership, c.cluster, err = c.nodes.Membership(ctx)
	return err
}

// say reports progress to the user.
func (c *membershipSession) say(format string, arguments ...any) {
	// The change goes on even if the message cannot be written.
	_, _ = fmt.Fprintf(c.progress, format+"\n", arguments...)
}

// running counts the members that answer, except those in but, which are to leave.
func (c *membershipSession) running(but ...ledger.MemberIndex) (count int) {
	for _, member := range c.cluster.GetMembers() {
		if !isAway(member) && !slices.Contains(but, ledger.MemberIndex(member.GetIndex())) {
			count++
		}
	}
	return count
}

// isAway reports whether a member does not answer.
func isAway(member *ledgerdv1.MemberState) bool {
	standing := member.GetStanding()
	return standing == ledgerdv1.MemberStanding_MEMBER_STANDING_UNREACHABLE ||
		standing == ledgerdv1.MemberStanding_MEMBER_STANDING_NEVER_SEEN
}

// absent returns the height up to which no member that answers has blocks. It ignores the members
// in but, which are to leave.
func (c *membershipSession) absent(but ...ledger.MemberIndex) (height uint64) {
	first := true
	for _, member := range c.cluster.GetMembers() {
		if isAway(member) || slices.Contains(but, ledger.MemberIndex(member.GetIndex())) {
			continue
		}
		if first || member.GetAbsentHeight() < height {
			first, height = false, member.GetAbsentHeight()
		}
	}
	return height
}

// errLastHolder means that blocks would be lost with a member.
var errLastHolder = errors.New("blocks would be lost")

// checkHolder refuses to remove a member that has, or may have, blocks that no other answering
// member has. For a member that is away, --force gives these blocks up.
func (c *membershipSession) checkHolder(ctx context.Context,
	leaving *ledger.GroupMember) error {
	absent := c.absent(leaving.Index)
	at := slices.IndexFunc(c.cluster.GetMembers(), func(member *ledgerdv1.MemberState) bool {
		return ledger.MemberIndex(member.GetIndex()) == leaving.Index
	})
	if absent == 0 || at < 0 {
		return nil
	}
	member := c.cluster.GetMembers()[at]
	switch {
	case (!isAway(member) || member.GetLastHeardMs() > 0) && member.GetAbsentHeight() >= absent:
		return nil
	case !isAway(member):
		return fmt.Errorf("%w: %s is the last member that answers and has the blocks from %d to "+
			"%d, since the others began with snapshots; wait until one of them has fetched them "+
			"(ledgerd status shows how far they are), or start a member that has them; to give "+
			"them up, stop %s and use --force%s",
			errLastHolder, leaving.Name, member.GetAbsentHeight()+1, absent, leaving.Name,
			c.waitBelow(ctx))
	case c.force:
		return nil
	}
	return fmt.Errorf("%w: no member that answers has the blocks up to %d, and %s, which does "+
		"not answer, may have them; start it, or another member that has them, until a member "+
		"that stays has fetched them (ledgerd status shows how far they are); if they are lost, "+
		"or to give them up, use --force%s", errLastHolder, absent, leaving.Name,
		c.waitBelow(ctx))
}

// waitBelow returns what it would mean for the shards below to give blocks up, if there are any, or
// may be: the node may not be able to tell.
func (c *membershipSession) waitBelow(ctx context.Context) string {
	if !c.genesis.Sharded() {
		return ""
	}
	if tree, err := c.tree(ctx); err == nil && !feeds(tree, uint32(c.genesis.Shard)) {
		return ""
	}
	return fmt.Sprintf(": a shard below shard %d that ledgerd shards shows as BEHIND may then "+
		"wait for ever for entries in these blocks", c.genesis.Shard)
}

// feeds reports whether a shard lies below this one, or hangs elsewhere and still takes entries
// from it.
func feeds(tree *ledgerdv1.Tree, above uint32) bool {
	for _, each := range tree.GetShards() {
		if !each.GetRoot() && each.GetParent() == above {
			return true
		}
		for _, stream := range each.GetStreams() {
			if slices.Contains(stream.GetFormer(), above) {
				return true
			}
		}
	}
	return false
}

// errWouldLoseMajority means that the members left running would be no majority. errNoMajority
// means that the running members are no majority now.
var (
	errWouldLoseMajority = errors.New("the ledger would stop")
	errNoMajority        = errors.New("the ledger stands still")
)

// checkMajority refuses a change that leaves fewer running members than a majority, unless forced.
func (c *membershipSession) checkMajority(members, running int) error {
	need := members/2 + 1
	if running >= need || c.force {
		return nil
	}
	if runs, takes := c.running(), c.membership.Majority(); runs < takes {
		return fmt.Errorf("%w: of its %s, %d run as far as %s knows, and any change needs %d; "+
			"start those that are away first (see ledgerd cluster status)",
			errNoMajority, plural(len(c.membership.Members), "member"), runs, c.nodes.Current(),
			takes)
	}
	return fmt.Errorf("%w: of the %s that there would be, %d would run as far as %s knows, and "+
		"the ledger needs %d; start those that are away first (see ledgerd cluster status), or "+
		"use --force",
		errWouldLoseMajority, plural(members, "member"), running, c.nodes.Current(), need)
}

// checkJoin refuses another member while too few of the present ones run, as nodes do too. It
// always allows a second member: two members need both.
func (c *membershipSession) checkJoin() error {
	members := len(c.membership.Members)
	if members == 1 {
		return nil
	}
	return c.checkMajority(members+1, c.running())
}

// orderedChange is an ordered change.
type orderedChange struct {
	Height  uint64
	ID      string
	Durable bool
}

// refusals are hints on what to do about a refused change, by the code of its reason.
var refusals = map[string]string{
	api.ReasonCode(ledger.MemberNameTaken): "choose another --name",
	api.ReasonCode(ledger.MemberAddressTaken): "choose another --base-port or --address, or let " +
		"the member that has it leave first",
	api.ReasonCode(
		ledger.MemberKeyTaken): "a home is good for one membership: choose a new --home",
	api.ReasonCode(ledger.UnknownMember): "it may have left in this moment: see ledgerd " +
		"cluster status",
	api.ReasonCode(ledger.LastMember): "let another node join first, and start it",
}

// order gets a change ordered, and waits up to durablePatience until it is durable.
func (c *membershipSession) order(ctx context.Context,
	change ledger.MembershipChange) (orderedChange, error) {
	told := false
	for {
		head := ledger.Height(c.cluster.GetNode().GetOrderedHeight())
		transaction := ledger.Transaction{Change: &change, LastValid: head + changeLife}
		status, err := c.nodes.Post(ctx, c.operators, transaction,
			ledgerdv1.Level_LEVEL_ORDERED)
		if err != nil {
			return orderedChange{}, fmt.Errorf("%w; the same command goes on with it",
				withWriters(err))
		}
		result := orderedChange{Height: status.GetHeight(), ID: status.GetIdHex()}
		switch {
		case status.GetReasonCode() == api.ReasonCode(ledger.MembershipChanging):
			if !told {
				c.say("the members are changing already: trying again until that is done")
				told = true
			}
			if err := sleep(ctx, changePause); err != nil {
				return orderedChange{}, err
			}
			continue
		case status.GetReasonCode() != "":
			if hint := refusals[status.GetReasonCode()]; hint != "" {
				return orderedChange{}, fmt.Errorf("%s: %s", status.GetReason(), hint)
			}
			return orderedChange{}, errors.New(status.GetReason())
		}
		result.Durable, err = c.awaitDurable(ctx, result.ID)
		return result, err
	}
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitDurable waits for durability, which may need a node that is only started later.
func (c *membershipSession) awaitDurable(ctx context.Context, id string) (bool, error) {
	hash, err := ledger.ParseHash(id)
	if err != nil {
		return false, fmt.Errorf("the node's answer: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, durablePatience)
	defer cancel()
	transaction, err := c.nodes.Wait(bounded, hash, ledgerdv1.Level_LEVEL_DURABLE)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err == nil && client.Reached(transaction.GetStatus(), ledgerdv1.Level_LEVEL_DURABLE), nil
}

// await asks a node for the members until they satisfy wanted.
func (c *membershipSession) await(ctx context.Context, wanted func(*ledger.Membership) bool) error {
	for {
		if err := c.refresh(ctx); err != nil {
			return err
		}
		if wanted(&c.membership) {
			return nil
		}
		if err := sleep(ctx, membershipPause); err != nil {
			return err
		}
	}
}

// former returns the latest former member that satisfies is, or nil.
func (c *membershipSession) former(is func(*ledgerdv1.FormerMember) bool) *ledgerdv1.FormerMember {
	former := c.cluster.GetFormer()
	for i := len(former) - 1; i >= 0; i-- {
		if is(former[i]) {
			return former[i]
		}
	}
	return nil
}

// memberNames returns the names of all members, for messages.
func (c *membershipSession) memberNames() string {
	var all []string
	for i := range c.membership.Members {
		all = append(all, c.membership.Members[i].Name)
	}
	return strings.Join(all, ", ")
}

// publicOf returns the public half of a node's key.
func publicOf(key ed25519.PrivateKey) []byte { return key.Public().(ed25519.PublicKey) }

// changeReport is a change of the members as --json prints it.
type changeReport struct {
	Kind    string  `json:"kind"` // join, leave, admit or engine
	Name    string  `json:"name,omitempty"`
	Address string  `json:"address,omitempty"`
	Index   *uint32 `json:"index,omitempty"` // of the member that leaves or has a new disk
	Disk    string  `json:"disk,omitempty"`
	Engine  string  `json:"engine,omitempty"` // by which the members will order
}

func reportChange(change *ledgerdv1.MembershipChange) *changeReport {
	switch change := change.GetChange().(type) {
	case *ledgerdv1.MembershipChange_Join:
		return &changeReport{Kind: ledger.ChangeJoin.String(), Name: change.Join.GetName(),
			Address: change.Join.GetAddress()}
	case *ledgerdv1.MembershipChange_Leave:
		return &changeReport{Kind: ledger.ChangeLeave.String(), Index: &change.Leave}
	case *ledgerdv1.MembershipChange_Admit:
		index := change.Admit.GetIndex()
		disk := change.Admit.GetDisk()
		return &changeReport{Kind: ledger.ChangeAdmit.String(), Index: &index, Disk: disk}
	case *ledgerdv1.MembershipChange_Engine:
		return &changeReport{Kind: ledger.ChangeEngine.String(), Engine: change.Engine}
	}
	return nil
}

// String describes the change in words.
func (r *changeReport) String() string {
	switch {
	case r.Disk != "":
		return fmt.Sprintf("member %d counts with disk %s", *r.Index, sanitize(r.Disk, 0))
	case r.Engine != "":
		return fmt.Sprintf("the members order by engine %s", sanitize(r.Engine, 0))
	case r.Index != nil:
		return fmt.Sprintf("member %d leaves", *r.Index)
	}
	return fmt.Sprintf("%s joins, at %s", sanitize(r.Name, 0), sanitize(r.Address, 0))
}

// signerName names the signer of a transaction in messages. A signature of no organisation is an
// operator's, or, for the admission of a disk, possibly a member's.
func signerName(organisation string, change *changeReport) string {
	switch {
	case organisation != string(ledger.Operator):
		return organisation
	case change != nil && change.Kind == ledger.ChangeAdmit.String():
		return "a member or operator"
	}
	return "an operator"
}

// isLoopback reports whether a host is reachable from this machine only.
func isLoopback(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}
