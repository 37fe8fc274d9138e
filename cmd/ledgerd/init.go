package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/testnet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// initOptions are the flags of ledgerd init.
type initOptions struct {
	home, name, chain, listen, fabric, genesis, key string
	json                                            bool
}

// homeReport is a node's home, as commands print it for programs.
type homeReport struct {
	Name    string `json:"name"`
	Home    string `json:"home"`
	API     string `json:"api"`
	Fabric  string `json:"fabric"`
	Chain   string `json:"chain"`
	Genesis string `json:"genesis_hash"`
	PeerID  string `json:"peer_id"`
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
	return homeReport{
		Name: h.Name(), Home: dir, API: testnet.URL(h), Fabric: h.FabricAddress(), Chain: h.Genesis.Chain, Genesis: h.Genesis.Hash().String(), PeerID: string(id),
	}, nil
}

// newInitCommand is ledgerd init.
func newInitCommand() *cobra.Command {
	var o initOptions
	command := &cobra.Command{
		Use:   "init --home DIR",
		Short: "Make the home folder of a node",
		Long: `Make the home folder of a node: its configuration, its key, and the genesis of
its chain.

Without --genesis the chain is a new one with this node as its only member,
which is good for development: there is nobody to take over when it fails. For
several nodes on one machine see ledgerd testnet.

With --genesis and --key the node is a member of an existing chain: the key,
ed25519 as PKCS #8 in PEM, is one of those that the genesis has.`,
		Example: `  # A chain of one node
  ledgerd init --home ledger
  ledgerd start --home ledger

  # A member of a chain that others have made
  ledgerd init --home ledger --genesis genesis.json --key node.key --listen 0.0.0.0:8080`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			given := command.Flags().Changed
			made, err := o.make(given("name") || given("chain"))
			if err != nil {
				return err
			}
			report, err := reportHome(made)
			if err != nil {
				return err
			}
			if o.json {
				return writeJSON(command.OutOrStdout(), report)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), `%s of chain %s is in %s
  API     %s
  fabric  %s

Next: ledgerd start --home %s
`, report.Name, report.Chain, o.home, report.API, report.Fabric, o.home)
			return err
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.home, "home", "", "folder to make (required)")
	flags.StringVar(&o.name, "name", "node-0", "name of the node, in a new chain")
	flags.StringVar(&o.chain, "chain", "ledger", "name of the new chain")
	flags.StringVar(&o.listen, "listen", home.Default().API.Listen, "host:port for clients and browsers")
	flags.StringVar(&o.fabric, "fabric", "", "host:port for the other nodes (default 127.0.0.1:7946, or what the genesis says)")
	flags.StringVar(&o.genesis, "genesis", "", "genesis file of an existing chain")
	flags.StringVar(&o.key, "key", "", "file with the node's key, one of those in the genesis")
	addJSONFlag(command, &o.json)
	command.MarkFlagsRequiredTogether("genesis", "key")
	return command
}

// defaultFabric is where a new chain's only node listens for others.
const defaultFabric = "127.0.0.1:7946"

// make makes the home.
func (o initOptions) make(named bool) (*home.Home, error) {
	if o.home == "" {
		return nil, usagef("--home is missing: say which folder to make, for example --home ledger")
	}
	config := home.Default()
	config.API.Listen, config.Fabric.Listen = o.listen, o.fabric
	if o.genesis != "" {
		if named {
			return nil, usagef("--name and --chain are for a new chain: the genesis in %s has them already", o.genesis)
		}
		genesis, err := home.ReadGenesis(o.genesis)
		if err != nil {
			return nil, err
		}
		key, err := readPrivateKey(o.key)
		if err != nil {
			return nil, err
		}
		return home.Create(o.home, config, genesis, key)
	}
	address := o.fabric
	if address == "" {
		address = defaultFabric
	}
	key, err := p2p.NewIdentity(rand.Reader)
	if err != nil {
		return nil, err
	}
	return home.Create(o.home, config, &ledger.Genesis{
		Chain: o.chain, Time: ledger.Milliseconds(time.Now().UnixMilli()),
		Members: []ledger.Member{{Name: o.name, Key: key.Public().(ed25519.PublicKey), Address: address}},
	}, key)
}

// readPrivateKey reads an ed25519 key, PKCS #8 in PEM.
func readPrivateKey(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s holds no private key in PEM", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, and a node's key is ed25519", path, parsed)
	}
	return key, nil
}
