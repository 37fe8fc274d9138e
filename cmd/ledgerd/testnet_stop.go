package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
)

// requestPause is the pause between two looks at the progress of a request.
const requestPause = 50 * time.Millisecond

// testnetRequest holds the flags of ledgerd testnet stop and start, and what they ask for.
type testnetRequest struct {
	dir     string
	shard   uint32
	nodes   []string
	timeout time.Duration
	json    bool

	byShard bool              // --shard was given
	want    testnet.NodeState // NodeStopped or NodeRunning
}

// requestReport is what ledgerd testnet stop --json and start --json print.
type requestReport struct {
	Dir   string               `json:"dir"`
	Nodes []requestedNodeState `json:"nodes"`
}

// requestedNodeState is a node that a request concerned.
type requestedNodeState struct {
	testnet.NodeStatus
	Changed bool `json:"changed"` // false if it was in the requested state already
}

// newTestnetStopCommand returns the `ledgerd testnet stop` command.
func newTestnetStopCommand() *cobra.Command {
	request := testnetRequest{want: testnet.NodeStopped}
	return request.bind(&cobra.Command{
		Use:   "stop DIR",
		Short: "Stop nodes of a running test network, or a whole shard of it",
		Long: `Stop nodes of a running test network, or a whole shard of it.

The nodes have to run under ledgerd testnet --run, which goes on with the others.
Each node stops in good order, and is killed if that takes more than 20 s. It then
stays stopped until ledgerd testnet start, or until the next ledgerd testnet --run.
Without --shard and --node all nodes are stopped.

The command waits until the nodes have stopped. Nodes that are stopped already
stay so.`,
		Example: `  # See which transactions wait while shard 2 is down
  ledgerd testnet stop sharded --shard 2
  ledgerd shards
  ledgerd testnet start sharded --shard 2

  ledgerd testnet stop net --node node-3`,
	})
}

// bind adds the flags and the function that runs the command.
func (r *testnetRequest) bind(command *cobra.Command) *cobra.Command {
	flags := command.Flags()
	flags.StringVar(&r.dir, "dir", "", "folder of the homes, instead of DIR")
	flags.Uint32Var(&r.shard, "shard", 0, "all nodes of this shard")
	flags.StringSliceVar(&r.nodes, "node", nil,
		"the node of this name, for example node-3; several with commas or repeated")
	flags.DurationVar(&r.timeout, "timeout", time.Minute,
		"give up after this time; 0 means never")
	addJSONFlag(command, &r.json)
	command.Args = cobra.MaximumNArgs(1)
	command.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	command.RunE = func(command *cobra.Command, arguments []string) error {
		r.byShard = command.Flags().Changed("shard")
		switch {
		case len(arguments) == 1 && r.dir != "":
			return usagef("%s and --dir %s both name the folder: leave one out", arguments[0],
				r.dir)
		case len(arguments) == 1:
			r.dir = arguments[0]
		case r.dir == "":
			return usagef("DIR is missing: name the folder of the homes, for example net")
		}
		if r.byShard && len(r.nodes) > 0 {
			return usagef("--shard and --node exclude each other: give one of them")
		}
		if r.timeout < 0 {
			return usagef("--timeout is %s: it has to be above zero, or 0 for none", r.timeout)
		}
		return r.run(command)
	}
	return command
}

func (r *testnetRequest) run(command *cobra.Command) error {
	ctx := command.Context()
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.timeout)
		defer cancel()
	}
	status, err := r.status()
	if err != nil {
		return err
	}
	chosen, err := r.choose(status)
	if err != nil {
		return err
	}
	report := requestReport{Nodes: []requestedNodeState{}}
	if report.Dir, err = filepath.Abs(r.dir); err != nil {
		return err
	}
	for _, node := range chosen {
		if err := testnet.Request(r.dir, node.Name, r.want); err != nil {
			return err
		}
		report.Nodes = append(report.Nodes, requestedNodeState{NodeStatus: node,
			Changed: node.State != r.want})
	}
	progress := command.OutOrStdout()
	if r.json {
		progress = command.ErrOrStderr()
	}
	for _, node := range report.Nodes {
		if !node.Changed {
			r.say(progress, node.Name, string(node.State)+" already")
		}
	}
	if err := r.await(ctx, progress, report.Nodes); err != nil {
		if command.Context().Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return r.late(report.Nodes, status.Process)
		}
		return err
	}
	if r.json {
		return writeJSON(command.OutOrStdout(), report)
	}
	return nil
}

// status returns the state of the network. Its errors say what to do.
func (r *testnetRequest) status() (testnet.RunStatus, error) {
	status, err := testnet.Status(r.dir)
	switch {
	case errors.Is(err, testnet.ErrForeign):
		return status, &hintedError{fmt.Errorf("there is no test network in %s", r.dir),
			"name the folder that was the --dir of ledgerd testnet"}
	case errors.Is(err, testnet.ErrNotRunning):
		homes, failed := testnet.Load(r.dir)
		if failed == nil && homes[0].Config.Fabric.Kind == fabric.Memory {
			return status, &hintedError{fmt.Errorf("the nodes of %s share one process, because "+
				"their fabric is memory", r.dir), "make a test network with another --fabric"}
		}
		return status, &hintedError{err, fmt.Sprintf("run them with `ledgerd testnet --dir %s "+
			"--run`", r.dir)}
	}
	return status, err
}

// choose returns the nodes that the request concerns.
func (r *testnetRequest) choose(status testnet.RunStatus) ([]testnet.NodeStatus, error) {
	if r.byShard && int(r.shard) >= status.Shards {
		there := "shard 0 only"
		if status.Shards > 1 {
			there = fmt.Sprintf("the shards 0 to %d", status.Shards-1)
		}
		return nil, fmt.Errorf("there is no shard %d in %s: it has %s", r.shard, r.dir, there)
	}
	var names []string
	for _, node := range status.Nodes {
		names = append(names, node.Name)
	}
	for _, name := range r.nodes {
		at := slices.Index(names, name)
		if at < 0 {
			return nil, r.unknown(name, names)
		}
		if status.Nodes[at].State == testnet.NodeRemoved {
			return nil, fmt.Errorf("%s is no member any more, and has no process", name)
		}
	}
	var chosen []testnet.NodeStatus
	for _, node := range status.Nodes {
		if node.State == testnet.NodeRemoved || r.byShard && node.Shard != r.shard ||
			len(r.nodes) > 0 && !slices.Contains(r.nodes, node.Name) {
			continue
		}
		chosen = append(chosen, node)
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%s runs no node of shard %d", r.dir, r.shard)
	}
	return chosen, nil
}

// unknown returns the error for a node that the running network does not have.
func (r *testnetRequest) unknown(name string, names []string) error {
	if _, err := home.Load(filepath.Join(r.dir, filepath.Base(name))); err == nil {
		return fmt.Errorf("%s is no node that `ledgerd testnet --run` runs now: it joined later, "+
			"so stop and start it by hand, or run the network again", name)
	}
	return fmt.Errorf("there is no node %s in %s: it has %s", sanitize(name, 0), r.dir,
		strings.Join(names, ", "))
}

// await waits until the nodes are as requested, and prints each change. It updates the nodes.
func (r *testnetRequest) await(ctx context.Context, progress io.Writer,
	nodes []requestedNodeState) error {
	ticker := time.NewTicker(requestPause)
	defer ticker.Stop()
	for {
		status, err := r.status()
		if err != nil {
			return err
		}
		done := true
		for i := range nodes {
			at := slices.IndexFunc(status.Nodes, func(now testnet.NodeStatus) bool {
				return now.Name == nodes[i].Name
			})
			if at < 0 {
				return fmt.Errorf("another network began to run in %s", r.dir)
			}
			now := status.Nodes[at]
			if now.State == testnet.NodeRemoved {
				return fmt.Errorf("%s was removed from the members", now.Name)
			}
			switch {
			case now.State == nodes[i].State:
			case now.State == testnet.NodeRunning:
				r.say(progress, now.Name, "running at "+now.API)
			default:
				r.say(progress, now.Name, string(now.State))
			}
			nodes[i].NodeStatus = now
			done = done && now.State == r.want
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// late returns the error for a request that took too long.
func (r *testnetRequest) late(nodes []requestedNodeState, process int) error {
	var waiting []string
	for _, node := range nodes {
		if node.State != r.want {
			waiting = append(waiting, fmt.Sprintf("%s (%s)", node.Name, node.State))
		}
	}
	return &hintedError{
		fmt.Errorf("after %s these nodes are not %s yet: %s", r.timeout, r.want,
			strings.Join(waiting, ", ")),
		fmt.Sprintf("the request still holds; see node.log in their homes, and whether process "+
			"%d, which runs them, works", process),
	}
}

// say prints what happened to a node.
func (r *testnetRequest) say(out io.Writer, name, what string) {
	_, _ = fmt.Fprintf(out, "%-8s %s\n", name, what) // the nodes change all the same
}
