package house

// module is the path of the project's Go module.
const module = "github.com/ledgerd/ledgerd"

// room is one line of the house's table: a folder, with all folders in it that have no line of their own.
type room struct {
	folder string
	// imports lists the rooms whose packages may be imported; "/..." at the end takes in the folders below. A room may import itself.
	imports []string
	// modules lists what may be imported from outside, as prefixes of import paths. The standard library is free, except to pure rooms.
	modules []string
	// pure rooms do no I/O and have no clock, random source or goroutine.
	pure bool
	// except lists what a pure room imports all the same, because it uses only what is harmless of it.
	except []string
}

var rooms = []room{
	{folder: "digraph", modules: []string{"gonum.org/v1/gonum"}, pure: true,
		except: []string{"sync", "time"}}, // measures are computed once, on demand; a target is stated in durations
	{folder: "order", pure: true},
	{folder: "clock", pure: true, except: []string{"time"}}, // durations
	{folder: "allconcur", imports: []string{"digraph", "order"}, pure: true},
	{folder: "allconcur/generation", imports: []string{"order"}, pure: true},
	{folder: "shard", imports: []string{"order", "allconcur", "allconcur/generation"}, pure: true},
	{folder: "shard/turn", imports: []string{"order"}, pure: true},
	{folder: "tram", imports: []string{"order"}, pure: true},
	{folder: "tram/stream", imports: []string{"order"}, pure: true},
	{folder: "tram/replica", imports: []string{"order", "tram", "rdmanet"}, pure: true, except: []string{"time"}}, // durations
	{folder: "rdmanet"},
	{folder: "rdmanet/internal", imports: []string{"rdmanet"}},
	{folder: "rdmanet/fabrictest", imports: []string{"rdmanet"}},
	{folder: "rdmanet/segment", imports: []string{"rdmanet"}, modules: []string{"golang.org/x/sys"}},
	{folder: "rdmanet/memory", imports: []string{"rdmanet", "rdmanet/internal/...", "rdmanet/segment"}},
	{folder: "rdmanet/p2p", imports: []string{"rdmanet", "rdmanet/internal/...", "rdmanet/segment"},
		modules: []string{"github.com/libp2p/go-libp2p", "github.com/multiformats/go-multiaddr"}},
	{folder: "rdmanet/verbs", imports: []string{"rdmanet", "rdmanet/segment", "rdmanet/p2p", "rdmanet/internal/..."}, modules: []string{"github.com/libp2p/go-libp2p", "golang.org/x/sys"}},
	{folder: "sim", imports: []string{"digraph", "order", "clock", "allconcur", "allconcur/generation", "shard/...", "rdmanet", "sim/parallel"}},
	{folder: "sim/parallel"},
	{folder: "sim/search", imports: []string{"digraph", "order", "allconcur"}},
	{folder: "sim/fabric", imports: []string{"rdmanet", "rdmanet/segment"}},
	{folder: "sim/multicast", imports: []string{"order", "rdmanet", "sim/fabric", "sim/parallel", "tram/..."}},
	{folder: "sim/comparator", imports: []string{"digraph", "order"}, pure: true},
	{folder: "sim/network", imports: []string{"order"}, pure: true, except: []string{"time"}}, // virtual time is a duration
	{folder: "sim/figure", imports: []string{"digraph", "order", "allconcur", "sim/network", "sim/comparator"}},
	{folder: "plan", imports: []string{"digraph", "sim/network"}, pure: true, except: []string{"time"}}, // durations
	{folder: "ledger", imports: []string{"clock"}, pure: true, except: []string{"crypto/rand"}, // the weights of a batch of signatures that is verified at once
		modules: []string{"github.com/oasisprotocol/curve25519-voi", "github.com/transparency-dev/merkle", "github.com/zeebo/blake3"}},
	{folder: "ledger/ledgertest", imports: []string{"ledger"}},
	{folder: "ledger/store", imports: []string{"ledger"},
		modules: []string{"github.com/dgraph-io/badger/v4", "github.com/dgraph-io/ristretto/v2", "google.golang.org/protobuf", "golang.org/x/sys"}},
	{folder: "ledger/machine", imports: []string{"ledger", "ledger/store"}},
	{folder: "explorer"},
	{folder: "node/fabric", imports: []string{"rdmanet/..."}},
	{folder: "node/home", imports: []string{"order", "allconcur", "allconcur/generation", "ledger", "node/fabric"},
		modules: []string{"github.com/knadh/koanf", "golang.org/x/sys"}},
	{folder: "node/control", imports: []string{"rdmanet"}},
	{folder: "node/detector", imports: []string{"digraph", "order", "rdmanet", "node/control"}},
	{folder: "node/driver", imports: []string{"order", "allconcur", "rdmanet", "shard/turn"}},
	{folder: "node/mempool", imports: []string{"clock", "ledger"}},
	{folder: "node/pipeline", imports: []string{"order", "allconcur/generation", "shard", "ledger/...", "node/api", "node/mempool"}},
	{folder: "node/shards", imports: []string{"ledger", "ledger/store", "rdmanet", "rdmanet/p2p", "node/control"}},
	{folder: "node/streams", imports: []string{"order", "ledger", "ledger/store", "rdmanet", "node/control", "tram/stream"}},
	{folder: "node/catchup", imports: []string{"ledger", "rdmanet"}},
	{folder: "node/calls", imports: []string{"ledger", "rdmanet"}},
	{folder: "node/api", imports: []string{"ledger", "ledger/store"},
		modules: []string{"connectrpc.com/connect", "google.golang.org/protobuf", "github.com/prometheus/client_golang", "golang.org/x/time"}},
	{folder: "node/client", imports: []string{"ledger", "node/api/..."}, modules: []string{"connectrpc.com/connect"}},
	{folder: "node/bench", imports: []string{"digraph", "order", "allconcur", "tram/...", "rdmanet/...", "ledger", "node/driver", "node/api/...", "node/client",
		"node/fabric", "node/testnet"},
		modules: []string{"github.com/cespare/xxhash/v2"}},
	{folder: "node", imports: []string{"digraph", "order", "clock", "allconcur", "allconcur/generation", "shard/...", "rdmanet/...", "ledger/...", "node/...", "explorer"},
		modules: []string{"connectrpc.com/connect", "github.com/prometheus/client_golang", "golang.org/x/time"}},
	{folder: "node/testnet", imports: []string{"ledger", "rdmanet/...", "node/fabric", "node/home", "node/api"}},
	{folder: "node/demo", imports: []string{"ledger", "node/api/...", "node/client"}},
	{folder: "cmd/ledgerd", imports: []string{"digraph", "order", "allconcur", "shard/turn", "tram", "rdmanet/...", "sim/...", "plan", "ledger/...", "node/..."},
		modules: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/schollz/progressbar/v3", "golang.org/x/term",
			"gonum.org/v1/gonum/graph/encoding/dot", "connectrpc.com/connect"}},
	{folder: "torture"},
	{folder: "house"},
	{folder: "scripts"},
}

// impure lists the standard packages that a pure room must not import, with all below them.
var impure = []string{"time", "math/rand", "crypto/rand", "net", "os", "log", "io/fs", "io/ioutil", "syscall", "embed", "sync", "context", "testing"}

// durations are what a pure room may use of package time.
var durations = []string{"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"}

// emptyNames are names that say nothing about what a package is.
var emptyNames = map[string]bool{"util": true, "utils": true, "common": true, "helper": true, "helpers": true, "manager": true, "misc": true}
