package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/keyfile"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// initOptions are the flags of ledgerd init.
type initOptions struct {
	home, name, chain, listen, address, genesis, key string
	fabric                                           fabric.Kind
	operators                                        []string
	threshold                                        int
	registration                                     string
	quotas                                           []string
	passphrases                                      passphraseOptions
	json                                             bool
}

// initReport is what ledgerd init prints with --json.
type initReport struct {
	homeReport
	// OperatorKey is the file with the new operator's key, if one was made.
	OperatorKey string   `json:"operator_key,omitempty"`
	Operators   []string `json:"operators"` // public keys
	// Threshold is the number of operators that have to sign.
	Threshold    int    `json:"threshold"`
	Registration string `json:"registration"` // open or operators
}

// homeReport is a node's home as commands print it with --json.
type homeReport struct {
	Name    string `json:"name"`
	Home    string `json:"home"`
	API     string `json:"api"`
	Fabric  string `json:"fabric"`
	Chain   string `json:"chain"`
	Genesis string `json:"genesis_hash"`
	PeerID  string `json:"peer_id"`
	// Shard is the shard that the node keeps, if the book has several.
	Shard *ledger.ShardID `json:"shard,omitempty"`
}

// shardText returns the shard's number and its place in the tree as a table cell, or nothing if the
// book has one shard. tree holds each shard's parent.
func (r *homeReport) shardText(tree []ledger.ShardID) string {
	if r.Shard == nil {
		return ""
	}
	place := "root"
	if parent := tree[*r.Shard]; parent != *r.Shard {
		place = fmt.Sprintf("below %d", parent)
	}
	return fmt.Sprintf(" shard %-2d %-8s", *r.Shard, place)
}

func reportHome(h *home.Home) (homeReport, error) {
	id, err := p2p.PeerID(h.Key.Public().(ed25519.PublicKey))
	if err != nil {
		return homeReport{}, err
	}
	dir, err := filepath.Abs(h.Dir)
	if err != nil {
		return homeReport{}, err
	}
	report := homeReport{
		Name: h.Name(), Home: dir, API: testnet.URL(h), Fabric: h.FabricAddress(),
		Chain: h.Genesis.Chain, Genesis: h.Genesis.Hash().String(), PeerID: string(id),
	}
	if h.Genesis.Sharded() {
		report.Shard = &h.Genesis.Shard
	}
	return report, nil
}

// newInitCommand returns the `ledgerd init` command.
func newInitCommand() *cobra.Command {
	var o initOptions
	command := &cobra.Command{
		Use:   "init --home DIR",
		Short: "Make the home folder of a node",
		Long: `Make the home folder of a node: its configuration, its key, and the genesis of
its chain.

Without --genesis, the command makes a new chain with this node as its only
member. No other node can take over if it fails: let other nodes join, on this
machine or on others, with ledgerd cluster join. For several nodes on one machine
from the beginning see ledgerd testnet.

An operator of the chain decides about its members. A new chain gets one operator,
whose key is in operator.key in the folder: keep it in a safe place, away from
the node, which does not need it. Without this key the members can never change.
The command asks for a passphrase for it, reads one from --passphrase-file, or
writes the key without one with --plain. The node's own key has no passphrase,
since nodes start by themselves: only you can read the file.
If you have an operator's key already, name it with --operator: its public half,
64 hex digits, is enough, and then no key is made. With several operators,
--threshold says how many of them have to sign. The operators can change that
later: see ledgerd cluster operators.

Operators also sign the registration of each organisation (ledgerd org add NAME
--operator KEYFILE). With --registration open any client registers organisations,
and a name belongs to the first to register it. --quota bounds what each
organisation may keep: see ledgerd cluster quotas.

Nodes on other machines find the node of a new chain at --fabric-address. If there
will be any, give an address that they can reach. All nodes use the same fabric:
see ledgerd fabric.

If --listen is no loopback address, say in config.toml who is served before the
node starts: see ledgerd access.

With --genesis and --key the node is a member of an existing chain: the key,
ed25519 as PKCS #8 in PEM, belongs to a member in the genesis. If the ledger has
several shards, the genesis of any shard will do: the node gets the genesis of
the shard that its key belongs to. If the member ran before and its home is lost,
run ledgerd forget --home DIR before the node starts: the new home holds none of
the member's promises and blocks. The new config.toml has prompt = true under
[ordering]. All nodes of a shard must have the same value: remove the line if the
other members' files lack it.`,
		Example: `  # A chain of one node, and a second node that joins it
  ledgerd init --home ledger
  ledgerd start --home ledger
  ledgerd cluster join --home second --operator ledger/operator.key

  # The same, for nodes on several machines
  ledgerd init --home ledger --listen 0.0.0.0:8080 --fabric-address 10.0.0.1:7946

  # With the operator of another chain; with two of three operators
  ledgerd init --home ledger --operator other/operator.key
  ledgerd init --home ledger --operator a.key,b.key,c.key --threshold 2

  # A member of a chain that others have made
  ledgerd init --home ledger --genesis genesis.json --key node.key --listen 0.0.0.0:8080`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			given := command.Flags().Changed
			made, operatorKey, err := o.make(given("name") || given("chain"))
			if err != nil {
				return err
			}
			charter := made.Genesis.Charter()
			report := initReport{OperatorKey: operatorKey, Operators: []string{},
				Threshold: charter.Threshold, Registration: registrationOf(&charter)}
			if report.homeReport, err = reportHome(made); err != nil {
				return err
			}
			for _, key := range charter.Operators {
				report.Operators = append(report.Operators, key.String())
			}
			if o.json {
				return writeJSON(command.OutOrStdout(), report)
			}
			_, err = io.WriteString(command.OutOrStdout(), report.text(o.home))
			return err
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.home, "home", "", "folder to make (required)")
	flags.StringVar(&o.name, "name", "node-0", "name of the node, in a new chain")
	flags.StringVar(&o.chain, "chain", "ledger", "name of the new chain")
	flags.StringVar(&o.listen, "listen", home.Default().API.Listen,
		"host:port for clients and browsers")
	flags.StringVar(&o.address, "fabric-address", "",
		"host:port for the other nodes (default 127.0.0.1:7946, or what the genesis says)")
	addFabricFlag(command, &o.fabric, fabric.P2P)
	flags.Lookup("fabric").Usage = "what the nodes talk over: p2p, p2p-trusted, shm or verbs"
	flags.StringVar(&o.genesis, "genesis", "", "genesis file of an existing chain")
	flags.StringVar(&o.key, "key", "", "file with the node's key, one of those in the genesis")
	flags.StringSliceVar(&o.operators, "operator", nil,
		"an operator of the new chain: a public key of 64 hex digits, or a file with a key; "+
			"several with commas or repeated (default a new one)")
	flags.IntVar(&o.threshold, "threshold", 1, "how many of the operators have to sign")
	bindRegistration(command, &o.registration, registrationOperators,
		"who registers organisations of the new chain: open or operators")
	flags.StringSliceVar(&o.quotas, "quota", nil, "what each organisation may keep, NAME=NUMBER "+
		"or NAME=none; several with commas or repeated (default "+
		quotaWords(quotaNumbers(ledger.DefaultQuotas()))+")")
	o.passphrases.bind(command)
	o.passphrases.bindNew()
	addJSONFlag(command, &o.json)
	command.MarkFlagsRequiredTogether("genesis", "key")
	for _, flag := range []string{"operator", "threshold", "registration", "quota"} {
		command.MarkFlagsMutuallyExclusive("genesis", flag)
	}
	return command
}

func (r *initReport) text(dir string) string {
	text := fmt.Sprintf("%s of chain %s is in %s\n  API       %s\n  fabric    %s\n", r.Name,
		r.Chain, dir, r.API, r.Fabric)
	if r.Shard != nil {
		text += fmt.Sprintf("  shard     %d\n", *r.Shard)
	}
	for _, key := range r.Operators {
		text += fmt.Sprintf("  operator  %s\n", key)
	}
	if len(r.Operators) > 1 {
		text += fmt.Sprintf("  threshold %d of %d operators\n", r.Threshold, len(r.Operators))
	}
	if r.OperatorKey != "" {
		text += fmt.Sprintf("\nThe operator's key is in %s: it decides about the members. Keep "+
			"it in a safe place.\n", filepath.Join(dir, home.OperatorKeyFile))
	}
	text += fmt.Sprintf("\nNext: ledgerd start --home %s\n", dir)
	switch {
	case r.Registration == registrationOpen:
		text += "then: ledgerd org add NAME\n"
	case r.OperatorKey != "":
		text += fmt.Sprintf("then: ledgerd org add NAME --operator %s\n",
			filepath.Join(dir, home.OperatorKeyFile))
	default:
		text += "then: ledgerd org add NAME --operator KEYFILE\n"
	}
	return text
}

// defaultFabric is the address at which a new chain's only node listens for others.
const defaultFabric = "127.0.0.1:7946"

// make makes the home. For a new chain it returns the file of the operator's key, if it made one.
func (o initOptions) make(named bool) (made *home.Home, operatorKey string, err error) {
	if o.home == "" {
		return nil, "", usagef("--home is missing: name the folder to make, for example --home " +
			"ledger")
	}
	if err := o.checkFabric(); err != nil {
		return nil, "", err
	}
	config := home.Initial("")
	config.API.Listen, config.Fabric.Listen, config.Fabric.Kind = o.listen, o.address, o.fabric
	if o.genesis == "" {
		return o.found(config)
	}
	if named {
		return nil, "", usagef("--name and --chain are for a new chain: the genesis in %s has "+
			"them already", o.genesis)
	}
	genesis, err := home.ReadGenesis(o.genesis)
	if err != nil {
		return nil, "", err
	}
	key, err := readNodeKey(o.key)
	if err != nil {
		return nil, "", err
	}
	if genesis, err = home.GenesisFor(genesis, key); err != nil {
		return nil, "", err
	}
	membership := genesis.Membership()
	if _, named := membership.ByKey(publicOf(key)); !named && genesis.Sharded() {
		return nil, "", fmt.Errorf("%s is the key of no member that the genesis has in any of "+
			"its %d shards: to add a node later use ledgerd cluster join", o.key,
			len(genesis.Shards))
	}
	made, err = home.Create(o.home, config, genesis, key)
	return made, "", err
}

// checkFabric validates the kind of fabric. It accepts a host:port as the address instead: that was
// the meaning of --fabric before there were several kinds.
func (o *initOptions) checkFabric() error {
	if _, _, err := net.SplitHostPort(string(o.fabric)); err == nil {
		if o.address != "" {
			return usagef("--fabric names the kind of fabric, but %q is an address, as is "+
				"--fabric-address: give one address", o.fabric)
		}
		o.address, o.fabric = string(o.fabric), fabric.P2P
		return nil
	}
	if _, err := fabric.Parse(string(o.fabric)); err != nil {
		return asUsage(err)
	}
	if o.fabric == fabric.Memory {
		return usagef("%v: ledgerd testnet --fabric memory --run runs several nodes in one",
			fabric.ErrOneProcess)
	}
	return nil
}

// found makes the home of the only member of a new chain.
func (o initOptions) found(config home.Config) (made *home.Home, operatorKey string, err error) {
	address := o.address
	if address == "" {
		address = defaultFabric
	}
	if host, _, err := net.SplitHostPort(address); err == nil &&
		(host == "" || net.ParseIP(host).IsUnspecified()) {
		return nil, "", usagef("--fabric-address %q: other nodes find this one by it, so give "+
			"an address of this machine, for example 10.0.0.1:7946; to listen elsewhere, set "+
			"[fabric] listen in %s", address, home.ConfigFile)
	}
	key, err := p2p.NewIdentity(rand.Reader)
	if err != nil {
		return nil, "", err
	}
	genesis := &ledger.Genesis{
		Chain: o.chain, Time: ledger.Milliseconds(time.Now().UnixMilli()),
		Members: []ledger.Member{{Name: o.name, Key: key.Public().(ed25519.PublicKey),
			Address: address}},
	}
	genesis.Quotas, genesis.Version = ledger.DefaultQuotas(), ledger.NewestVersion
	if err := setQuotas(&genesis.Quotas, o.quotas); err != nil {
		return nil, "", err
	}
	if genesis.RegistrationByOperator, err = parseRegistration(o.registration); err != nil {
		return nil, "", err
	}
	if operators := max(1, len(o.operators)); o.threshold < 1 || o.threshold > operators {
		return nil, "", usagef("--threshold %d: the chain has %s, so say 1 to %d", o.threshold,
			plural(operators, "operator"), operators)
	}
	if o.threshold > 1 {
		genesis.OperatorThreshold = o.threshold
	}
	for _, operator := range o.operators {
		public, err := readOperator(operator)
		if err != nil {
			return nil, "", err
		}
		genesis.Operators = append(genesis.Operators, public)
	}
	if len(o.operators) > 0 {
		made, err = home.Create(o.home, config, genesis, key)
		return made, "", err
	}
	operator, err := p2p.NewIdentity(rand.Reader)
	if err != nil {
		return nil, "", err
	}
	genesis.Operators = []ledger.PublicKey{ledger.PublicKey(operator.Public().(ed25519.PublicKey))}
	file := filepath.Join(o.home, home.OperatorKeyFile)
	if _, err := os.Lstat(file); err == nil {
		return nil, "", fmt.Errorf("%s is there already: choose another --home, or move it away",
			file)
	}
	if err := errors.Join(config.Validate(), genesis.Validate()); err != nil {
		return nil, "", err // before a person thinks of a passphrase
	}
	text, err := client.EncodeKey(ledger.Operator, operator, file, &o.passphrases)
	if err != nil {
		return nil, "", err
	}
	made, err = home.CreateOperated(o.home, config, genesis, key, text)
	if err != nil {
		return nil, "", err
	}
	operatorKey, err = filepath.Abs(filepath.Join(o.home, home.OperatorKeyFile))
	return made, operatorKey, err
}

// readOperator reads an operator's public key: either hex digits, or the name of a PEM file with a
// public key, or of any key file. It asks for no passphrase.
func readOperator(text string) (ledger.PublicKey, error) {
	if public, err := ledger.ParsePublicKey(text); err == nil {
		return public, nil
	}
	content, err := os.ReadFile(text)
	if errors.Is(err, os.ErrNotExist) {
		return ledger.PublicKey{}, usagef("--operator %q is neither a public key (64 hex "+
			"digits) nor a file", text)
	}
	if err != nil {
		return ledger.PublicKey{}, err
	}
	if block, _ := pem.Decode(content); block != nil && block.Type == "PUBLIC KEY" {
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return ledger.PublicKey{}, fmt.Errorf("%s: %w", text, err)
		}
		public, ok := parsed.(ed25519.PublicKey)
		if !ok {
			return ledger.PublicKey{}, fmt.Errorf("%s holds a %T, but an operator's key is ed25519",
				text, parsed)
		}
		return ledger.PublicKey(public), nil
	}
	file, err := keyfile.Read(text)
	if err != nil {
		return ledger.PublicKey{}, err
	}
	return file.Public, nil
}

// readNodeKey reads the key of a node. It is plain: nobody is there to type a passphrase when a
// node starts.
func readNodeKey(path string) (ed25519.PrivateKey, error) {
	file, err := keyfile.Read(path)
	if err != nil {
		return nil, err
	}
	if form := file.Form(); form != keyfile.Plain {
		return nil, fmt.Errorf("%s: a node's key is plain, since a node starts by itself, but "+
			"this one is kept by %s: remove its passphrase with `ledgerd keys passphrase --file "+
			"%s --plain`", path, form, path)
	}
	return file.Private(nil)
}
