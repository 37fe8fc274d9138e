package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
)

// The metrics of nodes that a run reads.
const (
	metricCPU  = "process_cpu_seconds_total"
	metricSent = "ledgerd_lane_bytes_sent" // frames of engines, in this generation
	// of stores, to make blocks durable
	metricFlushes = "ledgerd_disk_flushes_total"
	metricHeight  = "ledgerd_height_ordered"
)

// nodes are the nodes of a run, as processes or in this process. They may run several times.
type nodes struct {
	embedded bool
	patience time.Duration               // until they order
	launch   func(context.Context) error // sets the fields below
	homes    []*home.Home                // of processes

	processes *testnet.Processes // nil: they are in this process
	urls      []string
	folders   []string        // with the nodes' data
	ended     <-chan struct{} // closed when a node ends by itself
	halt      func() error
}

// newNodes makes the nodes. None of them runs yet.
func newNodes(p LedgerParameters, environment LedgerEnvironment) (*nodes, error) {
	if p.Fabric == fabric.Memory {
		return embeddedNodes(p, environment), nil
	}
	return processNodes(layoutOf(p, environment.Dir), startPatience(p), environment.Command)
}

// layoutOf returns the layout of the nodes of one shard, as processes.
func layoutOf(p LedgerParameters, dir string) testnet.Layout {
	return testnet.Layout{Dir: dir, Nodes: p.Nodes, Engine: p.Engine, Fabric: p.Fabric,
		Chain: "bench", Quotas: &ledger.Quotas{}, Change: func(_ int, config *home.Config) {
			config.Runtime.MemoryLimitBytes = p.MemoryLimit
		}}
}

// during starts the nodes, waits until all of them order, and stops them in good order after do.
// do's context ends early if a node ends by itself, or with the error that do passes to fail.
func (n *nodes) during(ctx context.Context,
	do func(ctx context.Context, fail context.CancelCauseFunc) error) (err error) {
	if err := n.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.halt()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		select {
		case <-n.ended:
			cancel(fmt.Errorf("%w: a node ended by itself", ErrServer))
		case <-ctx.Done():
		}
	})
	if err := do(ctx, cancel); err != nil {
		if cause := context.Cause(ctx); !errors.Is(err, cause) {
			return errors.Join(cause, err)
		}
		return err
	}
	return nil
}

func (n *nodes) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.patience,
		fmt.Errorf("%w: the nodes do not order within %v", ErrServer, n.patience))
	defer cancel()
	if err := n.launch(ctx); err != nil {
		return err
	}
	if err := awaitOrdering(ctx, n.urls); err != nil {
		return errors.Join(err, n.halt())
	}
	return nil
}

func startPatience(p LedgerParameters) time.Duration {
	return startOrdering + time.Duration(max(p.Accounts, p.BookAccounts))*startAccount
}

// processNodes makes the homes of nodes that run as processes, on free ports.
func processNodes(layout testnet.Layout, patience time.Duration, command []string) (*nodes, error) {
	base, err := testnet.FreeBasePort(layout.Nodes * max(layout.Shards, 1))
	if err != nil {
		return nil, err
	}
	layout.BasePort = base
	homes, err := testnet.Make(layout)
	if err != nil {
		return nil, err
	}
	n := &nodes{patience: patience, homes: homes}
	for _, h := range homes {
		n.folders = append(n.folders, h.Data(), h.Rounds())
	}
	n.launch = func(ctx context.Context) error {
		processes := testnet.Run(homes, testnet.ProcessOptions{Command: command, Temporary: true})
		n.processes, n.ended = processes, processes.Done()
		n.halt = func() error {
			stopping, cancel := context.WithTimeout(context.Background(), 2*closeTimeout)
			defer cancel()
			processes.Stop(stopping)
			return processes.Err()
		}
		if err := processes.Ready(ctx); err != nil {
			if halted := n.halt(); !errors.Is(err, testnet.ErrGaveUp) {
				err = errors.Join(err, halted) // else it is the same error
			}
			return err
		}
		n.urls = processes.URLs()
		return nil
	}
	return n, nil
}

func embeddedNodes(p LedgerParameters, environment LedgerEnvironment) *nodes {
	n := &nodes{embedded: true, patience: startPatience(p)}
	var last *testnet.Embedded
	n.launch = func(ctx context.Context) (err error) {
		if last == nil {
			last, err = testnet.Embed(ctx, testnet.EmbedOptions{
				Dir: environment.Dir, Ports: make([]int, p.Nodes), Engine: p.Engine,
				Chain: "bench", Start: environment.Start,
			})
		} else {
			last, err = testnet.EmbedHomes(ctx, last.Homes(), environment.Start)
		}
		if err != nil {
			return err
		}
		cluster := last
		n.urls, n.folders = cluster.URLs(), nil
		for _, h := range cluster.Homes() {
			n.folders = append(n.folders, h.Data(), h.Rounds())
		}
		ended, stopped, watched := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(watched)
			select {
			case <-cluster.Ended():
				close(ended)
			case <-stopped:
			}
		}()
		n.ended = ended
		n.halt = func() error {
			close(stopped)
			<-watched
			stopping, cancel := context.WithTimeout(context.Background(), 2*closeTimeout)
			defer cancel()
			return cluster.Stop(stopping)
		}
		return nil
	}
	return n
}

// restartOne stops a node in good order and starts it again, while the others go on. It returns how
// long the node then took until it orders.
func (n *nodes) restartOne(ctx context.Context) (time.Duration, error) {
	const which = 0
	ctx, cancel := context.WithTimeoutCause(ctx, n.patience,
		fmt.Errorf("%w: a node does not order within %v after its restart", ErrServer, n.patience))
	defer cancel()
	n.processes.Hold(which)
	for n.processes.PIDs()[which] != 0 {
		if err := pause(ctx, readyStep); err != nil {
			return 0, err
		}
	}
	begun := time.Now()
	n.processes.Release(which)
	node, err := client.New(n.urls[which:which+1], client.Options{Tries: 1})
	if err != nil {
		return 0, err
	}
	defer node.Close()
	for {
		state, err := node.Node(ctx)
		if err == nil && state.GetMode() == ledgerdv1.NodeMode_NODE_MODE_ORDERING {
			return time.Since(begun), nil
		}
		if err := pause(ctx, readyStep); err != nil {
			return 0, err
		}
	}
}

// readyStep is the time between two questions whether a node is ready.
const readyStep = 5 * time.Millisecond

// peakMemory returns the most memory that a node had so far, of the node that had most. It is 0 if
// the nodes are in this process, or if the system does not tell.
func (n *nodes) peakMemory() (most int64) {
	if n.processes == nil {
		return 0
	}
	for _, pid := range n.processes.PIDs() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(text)) {
			if rest, is := strings.CutPrefix(line, "VmHWM:"); is {
				kilobytes, _ := strconv.ParseInt(
					strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
				most = max(most, kilobytes<<10)
			}
		}
	}
	return most
}

// bytesOnDisk returns the bytes that the file system has allocated to the nodes' data.
func (n *nodes) bytesOnDisk() (total int64, err error) {
	for _, folder := range n.folders {
		allocated, err := allocatedBytes(folder)
		if err != nil {
			return 0, err
		}
		total += allocated
	}
	return total, nil
}

// statBlock is the unit in which the system counts the space that a file takes.
const statBlock = 512

// allocatedBytes returns the bytes that the file system has allocated to the files in a folder and
// to the folders themselves. Holes in sparse files do not count. A missing folder has none.
func allocatedBytes(folder string) (total int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if status, known := info.Sys().(*syscall.Stat_t); known {
			total += status.Blocks * statBlock
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	return total, nil
}

// awaitOrdering waits until all nodes order.
func awaitOrdering(ctx context.Context, urls []string) error {
	clients, err := clientsOf(urls)
	if err != nil {
		return err
	}
	defer closeClients(clients)
	for {
		ordering := 0
		for _, node := range clients {
			if state, err := node.Node(ctx); err == nil &&
				state.GetMode() == ledgerdv1.NodeMode_NODE_MODE_ORDERING {
				ordering++
			}
		}
		if ordering == len(clients) {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func clientsOf(urls []string) ([]*client.Client, error) {
	var clients []*client.Client
	for _, url := range urls {
		node, err := client.New([]string{url}, client.Options{})
		if err != nil {
			closeClients(clients)
			return nil, err
		}
		clients = append(clients, node)
	}
	return clients, nil
}

func closeClients(clients []*client.Client) {
	for _, node := range clients {
		node.Close()
	}
}

// figures hold the nodes' resource use since they started.
type figures struct {
	cpuSeconds float64
	sentBytes  float64 // on lanes
	flushes    float64
	height     float64 // of the node that is furthest
	// clientSeconds is the processor time of this process, and nodeSeconds that of each node.
	clientSeconds float64
	nodeSeconds   []float64
}

// figures adds up the nodes' metrics. Embedded nodes share this process's time with the clients.
func (n *nodes) figures(ctx context.Context) (figures, error) {
	var sum figures
	all, failures := make([][]float64, len(n.urls)), make([]error, len(n.urls))
	var reading sync.WaitGroup
	for i, url := range n.urls { // at the same time, so that they are of about one moment
		reading.Go(func() {
			all[i], failures[i] = readMetrics(ctx, url, metricCPU, metricSent, metricFlushes,
				metricHeight)
		})
	}
	reading.Wait()
	if err := errors.Join(failures...); err != nil {
		return figures{}, err
	}
	for _, values := range all {
		sum.cpuSeconds += values[0]
		sum.nodeSeconds = append(sum.nodeSeconds, values[0])
		sum.sentBytes += values[1]
		sum.flushes += values[2]
		sum.height = max(sum.height, values[3])
	}
	used, err := cpuTime()
	if err != nil {
		return figures{}, err
	}
	if sum.clientSeconds = used.Seconds(); n.embedded {
		sum.cpuSeconds = sum.clientSeconds
	}
	return sum, nil
}

// metricsMax limits the size of a node's metrics in bytes.
const metricsMax = 4 << 20

// readMetrics reads metrics without labels from a node. A missing metric is 0.
func readMetrics(ctx context.Context, url string, names ...string) (values []float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("bench: metrics: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("bench: metrics: %w", err)
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: metrics of %s: %s", ErrServer, url, answer.Status)
	}
	values = make([]float64, len(names))
	lines := bufio.NewScanner(io.LimitReader(answer.Body, metricsMax))
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		for i, wanted := range names {
			if name == wanted {
				if values[i], err = strconv.ParseFloat(text, 64); err != nil {
					return nil, fmt.Errorf("bench: metrics: %w", err)
				}
			}
		}
	}
	return values, lines.Err()
}
