package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/fabric"
)

// The metrics of nodes that a run reads.
const (
	metricCPU  = "process_cpu_seconds_total"
	metricSent = "ledgerd_lane_bytes_sent" // frames of engines, in this generation
	// of stores, to make blocks durable
	metricFlushes = "ledgerd_disk_flushes_total"
)

// nodes are the nodes of a run, as processes or in this process.
type nodes struct {
	urls     []string
	embedded bool
	ended    <-chan struct{} // closed when a node ends by itself
	stop     func() error
}

// startNodes starts the nodes and waits until all of them order.
func startNodes(ctx context.Context, p LedgerParameters, environment LedgerEnvironment) (*nodes,
	error) {
	starting, cancel := context.WithTimeoutCause(ctx, startOrdering,
		fmt.Errorf("%w: the nodes do not order within %v", ErrServer, startOrdering))
	defer cancel()
	start := startProcesses
	if p.Fabric == fabric.Memory {
		start = startEmbedded
	}
	n, err := start(starting, p, environment)
	if err != nil {
		return nil, err
	}
	if err := awaitOrdering(starting, n.urls); err != nil {
		return nil, errors.Join(err, n.stop())
	}
	return n, nil
}

func startProcesses(ctx context.Context, p LedgerParameters, environment LedgerEnvironment) (*nodes,
	error) {
	base, err := testnet.FreeBasePort(p.Nodes)
	if err != nil {
		return nil, err
	}
	homes, err := testnet.Make(testnet.Layout{Dir: environment.Dir, Nodes: p.Nodes, BasePort: base,
		Engine: p.Engine, Fabric: p.Fabric, Chain: "bench"})
	if err != nil {
		return nil, err
	}
	processes := testnet.Run(homes, testnet.ProcessOptions{Command: environment.Command})
	stop := func() error {
		stopping, cancel := context.WithTimeout(context.Background(), 2*closeTimeout)
		defer cancel()
		processes.Stop(stopping)
		return processes.Err()
	}
	if err := processes.Ready(ctx); err != nil {
		return nil, errors.Join(err, stop())
	}
	return &nodes{urls: processes.URLs(), ended: processes.Done(), stop: stop}, nil
}

func startEmbedded(ctx context.Context, p LedgerParameters, environment LedgerEnvironment) (*nodes,
	error) {
	cluster, err := testnet.Embed(ctx, testnet.EmbedOptions{
		Dir: environment.Dir, Ports: make([]int, p.Nodes), Engine: p.Engine, Chain: "bench",
		Start: environment.Start,
	})
	if err != nil {
		return nil, err
	}
	ended, stopped := make(chan struct{}), make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-cluster.Ended():
			close(ended)
		case <-stopped:
		}
	}()
	stop := func() error {
		close(stopped)
		<-watched
		stopping, cancel := context.WithTimeout(context.Background(), 2*closeTimeout)
		defer cancel()
		return cluster.Stop(stopping)
	}
	return &nodes{urls: cluster.URLs(), embedded: true, ended: ended, stop: stop}, nil
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
	// clientSeconds is the processor time of this process.
	clientSeconds float64
}

// figures adds up the nodes' metrics. Embedded nodes share this process's time with the clients.
func (n *nodes) figures(ctx context.Context) (figures, error) {
	var sum figures
	for _, url := range n.urls {
		values, err := readMetrics(ctx, url, metricCPU, metricSent, metricFlushes)
		if err != nil {
			return figures{}, err
		}
		sum.cpuSeconds += values[0]
		sum.sentBytes += values[1]
		sum.flushes += values[2]
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
