package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	// stopPatience limits the time that a node may take to stop in good order.
	stopPatience = 15 * time.Second
	// withInputFlag is the hidden flag that makes a node stop when its standard input ends.
	// Programs that run a node as a process use it.
	withInputFlag = "until-input-ends"
)

// startReport is what ledgerd start --json prints once the API answers.
type startReport struct {
	Event string `json:"event"`
	URL   string `json:"url"`
	// Admin is the address of the admin listener, if there is one.
	Admin string `json:"admin,omitempty"`
	Name  string `json:"name"`
	Chain string `json:"chain"`
	// Shard is the shard that the node keeps, if the book has several.
	Shard *ledger.ShardID `json:"shard,omitempty"`
}

// newStartCommand returns the `ledgerd start` command.
func newStartCommand() *cobra.Command {
	var dir, level string
	var kind fabric.Kind
	var withInput, asJSON bool
	command := &cobra.Command{
		Use:   "start --home DIR",
		Short: "Run the node in a home folder",
		Long: `Run the node in a home folder, until it is interrupted.

When the API answers, a line "ready http://..." goes to standard output; the
log goes to standard error. An interrupt (Ctrl-C) or SIGTERM stops the node in
good order: it takes no more writes, finishes what is under way and syncs its
disk. A second interrupt ends it at once, which also keeps everything that was
acknowledged as stored or durable.

SIGHUP reads the configuration again, and the files that it names. Certificates,
access, identities and hosts under [api], and level under [log], take effect at
once. If anything is wrong, nothing changes; the log says what, and which other
changed settings wait for the next start.

A node whose API is not on a loopback address starts only if the configuration
says who is served: see ledgerd access.

If the node ends by itself, because its disk is damaged or its chain differs from
the others', the exit status is 1 and the log gives the reason. The exit status is
3 if an operator removed the node from the members (ledgerd cluster leave): a
supervisor that restarts nodes must not restart this one.

The node talks to the others over the fabric in config.toml, or over --fabric if
that is given: it has to be the same on all nodes. ledgerd fabric shows which
fabrics work on this machine.

The settings are in config.toml in the folder; environment variables such as
LEDGERD_NODE_API_LISTEN override them.`,
		Example: `  ledgerd testnet --dir net --nodes 4
  ledgerd start --home net/node-0`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			h, err := loadHome(dir)
			if err != nil {
				return err
			}
			if level != "" {
				h.Config.Log.Level = level
				if err := h.Config.Validate(); err != nil {
					return asUsage(err)
				}
			}
			if err := chooseFabric(h, kind); err != nil {
				return err
			}
			ctx := command.Context()
			if withInput {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
				// The parent process may have gone, and the reader of the log with it. Stop in good
				// order all the same.
				signal.Ignore(syscall.SIGPIPE)
				go func() {
					_, _ = io.Copy(io.Discard, command.InOrStdin()) // only its end matters
					cancel()
				}()
			}
			logger, current := newLogger(h.Config.Log, command.ErrOrStderr())
			reload := func(running *node.Node) error {
				return reloadNode(running, dir, kind, level, current)
			}
			return runNode(ctx, h, logger, reload, func(running *node.Node) error {
				url := running.URL()
				if asJSON {
					ready := startReport{Event: "ready", URL: url, Admin: running.AdminURL(),
						Name: h.Name(), Chain: h.Genesis.Chain}
					if h.Genesis.Sharded() {
						ready.Shard = &h.Genesis.Shard
					}
					return writeJSONLine(command.OutOrStdout(), ready)
				}
				_, err := fmt.Fprintf(command.OutOrStdout(), "%s%s\n", testnet.ReadyWord, url)
				return err
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&dir, "home", "", "the node's home folder (required)")
	flags.StringVar(&level, "log-level", "", "debug, info, warn or error (default: as configured)")
	addFabricFlag(command, &kind, "")
	addJSONFlag(command, &asJSON)
	flags.BoolVar(&withInput, withInputFlag, false, "stop when standard input ends")
	if err := flags.MarkHidden(withInputFlag); err != nil {
		panic("start: no such flag: " + withInputFlag)
	}
	completeFlag(command, "log-level",
		cobra.FixedCompletions([]string{"debug", "info", "warn", "error"},
			cobra.ShellCompDirectiveNoFileComp))
	return command
}

// loadHome reads the home that --home names.
func loadHome(dir string) (*home.Home, error) {
	if dir == "" {
		return nil, usagef("--home is missing: name the node's home folder, for example --home " +
			"net/node-0")
	}
	return home.Load(dir)
}

// chooseFabric sets the node's fabric, if kind is given. It refuses a fabric that does not reach
// other processes or that does not work on this machine.
func chooseFabric(h *home.Home, kind fabric.Kind) error {
	if kind != "" {
		if _, err := fabric.Parse(string(kind)); err != nil {
			return asUsage(err)
		}
		h.Config.Fabric.Kind = kind
	}
	err := fabric.Check(h.Config.Fabric.Kind)
	if errors.Is(err, fabric.ErrOneProcess) {
		return usagef("%w, so a node by itself would reach no other: run all of them in one "+
			"with `ledgerd testnet --dir %s --fabric memory --run` or `ledgerd demo`, or start "+
			"this one and all others with --fabric p2p",
			err, filepath.Dir(filepath.Clean(h.Dir)))
	}
	return err
}

// newLogger returns the log of a node, as configured, and its level, which may be changed.
func newLogger(config home.LogConfig, to io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	setLevel(level, config.Level)
	options := &slog.HandlerOptions{Level: level}
	if config.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, options)), level
	}
	return slog.New(slog.NewTextHandler(to, options)), level
}

// setLevel sets a level by its name, which the configuration has validated.
func setLevel(level *slog.LevelVar, name string) {
	var parsed slog.Level
	if err := parsed.UnmarshalText([]byte(name)); err == nil {
		level.Set(parsed)
	}
}

// reloadNode reads a running node's home again. The fabric and the level of the command line, if
// given, stay.
func reloadNode(running *node.Node, dir string, kind fabric.Kind, level string,
	current *slog.LevelVar) error {
	h, err := home.Load(dir)
	if err != nil {
		return err
	}
	if err := chooseFabric(h, kind); err != nil {
		return err
	}
	if err := running.Reload(h); err != nil {
		return err
	}
	setLevel(current, cmp.Or(level, h.Config.Log.Level))
	return nil
}

// nodeStarter starts nodes for commands that run several of them in this process.
func nodeStarter(logger *slog.Logger, options store.Options) testnet.Starter {
	return func(ctx context.Context, at *home.Home, fabric rdmanet.Host) (testnet.Node, error) {
		return startNode(ctx, at, fabric, logger, options)
	}
}

// startNode starts a home's node.
func startNode(ctx context.Context, at *home.Home, fabric rdmanet.Host, logger *slog.Logger,
	options store.Options) (*node.Node, error) {
	return node.Start(ctx, node.Options{
		Home: at, Host: fabric, Logger: logger, Version: programVersion(), Store: options,
		Clock: wallClock(at.Dir),
	})
}

// runNode runs a home's node until ctx ends or the node does. It calls ready once the API answers,
// and reload at each SIGHUP.
func runNode(ctx context.Context, h *home.Home, logger *slog.Logger, reload func(*node.Node) error,
	ready func(*node.Node) error) error {
	tuneMemory(h.Config.Runtime.MemoryLimitBytes)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	running, err := startNode(ctx, h, nil, logger, store.Options{})
	if err != nil {
		return tellOfVerify(h, err)
	}
	if err := ready(running); err != nil {
		logger.Warn("cannot tell on standard output that the node is ready", "error", err)
	}
	for over := false; !over; {
		select {
		case <-ctx.Done():
			over = true
		case <-running.Done():
			over = true
		case <-hangups:
			if err := reload(running); err != nil {
				logger.Error("SIGHUP changed nothing", "error", err)
			}
		}
	}
	ended := running.Err()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	err = running.Stop(stopping)
	if errors.Is(ended, node.ErrRemoved) {
		return fmt.Errorf("%s was %w", h.Name(), ended)
	}
	if ended != nil {
		return tellOfVerify(h, fmt.Errorf("the node ended by itself: %w", ended))
	}
	if err != nil {
		return fmt.Errorf("the node did not stop in good order: %w", err)
	}
	return nil
}

// tellOfVerify adds to an error that reports damage how to find out more.
func tellOfVerify(h *home.Home, err error) error {
	if errors.Is(err, store.ErrDamaged) {
		return fmt.Errorf("%w\n`ledgerd verify --home %s` checks every block", err, h.Dir)
	}
	return err
}
