package house

// module is the path of the project's Go module.
const module = "github.com/ledgerd/ledgerd"

// room is one line of the house's table: a folder with all its subfolders, except for those that
// have a line of their own.
type room struct {
	folder string
	// purpose is the room's line in the table of ARCHITECTURE.md.
	purpose string
	// imports lists the rooms whose packages the room may import; "/..." at the end includes the
	// folders below. Each of them is above the room in the table. A room may import itself.
	imports []string
	// modules lists the allowed outside imports, as prefixes of import paths. The standard library
	// is allowed, except in pure rooms.
	modules []string
	// pure rooms do no I/O and have no clock, random source or goroutine.
	pure bool
	// except lists impure packages that a pure room may import, because it uses only harmless parts
	// of them.
	except []string
}

// rooms is the table, from the foundations up. ARCHITECTURE.md shows it. Update it with:
//
//	go test ./house -run Rooms -write
var rooms = []room{
	{folder: "digraph",
		purpose: "the overlays: GS(n,d), binomial, complete, ring, per-source binomial trees; " +
			"computes the degree for a reliability target, diameter, connectivity and " +
			"fault diameter",
		modules: []string{"gonum.org/v1/gonum"},
		// Measures are computed once, on demand; a target is stated in durations.
		except: []string{"sync", "time"},
		pure:   true,
	},
	{folder: "order",
		purpose: "the contracts of atomic broadcast and multicast, and the property checker " +
			"with its evidence",
		pure: true,
	},
	{folder: "clock",
		purpose: "the time of blocks: whose clocks count, what a batch may say, the median of " +
			"a round, the bounded step; the ledger, nodes and the simulator call it",
		// Durations.
		except: []string{"time"},
		pure:   true,
	},
	{folder: "internal/beat",
		purpose: "what is due once in a period is due at the same time everywhere, so that idle " +
			"nodes wake seldom",
	},
	{folder: "allconcur",
		purpose: "AllConcur and AllConcur+ as one state machine, for an eventually perfect or " +
			"a perfect failure detector",
		imports: []string{"digraph", "order"},
		pure:    true,
	},
	{folder: "allconcur/generation",
		purpose: "the synod: decides from the servers' votes how a shard starts and restarts",
		imports: []string{"order"},
		pure:    true,
	},
	{folder: "allconcur/interleave",
		purpose: "several rounds in flight: k engines side by side, whose rounds are A-delivered " +
			"in turns",
		imports: []string{"order", "allconcur"},
		pure:    true,
		except:  []string{"time"},
	},
	{folder: "shard",
		purpose: "the life of one shard member: forming generations, eons, entering, " +
			"following, learners and their admission, falling back, the bench, " +
			"leaving; what a member may promise and which disks count; nodes and the " +
			"simulator run it",
		imports: []string{"order", "allconcur", "allconcur/generation"},
		pure:    true,
	},
	{folder: "shard/turn",
		purpose: "one server's turns with its engine: whose frames it takes, in which order " +
			"it acts, whom it silences, when it A-broadcasts",
		imports: []string{"order"},
		pure:    true,
	},
	{folder: "tram",
		purpose: "the tree of groups, and TRAM over any group log: what a group delivers and " +
			"what it hands to each child",
		imports: []string{"order"},
		pure:    true,
	},
	{folder: "tram/stream",
		purpose: "the leaderless stream from a parent group to a child group: f+1 writers, " +
			"f+1 carriers, the other members take over; rings in memory that the " +
			"reader clears",
		imports: []string{"order"},
		pure:    true,
	},
	{folder: "rdmanet",
		purpose: "the contract of the fabric: hosts, incarnations, lanes, regions and their " +
			"memory",
	},
	{folder: "rdmanet/internal",
		purpose: "`lane`: the protocol of a lane over connections that may break, for the " +
			"providers that have such connections; `peers`: what a host knows of its " +
			"peers; `window`: the sending half of a lane",
		imports: []string{"rdmanet"},
	},
	{folder: "rdmanet/fabrictest",
		purpose: "the suite that every provider passes; tests only",
		imports: []string{"rdmanet"},
	},
	{folder: "rdmanet/segment",
		purpose: "the memory of regions: outside of Go's heap, with ordered copies, a " +
			"doorbell, grants with fences, completions",
		imports: []string{"rdmanet"},
		modules: []string{"golang.org/x/sys"},
	},
	{folder: "rdmanet/memory",
		purpose: "the provider inside one process",
		imports: []string{"rdmanet", "rdmanet/internal/...", "rdmanet/segment"},
	},
	{folder: "rdmanet/p2p",
		purpose: "the provider between machines, over libp2p",
		imports: []string{"internal/beat", "rdmanet", "rdmanet/internal/...",
			"rdmanet/segment"},
		// Not libp2p's root package, which brings in all of its transports.
		modules: []string{"github.com/libp2p/go-libp2p/core", "github.com/libp2p/go-libp2p/p2p",
			"github.com/libp2p/go-libp2p/x", "github.com/multiformats/go-multiaddr",
			"golang.org/x/sys"},
	},
	{folder: "rdmanet/verbs",
		purpose: "the provider over RDMA hardware (build tag `verbs`)",
		imports: []string{"rdmanet", "rdmanet/segment", "rdmanet/p2p", "rdmanet/internal/..."},
		modules: []string{"github.com/libp2p/go-libp2p", "golang.org/x/sys"},
	},
	{folder: "tram/replica",
		purpose: "TRAM as in the paper: each group has a leader, and its permission to write " +
			"the members' logs orders messages; permissions, group and tree catch-up, " +
			"finite buffers, clients; polled",
		imports: []string{"order", "tram", "rdmanet"},
		// Durations.
		except: []string{"time"},
		pure:   true,
	},
	{folder: "sim/timeline",
		purpose: "the queue of events of all simulators: virtual time in one total order, as a " +
			"heap or as a wheel",
		pure: true,
	},
	{folder: "sim/trace",
		purpose: "the trace of a simulated run: a hash of all events, and text on demand",
		pure:    true,
	},
	{folder: "sim/faults",
		purpose: "the names of a simulator's kinds of fault",
		pure:    true,
	},
	{folder: "sim/sweep",
		purpose: "runs many seeds on all processors and returns results in the order of the " +
			"seeds; shrinks failing runs",
		imports: []string{"order"},
	},
	{folder: "sim",
		purpose: "the deterministic simulator: virtual time, seeded faults, disks that " +
			"forget, wrong clocks, named oracles, shrinking",
		imports: []string{"digraph", "order", "clock", "allconcur", "allconcur/generation",
			"allconcur/interleave", "shard/...", "rdmanet", "sim/timeline", "sim/trace",
			"sim/faults", "sim/sweep"},
	},
	{folder: "sim/search",
		purpose: "the explicit-state search: every schedule of a small group, on the same " +
			"engines",
		imports: []string{"digraph", "order", "allconcur", "allconcur/interleave"},
	},
	{folder: "sim/fabric",
		purpose: "regions in virtual time, as slow, uneven and hostile as the memory contract " +
			"allows",
		imports: []string{"rdmanet", "rdmanet/segment", "sim/timeline"},
	},
	{folder: "sim/multicast",
		purpose: "the conformance frame of atomic multicast: runs deployments of several " +
			"groups with seeded workloads and faults, judges, shrinks and replays " +
			"them; has a driver for each form of TRAM",
		imports: []string{"order", "rdmanet", "sim/trace", "sim/faults", "sim/sweep", "sim/fabric",
			"tram/..."},
	},
	{folder: "sim/comparator",
		purpose: "the algorithms that the dissertation measures AllConcur against",
		imports: []string{"digraph", "order"},
		pure:    true,
	},
	{folder: "sim/network",
		purpose: "models of the networks of the dissertation's figures",
		imports: []string{"order", "sim/timeline"},
		// Virtual time is a duration.
		except: []string{"time"},
		pure:   true,
	},
	{folder: "internal/figure",
		purpose: "the dissertation's figures over these models",
		imports: []string{"digraph", "order", "allconcur", "allconcur/interleave", "sim/network",
			"sim/comparator"},
	},
	{folder: "plan",
		purpose: "what to expect of a shard, from the dissertation's models",
		imports: []string{"digraph", "sim/network"},
		// Durations.
		except: []string{"time"},
		pure:   true,
	},
	{folder: "plan/traffic",
		purpose: "what a tree of shards carries, from who deals with whom; advice on homes",
		imports: []string{"order", "tram"},
		pure:    true,
	},
	{folder: "ledger/internal/codec",
		purpose: "the canonical encoding of the ledger's values and of the entries of its state",
		pure:    true,
	},
	{folder: "ledger/internal/pairs",
		purpose: "the SHA-256 of two short messages at once, with the processor's instructions",
		pure:    true,
	},
	{folder: "ledger/internal/wide",
		purpose: "ends the use of the processor's wide registers, which slows other code down",
		modules: []string{"golang.org/x/sys"},
		pure:    true,
	},
	{folder: "ledger",
		purpose: "the book as values: transactions, bundles, blocks, accounts, members, the " +
			"genesis; their encodings, hashes, proofs and signatures",
		imports: []string{"clock", "ledger/internal/codec", "ledger/internal/pairs"},
		modules: []string{"github.com/oasisprotocol/curve25519-voi",
			"github.com/transparency-dev/merkle"},
		// The weights of a batch of signatures that is verified at once. The lock of the memory of
		// good signatures, which changes no answer.
		except: []string{"crypto/rand", "sync"},
		pure:   true,
	},
	{folder: "ledger/state",
		purpose: "what executes the book: seals rounds into blocks, executes them on the " +
			"state, settles transactions of several shards",
		imports: []string{"clock", "ledger", "ledger/internal/codec", "ledger/internal/pairs",
			"ledger/internal/wide"},
		modules: []string{"lukechampine.com/blake3"},
		pure:    true,
	},
	{folder: "ledger/verdicts",
		purpose: "which verdicts of other shards a member believes, proposes, asks for and " +
			"forgets, and which members tell them; nodes and the simulator run it",
		imports: []string{"ledger", "ledger/state"},
		pure:    true,
		// Durations.
		except: []string{"time"},
	},
	{folder: "sim/book",
		purpose: "the judge of whole books: the production ledger at every member of every " +
			"shard, over chains that lose what is not durable and messages that get lost; " +
			"crashes, lost disks, snapshots; atomicity, conservation, one order",
		imports: []string{"order", "tram", "tram/stream", "ledger", "ledger/state",
			"ledger/verdicts", "sim/trace", "sim/faults", "sim/sweep"},
	},
	{folder: "ledger/ledgertest",
		purpose: "signed input from fixed keys; tests only",
		imports: []string{"ledger"},
	},
	{folder: "ledger/store/journal",
		purpose: "the log that a store writes before its database: groups of bytes, each durable " +
			"after one flush, in segments that are used again",
		modules: []string{"golang.org/x/sys"},
	},
	{folder: "ledger/store",
		purpose: "the chain and its effects on disk, checked on every read",
		imports: []string{"internal/beat", "ledger", "ledger/state", "ledger/verdicts",
			"ledger/store/journal"},
		modules: []string{"github.com/dgraph-io/badger/v4", "github.com/dgraph-io/ristretto/v2",
			"github.com/klauspost/compress/s2", "google.golang.org/protobuf", "golang.org/x/sys"},
	},
	{folder: "ledger/book",
		purpose: "checks the chains of all shards of a book against each other, at one cut",
		imports: []string{"ledger", "ledger/state", "ledger/store"},
	},
	{folder: "ledger/journal",
		purpose: "writes a chain as a journal in several formats, goes on with an interrupted " +
			"one, and verifies one alone; `iso20022` writes statements of banks",
		imports: []string{"ledger", "ledger/store"},
	},
	{folder: "ledger/journal/parquet",
		purpose: "writes a chain as a folder of Parquet files; apart for the module that it needs",
		imports: []string{"ledger", "ledger/journal"},
		modules: []string{"github.com/parquet-go/parquet-go"},
	},
	{folder: "machine",
		purpose: "the replicated state machine: the contract by which rounds drive a node's " +
			"ledger, or an " +
			"embedder's application",
		imports: []string{"order", "ledger", "ledger/store"},
	},
	{folder: "internal/static",
		purpose: "serves embedded files from memory: compressed, with entity tags and a policy",
	},
	{folder: "explorer",
		purpose: "the web explorer: TypeScript and Svelte source, and the built files that " +
			"the binary embeds",
		imports: []string{"internal/static"},
	},
	{folder: "docs",
		purpose: "the documentation: Markdown, and the pages that a node serves of it; " +
			"`pagetest` keeps docs/reference equal to its sources",
		imports: []string{"internal/static"},
		modules: []string{"github.com/yuin/goldmark"},
	},
	{folder: "node/fabric",
		purpose: "chooses the fabric's provider by name; reports which providers work on a " +
			"machine and what the others lack",
		imports: []string{"rdmanet/..."},
	},
	{folder: "node/home",
		purpose: "a node's folder: configuration, identity, genesis",
		imports: []string{"order", "allconcur", "allconcur/generation", "ledger", "node/fabric"},
		modules: []string{"github.com/knadh/koanf", "golang.org/x/sys"},
	},
	{folder: "node/wire",
		purpose: "what nodes say to each other beside the rounds: datagrams on a shared lane, " +
			"and requests with their answers",
		imports: []string{"rdmanet"},
	},
	{folder: "node/detector",
		purpose: "heartbeats and suspicions",
		imports: []string{"digraph", "order", "rdmanet", "internal/beat", "node/wire"},
	},
	{folder: "node/driver",
		purpose: "runs an engine over the fabric: the lanes, timers and goroutine around " +
			"shard/turn",
		imports: []string{"order", "rdmanet", "shard/turn"},
	},
	{folder: "node/report",
		purpose: "the values in which a node reports how far blocks and transactions have come, " +
			"why it refuses a bundle, and the state of itself, its shard and other shards",
		imports: []string{"ledger"},
	},
	{folder: "node/mempool",
		purpose: "holds what the node admitted until a block has it",
		imports: []string{"clock", "ledger"},
	},
	{folder: "node/crossing/shards",
		purpose: "in a book of several shards: knows the members of all shards and their " +
			"condition, and exchanges verdicts",
		imports: []string{"ledger", "ledger/state", "ledger/verdicts", "ledger/store", "rdmanet",
			"rdmanet/p2p", "internal/beat", "node/wire", "node/report"},
	},
	{folder: "node/crossing/streams",
		purpose: "in a book of several shards: runs tram/stream's machines over the fabric's " +
			"regions, from the parent shard and to the children, as members come, go " +
			"and restart",
		imports: []string{"internal/beat", "order", "ledger", "ledger/store", "rdmanet",
			"node/wire", "tram/stream"},
	},
	{folder: "node/catchup",
		purpose: "fetches blocks from peers and serves them, as requests of node/wire",
		imports: []string{"ledger", "rdmanet", "node/wire"},
	},
	{folder: "node/calls",
		purpose: "calls to members of other shards, as requests of node/wire; asks another " +
			"member where one is lost or silent",
		imports: []string{"ledger", "rdmanet", "node/wire"},
	},
	{folder: "node/api/ledgerdv1",
		purpose: "the service's messages and calls, generated from `node/api/proto`",
		modules: []string{"connectrpc.com/connect", "google.golang.org/protobuf"},
	},
	{folder: "node/doors",
		purpose: "which requests enter a node's listeners: for which hosts, over which " +
			"connections, from which callers",
		modules: []string{"connectrpc.com/connect"},
	},
	{folder: "node/api/healthv1",
		purpose: "the messages of the standard health service, generated from `node/api/proto`",
		modules: []string{"google.golang.org/protobuf"},
	},
	{folder: "node/api",
		purpose: "the one service, over gRPC, gRPC-Web and JSON, for one shard; health, metrics",
		imports: []string{"ledger", "ledger/store", "ledger/book", "node/report",
			"node/api/ledgerdv1/...", "node/api/healthv1", "node/doors"},
		modules: []string{"connectrpc.com/connect", "connectrpc.com/grpcreflect",
			"google.golang.org/protobuf", "github.com/prometheus/client_golang",
			"golang.org/x/net", "golang.org/x/sys",
			"golang.org/x/time"},
	},
	{folder: "node/api/route",
		purpose: "the service for a book of several shards: passes calls on to the shard that " +
			"owns their subject, merges what all shards answer",
		imports: []string{"ledger", "ledger/book", "node/report", "node/api/ledgerdv1/...",
			"node/api"},
		modules: []string{"connectrpc.com/connect", "google.golang.org/protobuf",
			"github.com/prometheus/client_golang"},
	},
	{folder: "node/api/apitest",
		purpose: "a backend in memory, for one chain or a book of several shards; tests only",
		imports: []string{"ledger", "ledger/store", "node/report", "node/api/ledgerdv1/...",
			"node/api", "node/api/route"},
		modules: []string{"connectrpc.com/connect"},
	},
	{folder: "node/verification",
		purpose: "verifies the signatures of batches while they travel",
		imports: []string{"ledger"},
	},
	{folder: "node/certification",
		purpose: "signs what the node stored, and joins what members signed into certificates",
		imports: []string{"ledger"},
		modules: []string{"golang.org/x/time"},
	},
	{folder: "node/pipeline",
		purpose: "seals, executes, stores, acknowledges",
		imports: []string{"order", "allconcur/generation", "shard", "ledger/...", "machine",
			"node/report", "node/mempool", "node/verification"},
	},
	{folder: "node/crossing",
		purpose: "a node's connection to the other shards of its book, behind one interface " +
			"that is empty in a book of one shard",
		imports: []string{"ledger", "ledger/store", "ledger/verdicts", "rdmanet", "shard",
			"node/home", "node/wire", "node/report", "node/crossing/...", "node/calls",
			"node/api/...", "node/mempool", "node/pipeline"},
		modules: []string{"connectrpc.com/connect"},
	},
	{folder: "client/signer",
		purpose: "signs with a key in memory, or has an external signer do it: a command, or a " +
			"server on a socket",
		imports: []string{"ledger"},
	},
	{folder: "client/keyfile",
		purpose: "the files of keys: plain, with a passphrase (age), or with the name of an " +
			"external signer",
		imports: []string{"ledger", "client/signer"},
		modules: []string{"filippo.io/age"},
	},
	{folder: "client",
		purpose: "the Go client of the API, with its keyring; `importer` brings in files",
		imports: []string{"ledger", "ledger/journal", "client/signer", "client/keyfile",
			"node/doors", "node/api/..."},
		modules: []string{"connectrpc.com/connect", "google.golang.org/protobuf"},
	},
	{folder: "internal/testnet",
		purpose: "many nodes on one machine, as processes or within one",
		imports: []string{"ledger", "rdmanet/...", "node/fabric", "node/home", "node/report"},
	},
	{folder: "internal/demo",
		purpose: "generates believable traffic",
		imports: []string{"ledger", "node/api/...", "client"},
	},
	{folder: "internal/bench",
		purpose: "measures fabrics, engines and ledger as the product runs them",
		imports: []string{"digraph", "order", "allconcur", "allconcur/interleave", "tram/...",
			"rdmanet/...", "ledger", "ledger/store", "node/home", "node/driver", "node/api/...",
			"client", "node/fabric", "internal/testnet"},
		modules: []string{"github.com/cespare/xxhash/v2",
			"github.com/HdrHistogram/hdrhistogram-go", "golang.org/x/sys"},
	},
	{folder: "node",
		purpose: "one node put together: the loop around the life of a member (package " +
			"shard), status, the API's backend",
		imports: []string{"digraph", "order", "clock", "internal/beat", "allconcur",
			"allconcur/generation", "shard/...", "rdmanet/...", "ledger/...", "node/...",
			"explorer", "docs"},
		modules: []string{"connectrpc.com/connect", "github.com/prometheus/client_golang",
			"golang.org/x/time"},
	},
	{folder: "cmd/ledgerd",
		purpose: "the command line",
		imports: []string{"digraph", "order", "allconcur", "allconcur/interleave", "shard/turn",
			"tram", "rdmanet/...", "sim/...", "plan/...", "ledger/...", "node/...",
			"client/...",
			"internal/..."},
		modules: []string{"github.com/spf13/cobra", "github.com/spf13/pflag",
			"github.com/schollz/progressbar/v3", "golang.org/x/term",
			"codeberg.org/go-pdf/fpdf", "golang.org/x/image/font/gofont",
			"gonum.org/v1/gonum/graph/encoding/dot", "connectrpc.com/connect"},
	},
	{folder: "cmd/ledgerd-pkcs11",
		purpose: "the external signer for keys on a token (PKCS #11); apart, since it needs C",
		imports: []string{"ledger", "client/signer"},
		modules: []string{"github.com/miekg/pkcs11", "github.com/spf13/cobra",
			"golang.org/x/term"},
	},
	{folder: "torture",
		purpose: "tests that run the built program as an operator would, damage it and check " +
			"what is left",
	},
	{folder: "clients/python",
		purpose: "the Python package, from the encodings to the client: written from the " +
			"published pages, tested with their vectors; it has no Go code",
	},
	{folder: "clients/typescript",
		purpose: "the TypeScript package, for Node and browsers: written from the published " +
			"pages, tested with their vectors; it has no Go code",
	},
	{folder: "examples",
		purpose: "programs for readers: broadcast, a state machine, the Go client, seats, a game",
		imports: []string{"digraph", "order", "allconcur", "rdmanet", "rdmanet/memory", "ledger",
			"machine", "node/driver", "node/api/...", "client"},
	},
	{folder: "house",
		purpose: "the rules of the house, as a test",
	},
	{folder: "scripts",
		purpose: "one-word entry points",
	},
}

// impure lists the standard packages that a pure room must not import, including all packages below
// them.
var impure = []string{
	"time", "math/rand", "crypto/rand", "net", "os", "log", "io/fs", "io/ioutil", "syscall",
	"embed", "sync", "context", "testing",
}

// durations are the names that a pure room may use of package time.
var durations = []string{
	"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour",
}

// emptyNames are package names without a meaning.
var emptyNames = map[string]bool{
	"util": true, "utils": true, "common": true, "helper": true, "helpers": true, "manager": true,
	"misc": true,
}
