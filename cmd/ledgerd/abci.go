package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/client/abci"
	"github.com/ledgerd/ledgerd/ledger"
)

// abciLineInterval is the time between two lines of progress.
const abciLineInterval = 5 * time.Second

// abciCloseTime is how long the last transactions may take once the adapter is told to stop.
const abciCloseTime = 5 * time.Second

// abciOptions are the flags of ledgerd abci.
type abciOptions struct {
	remote remoteOptions
	keys   keyringOptions
	config string
	quiet  bool
	json   bool

	// bound, if set, takes the address of the RPC; tests only.
	bound func(address string)
}

// newABCICommand returns the `ledgerd abci` command.
func newABCICommand() *cobra.Command {
	var options abciOptions
	command := &cobra.Command{
		Use:   "abci --config FILE",
		Short: "Run an unchanged CometBFT application on the ledger's order",
		Long: `Run an application that was made for CometBFT 0.38 (ABCI 2.0) on the order of the
ledger, without any change to it.

The adapter takes the place of CometBFT: it connects to the application's socket
and feeds it the durable blocks of one shard's chain. It begins after the height
that the application says it has, so the application gets each block once,
whatever crashes. Each replica of the application has an adapter of its own; all of
them get the same blocks.

A transaction of the application is the value of a ledger record with the name
abci/CHAIN/NUMBER, of any organisation. The adapter posts such records for clients
of CometBFT's RPC, signed by the organisation that the file names in post, with its
key in the keyring. ledgerd tx put posts one, too.

FILE says which application, which chain and which nodes; docs/abci.md has all keys,
and what an application finds different from CometBFT. The RPC has no access
control: every caller posts in the name of that organisation.

The command runs until it is stopped. It waits for the application and for nodes
that are away. An application that answers another hash than before for the same
height ends it with exit status 1.`,
		Example: `  # kvstore, the example of CometBFT
  abci-cli kvstore &
  cat > kv.toml <<'END'
  chain_id = "kv"
  application = "tcp://127.0.0.1:26658"
  folder = "kv-adapter"
  post = "acme"
  listen = "127.0.0.1:26657"
  END
  ledgerd abci --config kv.toml
  curl '127.0.0.1:26657/broadcast_tx_commit?tx="name=satoshi"'

  # Without the RPC
  ledgerd tx put acme:abci/kv name=satoshi`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return options.run(command) },
	}
	options.remote.bind(command, true)
	options.keys.bind(command)
	flags := command.Flags()
	flags.StringVar(&options.config, "config", "", "file that describes the adapter, in TOML")
	flags.BoolVar(&options.quiet, "quiet", false, "show no progress, only what fails")
	addJSONFlag(command, &options.json)
	return command
}

func (o *abciOptions) run(command *cobra.Command) (err error) {
	if o.config == "" {
		return usagef("name the file that describes the adapter with --config FILE")
	}
	config, err := abci.ReadConfig(o.config)
	if err != nil {
		return asUsage(err)
	}
	var key client.Key
	if config.Post != "" {
		ring, err := o.keys.open()
		if err != nil {
			return err
		}
		if key, err = ring.Load(config.Post); err != nil {
			return err
		}
	}
	if len(o.remote.addresses()) == 0 {
		o.remote.nodes = config.Nodes
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	told := &abciProgress{out: command.OutOrStdout(), errs: command.ErrOrStderr(), json: o.json,
		quiet: o.quiet}
	options := abci.Options{Config: config, Nodes: nodes, Report: told.take, Bound: o.bound}
	if config.Post != "" {
		post, ended := postingABCI(nodes, key)
		defer ended()
		options.Post = post
	}
	err = abci.Run(ctx, options)
	if err != nil && (ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
		return err
	}
	return told.end()
}

// postingABCI returns a function that posts in order, with a sender that it makes with the first
// transaction: the nodes may be away until then.
func postingABCI(nodes *client.Client, key client.Key) (post abci.Post, ended func()) {
	var sender *client.Sender
	var caller *client.Caller
	post = func(ctx context.Context, transaction ledger.Transaction) (
		func(context.Context) (client.Answer, error), error) {
		if sender == nil {
			made, err := nodes.NewSender(ctx, client.SenderOptions{Keys: []client.Key{key}})
			if err != nil {
				return nil, err
			}
			sender, caller = made, made.Caller()
		}
		submission, err := caller.Begin(ctx, transaction)
		if err != nil {
			return nil, err
		}
		return submission.Wait, nil
	}
	return post, func() {
		if sender == nil {
			return
		}
		bounded, cancel := context.WithTimeout(context.Background(), abciCloseTime)
		defer cancel()
		_ = sender.Close(bounded) // what is under way then has no client left
	}
}

// abciProgress prints what the adapter does.
type abciProgress struct {
	out, errs   io.Writer
	json, quiet bool
	shown       time.Time
	last        abci.Notice // the last block
	executed    int
}

// take prints a notice. Blocks are shown from time to time only. That one cannot be shown does not
// end the adapter.
func (p *abciProgress) take(notice abci.Notice) {
	switch notice.Event {
	case "block":
		p.last = notice
		p.executed += notice.Transactions
		if notice.LeftOut == 0 && time.Since(p.shown) < abciLineInterval {
			return
		}
		p.shown = time.Now()
		if p.quiet {
			return
		}
	case "begin":
		if p.quiet {
			return
		}
	}
	if p.json {
		_ = writeJSONLine(p.out, notice)
		return
	}
	text := ""
	switch notice.Event {
	case "begin":
		text = fmt.Sprintf("the application is at height %d", notice.Height)
		if notice.Was > notice.Height {
			text += fmt.Sprintf("; it was at %d, and executes the blocks after %d again",
				notice.Was, notice.Height)
		}
	case "waiting":
		text = fmt.Sprintf("waiting for the application: no answer to %s of block %d for %s",
			notice.Call, notice.Height, tookSeconds(notice.Seconds))
	case "answered":
		text = fmt.Sprintf("the application answered %s of block %d after %s", notice.Call,
			notice.Height, tookSeconds(notice.Seconds))
	case "unkept":
		text = "the adapter's file cannot be written, so it is behind the application, which " +
			"goes on: " + sanitize(notice.Error, 600)
	case "block":
		text = fmt.Sprintf("executed block %d, %s; application hash %s", notice.Height,
			plural(p.executed, "transaction"), sanitize(notice.AppHash, 128))
		if notice.LeftOut > 0 {
			text += fmt.Sprintf("; left out %d that the application did not accept", notice.LeftOut)
		}
	default:
		text = "tries again after height " + fmt.Sprint(notice.Height) + ": " +
			sanitize(notice.Error, 600)
	}
	_, _ = fmt.Fprintln(p.errs, text)
}

// tookSeconds returns a number of seconds as text: few of them to a tenth of one.
func tookSeconds(number float64) string {
	unit := time.Second
	if number < 10 {
		unit /= 10
	}
	return time.Duration(number * float64(time.Second)).Round(unit).String()
}

// end prints how far the application is.
func (p *abciProgress) end() error {
	if p.json {
		return writeJSONLine(p.out, abci.Notice{Event: "stopped", Height: p.last.Height,
			Transactions: p.executed, AppHash: p.last.AppHash})
	}
	_, err := fmt.Fprintf(p.out, "stopped: the application is at height %d, with %s executed\n",
		p.last.Height, plural(p.executed, "transaction"))
	return err
}
