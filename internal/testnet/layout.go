package testnet

import (
	"crypto/ed25519"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

const (
	// NodesMax limits a test network. A machine has only so many ports and so much memory.
	NodesMax = 64
	// DefaultBasePort is the port of node 0's API.
	DefaultBasePort = 26600
	// DefaultChain is the name of a test network's chain.
	DefaultChain = "testnet"
	// OperatorKeyFile is the file with the operator's key, in the folder that contains the homes.
	OperatorKeyFile = home.OperatorKeyFile
)

// host is the address of all nodes of test networks.
const host = "127.0.0.1"

// Errors of a layout. Match them with errors.Is.
var (
	// ErrLayout means that a Layout is invalid. The error's text explains it.
	ErrLayout = errors.New("testnet")
	// ErrForeign means that a folder does not contain the homes of one network.
	ErrForeign = errors.New("testnet: no test network")
)

// Layout describes a test network. The zero value of any field but Dir and Nodes means its default.
type Layout struct {
	// Dir gets a folder node-0, node-1, ... for each node, and the operator's key.
	Dir string
	// Nodes is the number of nodes in each shard, at least 1. All shards together have at most
	// NodesMax.
	Nodes int
	// Shards is the number of shards in the book. Default 1. Node i is member i mod Nodes of shard
	// i / Nodes.
	Shards int
	// Tree holds each shard's parent; the root is its own parent. Default: shard 0 is the root and
	// the parent of all others.
	Tree []ledger.ShardID
	// BasePort is the port of node 0's API. Node i has its API on BasePort+2i and its fabric on
	// BasePort+2i+1. Default DefaultBasePort.
	BasePort int
	// Engine is the name of an engine that a node may run. Default engine.Default.
	Engine string
	// Fabric is the fabric between the nodes. Default fabric.P2P.
	Fabric fabric.Kind
	// Chain is the chain's name. Default DefaultChain.
	Chain string
	// RegistrationByOperator requires the operator's signature to register an organisation.
	RegistrationByOperator bool
	// Quotas are those of the genesis. Default ledger.DefaultQuotas.
	Quotas *ledger.Quotas
	// Change, unless nil, changes a node's configuration before it is written.
	Change func(node int, config *home.Config)
}

// Validate fills in the defaults and reports the first invalid field. The error wraps ErrLayout.
func (l *Layout) Validate() error {
	if l.BasePort == 0 {
		l.BasePort = DefaultBasePort
	}
	if l.Fabric == "" {
		l.Fabric = fabric.P2P
	}
	if l.Chain == "" {
		l.Chain = DefaultChain
	}
	if l.Shards == 0 {
		l.Shards = 1
	}
	switch {
	case l.Dir == "":
		return fmt.Errorf("%w: no folder given", ErrLayout)
	case l.Nodes < 1 || l.Nodes > NodesMax:
		return fmt.Errorf("%w: %d nodes, want 1 to %d", ErrLayout, l.Nodes, NodesMax)
	case l.Shards < 1 || l.Shards > NodesMax:
		return fmt.Errorf("%w: %d shards, want 1 to %d", ErrLayout, l.Shards, NodesMax)
	case l.Shards*l.Nodes > NodesMax:
		return fmt.Errorf("%w: %d shards of %d nodes are %d nodes, want at most %d in all",
			ErrLayout, l.Shards, l.Nodes, l.Shards*l.Nodes, NodesMax)
	case l.Tree != nil && len(l.Tree) != l.Shards:
		return fmt.Errorf("%w: a tree of %d shards for %d shards", ErrLayout, len(l.Tree), l.Shards)
	case l.BasePort < 1 || l.BasePort+2*l.all()-1 > 65535:
		return fmt.Errorf("%w: %d nodes need the ports %d to %d, and ports are 1 to 65535",
			ErrLayout, l.all(), l.BasePort, l.BasePort+2*l.all()-1)
	}
	if l.Quotas == nil {
		quotas := ledger.DefaultQuotas()
		l.Quotas = &quotas
	}
	if l.Tree == nil {
		l.Tree = make([]ledger.ShardID, l.Shards)
	}
	return nil
}

// all returns the number of nodes in all shards together.
func (l *Layout) all() int { return l.Shards * l.Nodes }

// Name returns the name of node i, which is also the name of its folder.
func Name(i int) string { return "node-" + strconv.Itoa(i) }

// Make makes all homes or none. The error wraps ErrLayout, home.ErrExists, home.ErrConfig or
// ledger.ErrGenesis, or is an error of the file system.
func Make(l Layout) (homes []*home.Home, err error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if err := checkVacant(l.Dir); err != nil {
		return nil, err
	}
	keys, members := make([]ed25519.PrivateKey, l.all()), make([]ledger.Member, l.all())
	for i := range keys {
		if keys[i], err = p2p.NewIdentity(cryptorand.Reader); err != nil {
			return nil, err
		}
		members[i] = ledger.Member{Name: Name(i), Key: keys[i].Public().(ed25519.PublicKey),
			Address: address(l.BasePort + 2*i + 1)}
	}
	operator, err := p2p.NewIdentity(cryptorand.Reader)
	if err != nil {
		return nil, err
	}
	genesis, err := l.genesis(members, ledger.PublicKey(operator.Public().(ed25519.PublicKey)))
	if err != nil {
		return nil, err
	}
	ports := make([]int, l.all())
	for i := range ports {
		ports[i] = l.BasePort + 2*i
	}
	origins := originsOf(ports)
	made := []string{filepath.Join(l.Dir, OperatorKeyFile)}
	defer func() {
		if err != nil {
			for _, path := range made {
				err = errors.Join(err, os.RemoveAll(path))
			}
		}
	}()
	for i, key := range keys {
		config := home.Initial(l.Engine)
		config.API.Listen = address(l.BasePort + 2*i)
		config.API.Access = "public"
		config.API.AllowedOrigins = origins
		config.Fabric.Kind = l.Fabric
		if l.Change != nil {
			l.Change(i, &config)
		}
		dir := filepath.Join(l.Dir, Name(i))
		made = append(made, dir)
		own, err := genesis.ForShard(ledger.ShardID(i / l.Nodes))
		if err != nil {
			return nil, err
		}
		h, err := home.Create(dir, config, own, key)
		if err != nil {
			return nil, err
		}
		homes = append(homes, h)
	}
	return homes, home.WriteKey(filepath.Join(l.Dir, OperatorKeyFile), operator)
}

// originsOf returns the origins of the explorers of nodes with these ports of their APIs. With them
// the explorer of each node can ask the others what they say. A port of 0 is not known yet.
func originsOf(ports []int) (origins []string) {
	for _, port := range ports {
		if port > 0 {
			for _, name := range []string{"127.0.0.1", "localhost"} {
				origins = append(origins, "http://"+net.JoinHostPort(name, strconv.Itoa(port)))
			}
		}
	}
	return origins
}

// genesis returns the genesis of shard 0. Those of the other shards follow from it. The error wraps
// ledger.ErrGenesis.
func (l *Layout) genesis(members []ledger.Member, operator ledger.PublicKey) (*ledger.Genesis,
	error) {
	genesis := &ledger.Genesis{
		Chain: l.Chain, Time: ledger.Milliseconds(time.Now().UnixMilli()),
		Members: members[:l.Nodes:l.Nodes], Operators: []ledger.PublicKey{operator},
		RegistrationByOperator: l.RegistrationByOperator, Quotas: *l.Quotas,
		Version: ledger.NewestVersion,
	}
	if l.Shards > 1 {
		genesis.Shards, genesis.Tree = slices.Collect(slices.Chunk(members, l.Nodes)),
			slices.Clone(l.Tree)
		genesis.VouchedCrossings = true
	}
	return genesis, genesis.Validate()
}

// checkVacant checks that a folder contains none of the files and folders that Make makes.
func checkVacant(dir string) error {
	found, err := filepath.Glob(filepath.Join(escapeGlob(dir), "node-*"))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, OperatorKeyFile)); err == nil {
		found = append(found, filepath.Join(dir, OperatorKeyFile))
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %s is there already; choose another folder, or remove it if you "+
			"want to lose that network", home.ErrExists, found[0])
	}
	return nil
}

// escapeGlob escapes a path for use in a pattern.
func escapeGlob(path string) string {
	escaped := make([]byte, 0, len(path))
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			escaped = append(escaped, '\\')
		}
		escaped = append(escaped, path[i])
	}
	return string(escaped)
}

// Exists reports whether a folder contains at least one node's home of a test network.
func Exists(dir string) bool {
	numbers, err := numbers(dir)
	return err == nil && len(numbers) > 0
}

// numbers returns the numbers of the nodes whose homes are in a folder, ascending.
func numbers(dir string) ([]int, error) {
	found, err := filepath.Glob(filepath.Join(escapeGlob(dir), "node-*", home.ConfigFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayout, err)
	}
	var numbers []int
	for _, path := range found {
		name := filepath.Base(filepath.Dir(path))
		if i, err := strconv.Atoi(strings.TrimPrefix(name, "node-")); err == nil &&
			Name(i) == name {
			numbers = append(numbers, i)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// Load reads the homes of a network that Make made, in order, and the homes of nodes that joined it
// later in folders named alike. Homes may be missing, because the homes of nodes that left may be
// removed. The error wraps ErrForeign, home.ErrHome or home.ErrConfig.
func Load(dir string) ([]*home.Home, error) {
	found, err := numbers(dir)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: %s holds no node's home", ErrForeign, dir)
	}
	var homes []*home.Home
	for _, i := range found {
		path := filepath.Join(dir, Name(i))
		h, err := home.Load(path)
		if err != nil {
			return nil, err
		}
		self, made := number(h)
		if self != i && (made || i < total(h.Genesis)) && h.Membership().Number == 0 {
			return nil, fmt.Errorf("%w: %s is the home of %s", ErrForeign, path, h.Name())
		}
		if len(homes) > 0 && h.Genesis.Book() != homes[0].Genesis.Book() {
			return nil, fmt.Errorf("%w: %s and %s belong to different chains", ErrForeign, path,
				homes[0].Dir)
		}
		homes = append(homes, h)
	}
	return homes, nil
}

// Newest returns the genesis of the homes that knows the most shards of the book.
func Newest(homes []*home.Home) *ledger.Genesis {
	newest := homes[0].Genesis
	for _, h := range homes {
		if h.Genesis.BookShards() > newest.BookShards() {
			newest = h.Genesis
		}
	}
	return newest
}

// shards returns the members of each shard in the genesis.
func shards(genesis *ledger.Genesis) [][]ledger.Member {
	if genesis.Sharded() {
		return genesis.Shards
	}
	return [][]ledger.Member{genesis.Members}
}

// total returns the number of members in all shards of the genesis.
func total(genesis *ledger.Genesis) (count int) {
	for _, members := range shards(genesis) {
		count += len(members)
	}
	return count
}

// number returns a node's number among the nodes of all shards, as Make counts them, and reports
// whether Make made its home.
func number(h *home.Home) (number int, made bool) {
	if len(h.Genesis.Grown) > 0 {
		return 0, false
	}
	own := shards(h.Genesis)
	for _, members := range own[:h.Genesis.Shard] {
		number += len(members)
	}
	return number + int(h.Self), int(h.Self) < len(h.Genesis.Members)
}

// Missing returns the names of the nodes in the genesis whose homes Load did not find. These nodes
// left, or their folders were moved away.
func Missing(homes []*home.Home) (names []string) {
	there := make(map[int]bool, len(homes))
	for _, h := range homes {
		if number, made := number(h); made {
			there[number] = true
		}
	}
	for i := range total(homes[0].Genesis) {
		if !there[i] {
			names = append(names, Name(i))
		}
	}
	return names
}

// URL returns the address of the API of a home's node.
func URL(h *home.Home) string {
	scheme := "http://"
	if h.Config.API.Certificate != "" {
		scheme = "https://"
	}
	return scheme + h.Config.API.Listen
}

// CheckPorts tries all addresses that the homes' nodes will listen on, and reports one that is in
// use.
func CheckPorts(homes []*home.Home) error {
	for _, h := range homes {
		for _, door := range []struct {
			what, address string
		}{{"API", h.Config.API.Listen}, {"fabric", h.FabricAddress()}} {
			if door.what == "fabric" && h.Config.Fabric.Kind == fabric.Memory {
				continue
			}
			listener, err := net.Listen("tcp", door.address)
			if err != nil {
				return fmt.Errorf("%s cannot listen for its %s: %w", h.Name(), door.what, err)
			}
			if err := listener.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func address(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// LoadGrowing reads the homes of a network to which a shard is being added: those of its nodes, and
// the folders of homes that no shard was added with yet.
func LoadGrowing(dir string) (homes []*home.Home, unfinished []string, err error) {
	found, err := numbers(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, i := range found {
		path := filepath.Join(dir, Name(i))
		h, err := home.Load(path)
		if errors.Is(err, home.ErrNotAdmitted) {
			unfinished = append(unfinished, path)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		homes = append(homes, h)
	}
	return homes, unfinished, nil
}

// NextNumber returns the number after those of all nodes whose homes are in a folder.
func NextNumber(dir string) int {
	found, err := numbers(dir)
	if err != nil || len(found) == 0 {
		return 0
	}
	return found[len(found)-1] + 1
}
