package abci

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrConfig reports an invalid configuration.
var ErrConfig = errors.New("configuration")

// Config is the file that `ledgerd abci` runs from. An unknown key is an error, since it is a
// typing mistake. Paths are relative to the file's folder.
type Config struct {
	// ChainID names the application's chain; or GenesisFile is CometBFT's genesis.json, which has
	// the id.
	ChainID     string `toml:"chain_id"`
	GenesisFile string `toml:"genesis"`
	// Application is the address of the application's socket.
	Application string `toml:"application"`
	// Nodes to ask, if the command line names none.
	Nodes []string `toml:"nodes"`
	// Shard is that of the chain.
	Shard ledger.ShardID `toml:"shard"`
	// Folder is where the adapter keeps its file. One adapter at a time uses it.
	Folder string `toml:"folder"`
	// Post is the organisation that signs what clients post; without one nobody can post here.
	Post ledger.OrganisationName `toml:"post"`
	// Listen is the address of the RPC; none: there is none.
	Listen string `toml:"listen"`
	// Bounds. The zero value means the default.
	Pool    PoolConfig    `toml:"pool"`
	Results ResultsConfig `toml:"results"`
	Timing  TimingConfig  `toml:"timing"`

	// Genesis is that of ChainID or GenesisFile. Read sets it.
	Genesis *Genesis `toml:"-"`
}

// PoolConfig bounds what clients posted and the ledger has not taken yet.
type PoolConfig struct {
	Transactions int `toml:"transactions"` // default 5,000
	Bytes        int `toml:"bytes"`        // default 64 MiB
	Remembered   int `toml:"remembered"`   // hashes that are not taken again; default 10,000
	Clients      int `toml:"clients"`      // calls of the RPC under way; default 500
}

// ResultsConfig bounds the results that are kept for block_results and tx.
type ResultsConfig struct {
	Blocks int `toml:"blocks"` // default 10,000
	Bytes  int `toml:"bytes"`  // default 64 MiB
}

// TimingConfig says how long things may take.
type TimingConfig struct {
	// Commit is how long broadcast_tx_commit waits for the block; default 30 s.
	Commit Duration `toml:"commit"`
	// Check bounds CheckTx, Query and Info; default 10 s. A block may take as long as it takes.
	Check Duration `toml:"check"`
	// Patience is how long a node may be behind the application; default 15 s.
	Patience Duration `toml:"patience"`
	// Grace is how long a block that is being executed may still take once the adapter is told to
	// stop; default 10 s.
	Grace Duration `toml:"grace"`
	// GiveUp ends the adapter after so long without progress although it tried, or without an
	// answer to one call about a block; default: never.
	GiveUp Duration `toml:"give_up"`
	// MaxBackoff is the longest pause between attempts; default 5 s.
	MaxBackoff Duration `toml:"max_backoff"`
	// Slow is how long the application may take for a call about a block until that is reported;
	// default 10 s.
	Slow Duration `toml:"slow"`
}

// Duration is a duration in a file, such as "10s".
type Duration time.Duration

// UnmarshalText reads a duration above zero.
func (d *Duration) UnmarshalText(text []byte) error {
	value, err := time.ParseDuration(string(text))
	if err != nil || value <= 0 {
		return fmt.Errorf("%.40q is no duration above zero, such as \"10s\"", text)
	}
	*d = Duration(value)
	return nil
}

// maxConfigBytes bounds a configuration's file.
const maxConfigBytes = 1 << 20

// ReadConfig reads a file, and the genesis file that it names.
func ReadConfig(path string) (*Config, error) {
	text, err := readBounded(path, maxConfigBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	config := new(Config)
	decoder := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(config); err != nil {
		unknown := (*toml.StrictMissingError)(nil)
		if errors.As(err, &unknown) && len(unknown.Errors) > 0 {
			return nil, fmt.Errorf("%w: %s: unknown key %s; docs/abci.md has all keys", ErrConfig,
				path, strings.Join(unknown.Errors[0].Key(), "."))
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	if err := config.complete(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	return config, nil
}

// readBounded reads a whole file of at most so many bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return text, err
}

// complete validates a configuration and sets defaults.
func (c *Config) complete(folder string) error {
	below := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(folder, path)
	}
	c.GenesisFile, c.Folder = below(c.GenesisFile), below(c.Folder)
	switch {
	case (c.ChainID == "") == (c.GenesisFile == ""):
		return errors.New("name the application's chain once: with chain_id, or with genesis, " +
			"the path of its genesis.json")
	case c.Application == "":
		return errors.New("application is missing: the address of the application's socket, such " +
			"as tcp://127.0.0.1:26658")
	case c.Folder == "":
		return errors.New("folder is missing: where the adapter keeps its file")
	}
	if _, _, err := splitAddress(c.Application); err != nil {
		return err
	}
	c.Genesis = &Genesis{Chain: c.ChainID}
	if c.GenesisFile != "" {
		text, err := readBounded(c.GenesisFile, maxGenesisBytes)
		if err != nil {
			return fmt.Errorf("genesis: %w", err)
		}
		if c.Genesis, err = ParseGenesis(text); err != nil {
			return fmt.Errorf("genesis: %w", err)
		}
	}
	if err := c.Genesis.check(); err != nil {
		return err
	}
	if c.Post != "" {
		if err := transactionKey(c.Post, c.Genesis.Chain, 0).Validate(); err != nil {
			return fmt.Errorf("post: %w", err)
		}
	}
	return c.bounds()
}

// bounds sets the defaults of the bounds, and checks them.
func (c *Config) bounds() error {
	for _, each := range []struct {
		name                    string
		value                   *int
		standard, least, atMost int
	}{
		{"pool.transactions", &c.Pool.Transactions, 5000, 1, 1 << 20},
		{"pool.bytes", &c.Pool.Bytes, 64 << 20, ledger.MaxRecordValue, 4 << 30},
		{"pool.remembered", &c.Pool.Remembered, 10000, 1, 1 << 22},
		{"pool.clients", &c.Pool.Clients, 500, 1, 1 << 16},
		{"results.blocks", &c.Results.Blocks, 10000, 1, 1 << 22},
		{"results.bytes", &c.Results.Bytes, 64 << 20, 1, 4 << 30},
	} {
		if *each.value == 0 {
			*each.value = each.standard
		}
		if *each.value < each.least || *each.value > each.atMost {
			return fmt.Errorf("%s is %d: use %d to %d", each.name, *each.value, each.least,
				each.atMost)
		}
	}
	for value, standard := range map[*Duration]time.Duration{
		&c.Timing.Commit: 30 * time.Second, &c.Timing.Check: 10 * time.Second,
		&c.Timing.Patience: 15 * time.Second, &c.Timing.Grace: 10 * time.Second,
		&c.Timing.MaxBackoff: 5 * time.Second, &c.Timing.Slow: 10 * time.Second} {
		if *value == 0 {
			*value = Duration(standard)
		}
	}
	return nil
}
