package home

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/fabric"
)

// EnvPrefix is the prefix of environment variables that override the file: LEDGERD_NODE_API_LISTEN
// overrides [api] listen.
const EnvPrefix = "LEDGERD_NODE_"

// ErrConfig reports an invalid configuration.
var ErrConfig = errors.New("configuration")

// Config holds the settings of a node.
type Config struct {
	API      APIConfig      `koanf:"api"`
	Admin    AdminConfig    `koanf:"admin"`
	Fabric   FabricConfig   `koanf:"fabric"`
	Ordering OrderingConfig `koanf:"ordering"`
	Shards   ShardsConfig   `koanf:"shards"`
	Store    StoreConfig    `koanf:"store"`
	Runtime  RuntimeConfig  `koanf:"runtime"`
	Log      LogConfig      `koanf:"log"`
}

// APIConfig configures the API for clients.
type APIConfig struct {
	Listen string `koanf:"listen"` // the address of the API, host:port
	// The certificate's file in PEM. With key it switches TLS on. A relative path is below the
	// home, here and in the keys that follow. A changed file is read again.
	Certificate string `koanf:"certificate"`
	Key         string `koanf:"key"` // the file of the certificate's private key in PEM
	// The file with the authorities that sign clients' certificates, in PEM.
	ClientCA string `koanf:"client_ca"`
	// Who is served: public for every caller, identified for those in identities. It is needed
	// unless listen is a loopback address.
	Access string `koanf:"access"`
	// The file of those that may call, and what each may do; ledgerd access writes it.
	Identities string `koanf:"identities"`
	// Names and addresses, without a port, by which clients call the API, such as "books.example".
	// Requests for other hosts get an error. Loopback names, listen and the address of the
	// connection need no entry.
	Hosts []string `koanf:"hosts"`
	// Origins of pages that may call the API from a browser, such as "https://books.example". Name
	// the explorers of other nodes here, so that their readers can compare what this node says.
	AllowedOrigins []string `koanf:"allowed_origins"`
	// Calls a second that one remote address may make. 0 means 20,000. A negative number means no
	// limit; then no address is put off for what it does in masses, either. Set it behind a proxy,
	// whose address all clients share.
	CallsPerSecond float64 `koanf:"calls_per_second"`
}

// AdminConfig configures the listener for operators: /livez, /readyz, /version, /metrics,
// /debug/pprof/ and the standard gRPC health service. It asks for no identity.
type AdminConfig struct {
	// The address, host:port; port 0 takes a free one, which the log shows. Empty for none.
	Listen string `koanf:"listen"`
}

// FabricConfig configures the network between nodes. The kind must be the same on all nodes of all
// shards.
type FabricConfig struct {
	Kind fabric.Kind `koanf:"kind"` // the provider: p2p, p2p-trusted, shm, verbs or memory
	// The address for the other nodes, host:port; by default, the genesis's address of this node.
	Listen string `koanf:"listen"`
	// The RDMA device, for verbs; by default, the first active one.
	Device string `koanf:"device"`
	// The address of that device, or its index; by default, its first RoCE v2 address of IPv4, or
	// its first address.
	GID string `koanf:"gid"`
}

// OrderingConfig configures rounds and the failure detector. All nodes of a shard must have the
// same engine, trains, detector, batch_bytes_max, prompt, target_nines and server_mttf_hours.
type OrderingConfig struct {
	// The engine with which the chain begins: allconcur+, allconcur, trains or dare. It counts
	// until the operators change the engine (ledgerd cluster engine). From then on the chain names
	// it, and this key has no effect.
	Engine string `koanf:"engine"`
	// How many trains go round with the engine trains, 3 to 64. More keep the links busier between
	// nodes that are far from each other, and let transactions wait longer.
	Trains int `koanf:"trains"`
	// How rounds treat the failure detector: as eventual or as perfect. With perfect, the members
	// cannot change.
	Detector string `koanf:"detector"`
	// Time between two heartbeats; at least 1ms. Up to five times as long while no round runs.
	Heartbeat time.Duration `koanf:"heartbeat"`
	// How long a node may be silent before others suspect it; at least three heartbeats. While no
	// round runs, a node is suspected as much later as its heartbeats come later.
	SuspectAfter time.Duration `koanf:"suspect_after"`
	// How long to wait before an empty message that helps deliver others' last transactions. 0s
	// delivers them earliest.
	Linger time.Duration `koanf:"linger"`
	// The most bytes of one message of a round; at most 8388608.
	BatchBytesMax int `koanf:"batch_bytes_max"`
	// Whether complete rounds are synced beside the rounds that follow, before they are ordered.
	// Where messages between the nodes take milliseconds, transactions become durable sooner. It
	// needs the eventual detector and prompt = false, has an effect with engine allconcur+, and may
	// differ between nodes. All nodes of the shard must know the key before one sets it.
	LogRounds bool `koanf:"log_rounds"`
	// Whether small rounds are ordered as soon as all members hold them. It must be the same on all
	// nodes of the shard, needs the eventual detector, has an effect with engine allconcur+, and
	// excludes log_rounds. The files of new ledgers of that engine say true, and those of nodes
	// that join say what their shard has.
	Prompt bool `koanf:"prompt"`
	// Whether the newest messages of rounds are always recorded, for `ledgerd rounds` and the
	// explorer, and not only while a client watches. Some five megabytes.
	RecordRounds bool `koanf:"record_rounds"`
	// The most bytes of the transactions that wait for a round; at least 2097152.
	PoolBytesMax int `koanf:"pool_bytes_max"`
	// Nines of reliability over a day, 1 to 15. They set the degree of the reliable digraph.
	TargetNines int `koanf:"target_nines"`
	// Mean time to failure of a server, in hours. With target_nines it sets that degree.
	ServerMTTFHour int `koanf:"server_mttf_hours"`
}

// ShardsConfig configures how the node deals with the other shards of its book. In a book of one
// shard it has no effect.
type ShardsConfig struct {
	// How long another shard must be down until the node refuses transactions that cross to it,
	// unless their caller queues. 0s means never; then it refuses none for full shards, either.
	RefuseAfter time.Duration `koanf:"refuse_after"`
	// How long an entry may wait for another shard before the node raises an alarm: in the status,
	// the metrics, the log and the explorer; at least 1s. 0s means no alarm.
	AlarmAfter time.Duration `koanf:"alarm_after"`
}

// alarmAfterMin is the shortest alarm_after: a shorter one is on while all is well.
const alarmAfterMin = time.Second

// StoreConfig configures the use of the disk.
type StoreConfig struct {
	// Writes are refused if fewer bytes are free. 0 means 256 MiB.
	ReserveBytes int64 `koanf:"reserve_bytes"`
	// The most bytes of the blocks before a snapshot that are fetched per second. 0 means 8 MiB.
	BackfillBytes int `koanf:"backfill_bytes_per_second"`
	// How many accounts may be in memory as a whole, some 256 bytes each; of the others, memory has
	// 43 bytes each, and they are read from the disk when transactions need them. 0 means a quarter
	// of the memory limit.
	AccountsInMemory int `koanf:"accounts_in_memory"`
}

// RuntimeConfig configures the process of the node.
type RuntimeConfig struct {
	// The process's memory at which it collects garbage more often, in bytes, so that it hardly
	// grows further; at least 134217728. 0 means half of what the machine and the process's control
	// group have. The environment variables GOMEMLIMIT and GOGC of Go come first.
	MemoryLimitBytes int64 `koanf:"memory_limit_bytes"`
}

// BatchBytesMin is the least bound of a batch that [ordering] batch_bytes_max may set: a batch with
// the largest bundle. BatchBytesDefault is the one without the key.
const (
	BatchBytesMin     = ledger.MaxBundleBytes + 4096
	BatchBytesDefault = 2 << 20
)

// memoryLimitMin is the least limit of the memory: below it, a node would mostly collect garbage.
const memoryLimitMin = 128 << 20

// LogConfig configures the log, which goes to standard error.
type LogConfig struct {
	Level  string `koanf:"level"`  // the least level that is logged: debug, info, warn or error
	Format string `koanf:"format"` // the form of its lines: text or json
}

// perfectAfterMin is the shortest suspect_after for a detector that is treated as perfect.
const perfectAfterMin = time.Second

// Initial returns the configuration of the home of a new ledger, with an engine, or the default
// one. It has the defaults, and prompt if the engine has it. A file without that key is of an older
// home, whose shard does not have it.
func Initial(chosen string) Config {
	config := Default()
	config.Ordering.Engine = cmp.Or(chosen, config.Ordering.Engine)
	config.Ordering.Prompt = engine.All().With(engine.Engine.HasPrompt).Has(config.Ordering.Engine)
	return config
}

// Default returns what keys mean that a file does not have.
func Default() Config {
	return Config{
		API:    APIConfig{Listen: "127.0.0.1:8080"},
		Admin:  AdminConfig{Listen: "127.0.0.1:0"},
		Fabric: FabricConfig{Kind: fabric.P2P},
		Ordering: OrderingConfig{
			Engine: engine.Default, Trains: engine.TrainsDefault,
			Detector:  allconcur.DetectorEventual.String(),
			Heartbeat: 100 * time.Millisecond, SuspectAfter: 800 * time.Millisecond,
			BatchBytesMax: BatchBytesDefault, PoolBytesMax: 64 << 20, TargetNines: 6,
			ServerMTTFHour: 18304,
		},
		Shards: ShardsConfig{RefuseAfter: 30 * time.Second, AlarmAfter: time.Minute},
		Log:    LogConfig{Level: "info", Format: "text"},
	}
}

// Validate returns ErrConfig with the wrong key and its valid values.
func (c *Config) Validate() error {
	wrong := func(key, format string, arguments ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrConfig, key, fmt.Sprintf(format, arguments...))
	}
	if err := checkAddress(c.API.Listen); err != nil {
		return wrong("api.listen", "%v", err)
	}
	if c.Admin.Listen != "" {
		if err := checkAddress(c.Admin.Listen); err != nil {
			return wrong("admin.listen", "%v", err)
		}
	}
	if c.Fabric.Listen != "" {
		if err := checkAddress(c.Fabric.Listen); err != nil {
			return wrong("fabric.listen", "%v", err)
		}
	}
	if _, err := fabric.Parse(string(c.Fabric.Kind)); err != nil {
		return wrong("fabric.kind", "%v", err)
	}
	chosen, unknown := engine.All().With(engine.Engine.RunsInNode).Of(c.Ordering.Engine)
	switch {
	case (c.API.Certificate == "") != (c.API.Key == ""):
		return wrong("api.certificate", "TLS needs both certificate and key, or neither")
	case unknown != nil:
		return wrong("ordering.engine", "%v", unknown)
	case c.Ordering.Detector != allconcur.DetectorEventual.String() &&
		c.Ordering.Detector != allconcur.DetectorPerfect.String():
		return wrong("ordering.detector", "%q is none of %s and %s", c.Ordering.Detector,
			allconcur.DetectorEventual, allconcur.DetectorPerfect)
	case c.Ordering.Detector == allconcur.DetectorPerfect.String() && !chosen.Perfect:
		return wrong("ordering.detector", "%s needs %s on all nodes of the shard: set that, or "+
			"another ordering.engine", chosen.Name, allconcur.DetectorEventual)
	case (chosen.Trains || c.Ordering.Trains != 0) && (c.Ordering.Trains < engine.TrainsMin ||
		c.Ordering.Trains > engine.TrainsMax):
		return wrong("ordering.trains", "%d is not between %d and %d", c.Ordering.Trains,
			engine.TrainsMin, engine.TrainsMax)
	case c.Ordering.Heartbeat < time.Millisecond:
		return wrong("ordering.heartbeat", "%v is shorter than a millisecond", c.Ordering.Heartbeat)
	case c.Ordering.Detector == allconcur.DetectorPerfect.String() &&
		c.Ordering.SuspectAfter < perfectAfterMin:
		return wrong("ordering.suspect_after",
			"%v is too short if the detector is treated as perfect: a node that is slow for "+
				"that long loses what it acknowledged; the minimum is %v, and 5s is sensible",
			c.Ordering.SuspectAfter, perfectAfterMin)
	case c.Ordering.SuspectAfter < 3*c.Ordering.Heartbeat:
		return wrong("ordering.suspect_after", "%v is less than three heartbeats (%v): a "+
			"healthy node would be suspected", c.Ordering.SuspectAfter,
			c.Ordering.Heartbeat)
	case c.Ordering.BatchBytesMax < BatchBytesMin || c.Ordering.BatchBytesMax > 8<<20:
		return wrong("ordering.batch_bytes_max", "%d is not between %d and 8388608",
			c.Ordering.BatchBytesMax, BatchBytesMin)
	case c.Ordering.LogRounds && c.Ordering.Detector != allconcur.DetectorEventual.String():
		return wrong("ordering.log_rounds", "it needs detector %s", allconcur.DetectorEventual)
	case c.Ordering.Prompt && (c.Ordering.Detector != allconcur.DetectorEventual.String() ||
		c.Ordering.LogRounds):
		return wrong("ordering.prompt", "it needs detector %s, and excludes "+
			"ordering.log_rounds: set it to false on all nodes of the shard, or change these",
			allconcur.DetectorEventual)
	case c.Ordering.PoolBytesMax < 2<<20:
		return wrong("ordering.pool_bytes_max", "%d is less than 2097152", c.Ordering.PoolBytesMax)
	case c.Ordering.TargetNines < 1 || c.Ordering.TargetNines > 15:
		return wrong("ordering.target_nines", "%d is not between 1 and 15", c.Ordering.TargetNines)
	case c.Ordering.ServerMTTFHour < 1:
		return wrong("ordering.server_mttf_hours", "%d is less than an hour",
			c.Ordering.ServerMTTFHour)
	case c.Shards.RefuseAfter < 0:
		return wrong("shards.refuse_after", "%v is negative", c.Shards.RefuseAfter)
	case c.Shards.AlarmAfter != 0 && c.Shards.AlarmAfter < alarmAfterMin:
		return wrong("shards.alarm_after", "%v is shorter than %v: it would be on while all is "+
			"well; 0s means no alarm", c.Shards.AlarmAfter, alarmAfterMin)
	case c.Store.ReserveBytes < 0:
		return wrong("store.reserve_bytes", "%d is negative", c.Store.ReserveBytes)
	case c.Store.BackfillBytes < 0:
		return wrong("store.backfill_bytes_per_second", "%d is negative", c.Store.BackfillBytes)
	case c.Store.AccountsInMemory < 0:
		return wrong("store.accounts_in_memory", "%d is negative", c.Store.AccountsInMemory)
	case c.Runtime.MemoryLimitBytes != 0 && c.Runtime.MemoryLimitBytes < memoryLimitMin:
		return wrong("runtime.memory_limit_bytes", "%d is less than %d", c.Runtime.MemoryLimitBytes,
			memoryLimitMin)
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level):
		return wrong("log.level", "%q is none of debug, info, warn, error", c.Log.Level)
	case c.Log.Format != "text" && c.Log.Format != "json":
		return wrong("log.format", "%q is neither text nor json", c.Log.Format)
	}
	return nil
}

func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return fmt.Errorf("%q is not host:port, such as 127.0.0.1:8080", address)
	}
	return nil
}

// readConfig reads the file over the defaults, and the environment over both. An unknown key is an
// error, since it is a typing mistake. A missing address is an error, too: a node on another port
// than its peers expect is of no use.
func readConfig(path string) (Config, error) {
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), toml.Parser()); err != nil {
		return Config{}, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	environment := env.Provider(".", env.Opt{Prefix: EnvPrefix,
		TransformFunc: func(key, value string) (string, any) {
			key = strings.ToLower(strings.TrimPrefix(key, EnvPrefix))
			section, rest, _ := strings.Cut(key, "_")
			return section + "." + rest, value
		}})
	if err := k.Load(environment, nil); err != nil {
		return Config{}, fmt.Errorf("%w: environment: %w", ErrConfig, err)
	}
	for _, key := range k.Keys() {
		if !slices.Contains(keys, key) {
			return Config{}, fmt.Errorf("%w: %s: unknown key %s; the keys are %s", ErrConfig,
				path, key, strings.Join(keys, ", "))
		}
	}
	for _, key := range []string{"api.listen", "fabric.listen"} {
		if !k.Exists(key) { // for example in a file that a full disk left empty
			return Config{}, fmt.Errorf("%w: %s has no %s: write the node's address there, or "+
				"restore the file that was made with the home", ErrConfig, path, key)
		}
	}
	config := Default()
	if err := k.Unmarshal("", &config); err != nil {
		return Config{}, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	return config, config.Validate()
}

var keys = []string{
	"api.listen", "api.certificate", "api.key", "api.client_ca", "api.access",
	"api.identities", "api.hosts", "api.allowed_origins", "api.calls_per_second",
	"admin.listen", "fabric.kind", "fabric.listen", "fabric.device", "fabric.gid",
	"ordering.engine", "ordering.trains", "ordering.detector", "ordering.heartbeat",
	"ordering.suspect_after", "ordering.linger", "ordering.batch_bytes_max", "ordering.log_rounds",
	"ordering.prompt", "ordering.record_rounds",
	"ordering.pool_bytes_max", "ordering.target_nines", "ordering.server_mttf_hours",
	"shards.refuse_after", "shards.alarm_after", "store.reserve_bytes",
	"store.backfill_bytes_per_second", "store.accounts_in_memory", "runtime.memory_limit_bytes",
	"log.level", "log.format",
}

// reloads lists the keys that take effect while a node runs.
var reloads = []string{
	"api.certificate", "api.key", "api.client_ca", "api.access", "api.identities",
	"api.hosts", "log.level",
}

// Restarts returns the keys whose values differ in another configuration and take effect at a start
// only.
func (c *Config) Restarts(other *Config) (changed []string) {
	own, its := reflect.ValueOf(c).Elem(), reflect.ValueOf(other).Elem()
	for i := range own.NumField() {
		section := own.Type().Field(i).Tag.Get("koanf")
		for j := range own.Field(i).NumField() {
			key := section + "." + own.Field(i).Type().Field(j).Tag.Get("koanf")
			if !slices.Contains(reloads, key) && !reflect.DeepEqual(
				own.Field(i).Field(j).Interface(), its.Field(i).Field(j).Interface()) {
				changed = append(changed, key)
			}
		}
	}
	return changed
}

// text returns the file of a new home: every key, with its meaning.
func (c *Config) text() string {
	prompt := "# prompt = true"
	if c.Ordering.Prompt {
		prompt = "prompt = true"
	}
	logRounds := "# log_rounds = true"
	if c.Ordering.LogRounds {
		logRounds = "log_rounds = true"
	}
	ringed := "# trains = 4"
	if made, err := engine.Of(c.Ordering.Engine); err == nil && made.Trains {
		ringed = fmt.Sprintf("trains = %d", c.Ordering.Trains)
	}
	return fmt.Sprintf(`# Configuration of a ledgerd node. Every key but the two addresses is optional.
# Environment variables %sSECTION_KEY override this file.

[api]                    # for clients and browsers
listen = %q
%s
%s
# client_ca = "clients.crt" # authorities of clients' certificates
%s
%s
# hosts = ["books.example"] # names of this node; requests for other hosts are refused
%s
# calls_per_second = 20000 # from one address

[admin]                  # for operators: probes, metrics, profiles; keep clients away from it
listen = %q     # port 0: a free one, which the log shows

[fabric]                 # the network between nodes
# kind must be the same on all nodes, also those of other shards.
# p2p: TCP, encrypted. p2p-trusted: TCP, not encrypted, for a network that nobody else listens on.
# shm: the same, with shared memory between nodes of one user and machine.
# verbs: RDMA. memory: one process. "ledgerd fabric" shows which kinds work on this machine.
kind = %q
listen = %q
# device = "mlx5_0"        # for verbs: the RDMA device; by default the first one that is active
# gid = "192.0.2.1"        # for verbs: its address or its index; by default the first RoCE v2
                           # address of IPv4, or the first address

[ordering]
# engine is the one with which the chain begins, allconcur+, allconcur, trains or dare: the same on
# all nodes of the shard. Once the operators changed it ("ledgerd cluster engine"), the chain says
# which it is.
engine = %q
# trains is for the engine trains: how many go round, 3 to 64; the same on all nodes of the shard
%s
# detector must be the same on all nodes of the shard: eventual or perfect.
# eventual: nodes may be suspected wrongly, as in a partition or a long pause, and nothing is lost.
# perfect: only for nodes and links that are never slow. A suspected node is treated as crashed. If
# that is wrong, nodes may hold different blocks until one of them notices and halts; what it
# acknowledged is then lost. Also, the members cannot change (docs/membership.md).
detector = %q
heartbeat = "%s"
suspect_after = "%s"       # of silence; a process that ended is noticed at once
linger = "%s"
batch_bytes_max = %d
# log_rounds syncs complete rounds before they are ordered: transactions become durable sooner where
# messages between the nodes take milliseconds (docs/design/rounds.md)
%s
# prompt orders small rounds as soon as all members hold them; the same on all nodes of the shard.
# It needs detector eventual, has an effect with engine allconcur+, and excludes log_rounds
# (docs/design/prompt.md)
%s
# record_rounds = true     # what passes in rounds is recorded also while nobody watches
pool_bytes_max = %d
target_nines = %d           # reliability over a day; sets the degree of the reliable digraph
server_mttf_hours = %d

[shards]                 # only in a ledger of several shards
# refuse_after is how long another shard must be down until transactions that cross to it are
# refused, unless their callers queue (docs/shards.md); 0s: never
refuse_after = "%s"
alarm_after = "%s"       # how long an entry may wait for another shard before an alarm; 0s: none

[store]
reserve_bytes = %d          # writes are refused when less disk is free; 0: the default
# backfill_bytes_per_second bounds how fast the blocks before the snapshot that the node began with
# are fetched beside its work; 0: the default, 8 MiB
backfill_bytes_per_second = %d
# accounts_in_memory is how many accounts may be in memory as a whole, some 256 bytes each; of the
# others, memory has 43 bytes each, and they are read from the disk when transactions need them;
# 0: a quarter of the memory limit
accounts_in_memory = %d

[runtime]
# memory_limit_bytes is the process's memory at which it collects garbage more often; 0: half of what
# the machine and the process's control group have. Several nodes on one machine need less each
memory_limit_bytes = %d

[log]
level = %q             # debug, info, warn, error
format = %q            # text or json
`, EnvPrefix, c.API.Listen,
		optional("certificate", c.API.Certificate, `"tls.crt"  # with key: serve TLS`),
		optional("key", c.API.Key, `"tls.key"`),
		optional("access", c.API.Access, `"identified" # or "public"; docs/access.md`),
		optional("identities", c.API.Identities, `"identities.json"`),
		optionalList("allowed_origins", c.API.AllowedOrigins, `["https://books.example"]`),
		c.Admin.Listen, string(c.Fabric.Kind), c.Fabric.Listen, c.Ordering.Engine,
		ringed, c.Ordering.Detector, c.Ordering.Heartbeat, c.Ordering.SuspectAfter,
		c.Ordering.Linger,
		c.Ordering.BatchBytesMax, logRounds, prompt,
		c.Ordering.PoolBytesMax, c.Ordering.TargetNines, c.Ordering.ServerMTTFHour,
		c.Shards.RefuseAfter, c.Shards.AlarmAfter, c.Store.ReserveBytes, c.Store.BackfillBytes,
		c.Store.AccountsInMemory,
		c.Runtime.MemoryLimitBytes, c.Log.Level, c.Log.Format)
}

// optional returns the line of a key that a file need not have: with its value, or, if it has none,
// as a comment with an example.
func optional(key, value, example string) string {
	if value == "" {
		return "# " + key + " = " + example
	}
	return fmt.Sprintf("%s = %q", key, value)
}

// optionalList is optional for a list of texts.
func optionalList(key string, values []string, example string) string {
	if len(values) == 0 {
		return "# " + key + " = " + example
	}
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = strconv.Quote(value)
	}
	return key + " = [" + strings.Join(quoted, ", ") + "]"
}
