package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// joinOptions are the flags of the commands that let a node join.
type joinOptions struct {
	changeOptions
	home, name, address, genesis string
	basePort                     int
	certificate, certificateKey  string
	snapshot                     bool
	fabric                       fabric.Kind
	// beside are nodes that have homes, and no place in the ledger yet.
	beside []ledger.Member
}

// joinReport is what these commands print with --json.
type joinReport struct {
	homeReport
	Index            uint32 `json:"index"`
	Address          string `json:"address"` // where the other members find it
	AlreadyMember    bool   `json:"already_member"`
	Durable          bool   `json:"durable"`
	Members          int    `json:"members"`
	MembershipNumber uint64 `json:"membership_number"`
	Height           uint64 `json:"height"` // of the block that admitted it
	SnapshotHeight   uint64 `json:"snapshot_height,omitempty"`
	// Certificate is the file of the API's certificate, if the home serves TLS.
	Certificate string `json:"certificate,omitempty"`
	// SelfSigned reports that this command made that certificate.
	SelfSigned bool `json:"self_signed,omitempty"`
}

// newClusterJoinCommand returns the `ledgerd cluster join` command.
func newClusterJoinCommand() *cobra.Command {
	var o joinOptions
	command := &cobra.Command{
		Use:   "join --home NEW --via URL --operator FILE",
		Short: "Make a new node's home, and have the ledger let it in",
		Long: `Make a new node's home, and have the ledger let it in.

The home gets the chain's genesis from the node that --via names, a new key and
the settings that all nodes share. Compare the printed genesis hash with the one
that you know, or pass that with --genesis. Then the change is signed with the
operator's key and ordered. After that, start the node: it fetches the ledger
from the others, checks it, and takes part.

The new member counts from the moment of its admission, whether it runs or not:
more than half of the members, including it, have to run. So start it soon.

The node fetches and executes all blocks from the beginning. With --snapshot it
begins with the current state of the ledger instead. That is faster. The state
comes from the node that --via names or from another one, and is checked against
a block that a majority of the members confirms. The node fetches the earlier
blocks while it works. Until it has them, other nodes serve them to readers, and
ledgerd verify and export cannot go through them at the new node; ledgerd status
shows its progress. If no running node has all blocks, the new one begins with a
snapshot in any case.

If the ledger has several shards, the new node joins the shard that the node of
--via belongs to, or the one that --shard names.

If the node of --via serves TLS, so does the new one: with the certificate that
--api-cert and --api-key name, which the home gets a copy of, or else with one
that this command makes for --address. No authority signs that one, so clients
need the file with --ca.

If the command is interrupted, run it again: it goes on where it was. Once it has
succeeded, running it again changes nothing.

The node has its API on port P and talks to the other nodes on port P+1, where P
is the --base-port; without it, two free ports are chosen. --address is the host
by which the others find it. If that host is not a loopback address, the node
listens on all its addresses; change that in config.toml in the home if you wish.
Then also say there who is served, before the node starts: see ledgerd access.
The --fabric has to be that of the other nodes.`,
		Example: `  ledgerd cluster join --home net/node-4 --via http://127.0.0.1:26600 \
                       --operator net/operator.key
  ledgerd start --home net/node-4

  # On another machine
  ledgerd cluster join --home ledger --via http://10.0.0.1:8080 --operator operator.key \
                       --address 10.0.0.5 --base-port 8080`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) > 0 {
				return usagef("name the new node's home with --home, for example --home %s",
					sanitize(arguments[0], 0))
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			c, ctx, done, err := o.connect(command)
			if err != nil {
				return err
			}
			defer done()
			report, err := o.join(ctx, c)
			if err != nil {
				return err
			}
			if o.json {
				return writeJSON(command.OutOrStdout(), report)
			}
			_, err = fmt.Fprint(command.OutOrStdout(), report.text(o.home, c))
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.bind(command)
	return command
}

func (o *joinOptions) bind(command *cobra.Command) {
	o.changeOptions.bind(command)
	flags := command.Flags()
	flags.StringVar(&o.home, "home", "", "folder to make, the new node's home (required)")
	flags.StringVar(&o.name, "name", "", "name of the new node (default the name of the --home "+
		"folder)")
	flags.IntVar(&o.basePort, "base-port", 0, "port of the new node's API; the next one is for "+
		"the other nodes (default two that are free)")
	flags.StringVar(&o.address, "address", "127.0.0.1",
		"host by which the other nodes find the new one")
	flags.BoolVar(&o.snapshot, "snapshot", false,
		"begin with the current state of the ledger, and fetch the earlier blocks later")
	flags.StringVar(&o.certificate, "api-cert", "",
		"file with the certificate of the new node's API, in PEM")
	flags.StringVar(&o.certificateKey, "api-key", "", "file with the key of --api-cert, in PEM")
	command.MarkFlagsRequiredTogether("api-cert", "api-key")
	flags.StringVar(&o.genesis, "genesis", "", "genesis hash that the chain has to have")
	addFabricFlag(command, &o.fabric, fabric.P2P)
}

// check validates the flags and fills in the name.
func (o *joinOptions) check() error {
	if o.home == "" {
		return usagef("--home is missing: say which folder gets the new node's home, for " +
			"example --home net/node-4")
	}
	if o.name == "" {
		path, err := filepath.Abs(o.home)
		if err != nil {
			return err
		}
		o.name = filepath.Base(path)
	}
	if err := ledger.OrganisationName(o.name).Validate(); err != nil {
		return usagef("--name %q is no name for a node: use letters, digits, '-', '_' and '.', "+
			"at most %d", o.name, ledger.MaxOrganisationName)
	}
	if o.basePort < 0 || o.basePort > 65534 {
		return usagef("--base-port %d: ports are 1 to 65535, and the one after it is used, too",
			o.basePort)
	}
	if host := net.ParseIP(o.address); o.address == "" || host != nil && host.IsUnspecified() ||
		host == nil && strings.ContainsAny(o.address, ":/[] ") {
		return usagef("--address %q: give the host by which the other nodes find this one, "+
			"without a port, for example 10.0.0.5", o.address)
	}
	if _, err := fabric.Parse(string(o.fabric)); err != nil {
		return usagef("--fabric: %w", err)
	}
	if o.genesis != "" {
		if _, err := ledger.ParseHash(o.genesis); err != nil {
			return usagef("--genesis %q: it is 64 hex digits", o.genesis)
		}
	}
	return nil
}

// join makes the home, gets the change ordered, and records the member's index in the home.
func (o *joinOptions) join(ctx context.Context, c *membershipSession) (*joinReport, error) {
	if hash := c.genesis.Hash().String(); o.genesis != "" && o.genesis != hash {
		return nil, fmt.Errorf("%s keeps the chain with genesis %s, not %s: ask a node of the "+
			"right chain with --via", c.nodes.Current(), hash, o.genesis)
	}
	if err := o.checkSource(ctx, c); err != nil {
		return nil, err
	}
	at, member, err := o.prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	report := &joinReport{Durable: true, Certificate: at.File(at.Config.API.Certificate)}
	if report.SelfSigned, err = o.certify(at); err != nil {
		return nil, err
	}
	if present, already := c.membership.ByKey(member.Key); already {
		report.AlreadyMember, report.Height = true, uint64(present.Joined)
	} else {
		if err := c.checkJoin(); err != nil {
			return nil, err
		}
		done, err := c.order(ctx, ledger.MembershipChange{Kind: ledger.ChangeJoin, Member: member})
		if err != nil {
			return nil, err
		}
		report.Height, report.Durable = done.Height, done.Durable
		if err := c.await(ctx, func(now *ledger.Membership) bool {
			_, in := now.ByKey(member.Key)
			return in
		}); err != nil {
			return nil, err
		}
	}
	if err := at.Admit(c.membership); err != nil {
		return nil, err
	}
	if report.homeReport, err = reportHome(at); err != nil {
		return nil, err
	}
	if o.snapshot {
		height, err := c.fill(ctx, at)
		if err != nil {
			return nil, fmt.Errorf("%s is a member now, but the snapshot failed: %w; the same "+
				"command tries it again, and without it `ledgerd start --home %s` fetches all "+
				"blocks", report.Name, err, o.home)
		}
		report.SnapshotHeight = uint64(height)
	}
	self, _ := c.membership.ByKey(member.Key)
	report.Index, report.Address = uint32(at.Self), self.Address
	report.Members, report.MembershipNumber = len(c.membership.Members), c.membership.Number
	return report, nil
}

// prepare makes the home, or continues with one that an earlier run made.
func (o *joinOptions) prepare(ctx context.Context, c *membershipSession) (*home.Home, ledger.Member,
	error) {
	at, err := o.unfinished(c)
	if err != nil {
		return nil, ledger.Member{}, err
	}
	if at != nil {
		member := ledger.Member{Name: o.name, Key: publicOf(at.Key)}
		_, port, err := net.SplitHostPort(at.Config.Fabric.Listen)
		if err != nil {
			return nil, ledger.Member{}, fmt.Errorf("%s: fabric.listen: %w",
				filepath.Join(o.home, home.ConfigFile), err)
		}
		if o.basePort != 0 && port != strconv.Itoa(o.basePort+1) {
			return nil, ledger.Member{}, fmt.Errorf("%s is there already, and uses port %s for "+
				"the other nodes: leave --base-port out to go on with it, or choose another --home",
				o.home, port)
		}
		member.Address = net.JoinHostPort(o.address, port)
		return at, member, nil
	}
	if _, taken := c.membership.ByName(o.name); taken {
		return nil, ledger.Member{},
			fmt.Errorf("the ledger has a member %s already: choose another --name", o.name)
	}
	if shard, taken := c.findElsewhere(ctx, func(member *ledger.Member) bool {
		return member.Name == o.name
	}); taken != nil {
		return nil, ledger.Member{}, fmt.Errorf("the ledger has a member %s already, in shard "+
			"%d: choose another --name", o.name, shard)
	}
	port, err := o.ports(ctx, c)
	if err != nil {
		return nil, ledger.Member{}, err
	}
	key, err := p2p.NewIdentity(rand.Reader)
	if err != nil {
		return nil, ledger.Member{}, err
	}
	member := ledger.Member{Name: o.name, Key: publicOf(key),
		Address: net.JoinHostPort(o.address, strconv.Itoa(port+1))}
	if err := member.Validate(); err != nil {
		return nil, ledger.Member{}, asUsage(err)
	}
	// Refuse early: a refused change must leave no home behind.
	if err := c.checkJoin(); err != nil {
		return nil, ledger.Member{}, err
	}
	config := o.configuration(c.cluster, port)
	if o.certificate != "" || strings.HasPrefix(c.nodes.Current(), "https://") {
		config.API.Certificate, config.API.Key = certificateFile, certificateKeyFile
	}
	at, err = home.CreateJoining(o.home, config, c.genesis, key)
	if err == nil && len(c.genesis.Grown) > 0 {
		// The node executes the blocks from the beginning of the shard's chain.
		var seed []byte
		if seed, err = c.nodes.Seed(ctx, c.genesis); err == nil {
			err = home.WriteFile(filepath.Join(o.home, home.SeedFile), seed, 0o644)
		}
	}
	return at, member, err
}

// unfinished returns the home that an earlier run made, or nil.
func (o *joinOptions) unfinished(c *membershipSession) (*home.Home, error) {
	if _, err := os.Stat(filepath.Join(o.home, home.ConfigFile)); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	at, err := home.LoadJoining(o.home)
	if err != nil {
		return nil, err
	}
	own, its := at.Genesis.Hash(), c.genesis.Hash()
	if err := c.otherShard(o.home, at); err != nil {
		return nil, err
	}
	if own != its {
		return nil, fmt.Errorf("%s is the home of a node of another chain, %s (genesis %s), but "+
			"%s keeps %s (genesis %s): choose another --home", o.home, at.Genesis.Chain, own,
			c.nodes.Current(), c.genesis.Chain, its)
	}
	public := publicOf(at.Key)
	if left := c.former(func(former *ledgerdv1.FormerMember) bool {
		return string(former.GetKey()) == string(public)
	}); left != nil {
		return nil, fmt.Errorf("%s is the home of %s, which left in block %d, and a home serves "+
			"one membership only: choose a new --home", o.home, left.GetName(),
			left.GetLeftHeight())
	}
	return at, nil
}

// configuration returns the new home's configuration: the shared settings, and where it listens.
func (o *joinOptions) configuration(cluster *ledgerdv1.ClusterState, port int) home.Config {
	config := home.Default()
	host := "0.0.0.0"
	if isLoopback(o.address) {
		host = o.address
	}
	config.API.Listen = net.JoinHostPort(host, strconv.Itoa(port))
	config.Fabric.Listen = net.JoinHostPort(host, strconv.Itoa(port+1))
	config.Fabric.Kind = o.fabric
	shared := cluster.GetOrdering()
	if engine := cluster.GetNode().GetEngine().GetEngine(); engine != "" {
		config.Ordering.Engine = engine
	}
	if shared.GetEngine() != "" {
		config.Ordering.Engine = shared.GetEngine()
	}
	take := func(to *int, value uint32) {
		if value != 0 {
			*to = int(value)
		}
	}
	take(&config.Ordering.TargetNines, shared.GetTargetNines())
	take(&config.Ordering.ServerMTTFHour, shared.GetServerMttfHours())
	take(&config.Ordering.BatchBytesMax, shared.GetBatchBytesMax())
	config.Ordering.Prompt = shared.GetPrompt()
	return config
}

// ports returns the port of the API; the next port is for the other nodes. Without --base-port, it
// is the first of two ports that are free on this machine and that no known member uses. The search
// starts after the ports of the members on the same host.
func (o *joinOptions) ports(ctx context.Context, c *membershipSession) (int, error) {
	if o.basePort != 0 {
		return o.basePort, o.checkPorts(ctx, c, "")
	}
	first := testnet.DefaultBasePort
	behind := func(member *ledger.Member) {
		host, text, err := net.SplitHostPort(member.Address)
		if port, failed := strconv.Atoi(text); err == nil && failed == nil && host == o.address {
			first = max(first, port+1)
		}
	}
	for i := range c.membership.Members {
		behind(&c.membership.Members[i].Member)
	}
	for i := range o.beside {
		behind(&o.beside[i])
	}
	for _, members := range c.elsewhere(ctx) {
		for i := range members {
			behind(&members[i])
		}
	}
	const tries = 1000
	for port := first; port < min(first+2*tries, 65535); port += 2 {
		if isFree(port) && isFree(port+1) {
			return port, nil
		}
	}
	return 0, errors.New("no two free ports were found: choose some with --base-port")
}

// checkPorts makes sure that no member and no program here uses the ports of --base-port. A member
// that is to leave first does not count.
func (o *joinOptions) checkPorts(ctx context.Context, c *membershipSession, leaving string) error {
	if o.basePort == 0 {
		return nil
	}
	address := net.JoinHostPort(o.address, strconv.Itoa(o.basePort+1))
	for i := range c.membership.Members {
		if taken := &c.membership.Members[i]; taken.Address == address && taken.Name != leaving {
			return fmt.Errorf("member %s has the address %s already: choose another --base-port "+
				"or --address, or let it leave first", taken.Name, address)
		}
	}
	if shard, taken := c.findElsewhere(ctx, func(member *ledger.Member) bool {
		return member.Address == address
	}); taken != nil {
		return fmt.Errorf("member %s of shard %d has the address %s already: choose another "+
			"--base-port or --address", taken.Name, shard, address)
	}
	if !isLoopback(o.address) {
		return nil // The home may be for another machine.
	}
	for _, port := range []int{o.basePort, o.basePort + 1} {
		if !isFree(port) {
			return fmt.Errorf("port %d is in use on this machine: choose another --base-port, "+
				"or leave it out", port)
		}
	}
	return nil
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

func (r *joinReport) text(dir string, c *membershipSession) string {
	text := fmt.Sprintf("%s is member %d of chain %s, admitted by block %d: %s now\n", r.Name,
		r.Index, r.Chain, r.Height, thereAre(r.Members))
	if r.AlreadyMember {
		since := "the genesis"
		if r.Height > 0 {
			since = fmt.Sprintf("block %d", r.Height)
		}
		text = fmt.Sprintf("%s is member %d of chain %s already, since %s: %s\n", r.Name, r.Index,
			r.Chain, since, thereAre(r.Members))
	}
	if r.Shard != nil {
		text += fmt.Sprintf("  shard    %d\n", *r.Shard)
	}
	text += fmt.Sprintf("  home     %s\n  API      %s\n  address  %s\n  genesis  %s\n", dir,
		r.API, r.Address, r.Genesis)
	if r.Certificate != "" {
		note := ""
		if r.SelfSigned {
			note = " (self-signed: clients need it with --ca)"
		}
		text += fmt.Sprintf("  TLS      %s%s\n", r.Certificate, note)
	}
	if r.SnapshotHeight > 0 {
		text += fmt.Sprintf("  ledger   begins with block %d\n", r.SnapshotHeight)
	}
	text += fmt.Sprintf("\nNext: ledgerd start --home %s\n", dir)
	switch need := c.membership.Majority(); {
	case !r.Durable:
		text += "It is not durable yet. That takes the disks of a majority, maybe the new " +
			"node's too: start it now.\n"
	case c.running() < need && !r.AlreadyMember:
		text += fmt.Sprintf("The ledger waits for it: ordering transactions takes %d of the %d "+
			"members, and %d run.\n", need, r.Members, c.running())
	}
	return text
}

// thereAre states the number of members.
func thereAre(members int) string {
	if members == 1 {
		return "there is 1 member"
	}
	return fmt.Sprintf("there are %d members", members)
}
