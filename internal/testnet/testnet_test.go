package testnet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// roleVariable makes the test binary a node's process, in the named role.
const roleVariable = "LEDGERD_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

// play runs a process in a role: it works, never becomes ready, or ignores all requests to stop.
func play(role string) int {
	fmt.Println("level=INFO hello")
	switch role {
	case "broken":
		fmt.Println("the disk is made of cheese")
		return 1
	case "removed":
		if !strings.HasSuffix(os.Args[len(os.Args)-1], Name(1)) {
			break
		}
		fmt.Println("the node is no member any more")
		return removedStatus
	case "deaf":
		signal.Ignore(syscall.SIGTERM, os.Interrupt)
		fmt.Println(ReadyWord + "http://deaf")
		select {}
	}
	fmt.Println("level=ERROR not so bad")
	fmt.Println(ReadyWord + "http://" + filepath.Base(os.Args[len(os.Args)-1]))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		_ = bufio.NewScanner(os.Stdin).Scan()
		close(ended)
	}()
	select {
	case <-signals:
	case <-ended:
	}
	return 0
}

func make3(t *testing.T) (string, []*home.Home) {
	t.Helper()
	dir := t.TempDir()
	homes, err := Make(Layout{Dir: dir, Nodes: 3, BasePort: 30100,
		Engine: allconcur.EngineAllConcur, Chain: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return dir, homes
}

func TestMakeAndLoad(t *testing.T) {
	t.Parallel()
	dir, made := make3(t)
	loaded, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range loaded {
		if h.Name() != Name(i) || h.Genesis.Hash() != made[i].Genesis.Hash() ||
			h.Config.Ordering.Engine != allconcur.EngineAllConcur ||
			URL(h) != fmt.Sprintf("http://127.0.0.1:%d", 30100+2*i) ||
			h.FabricAddress() != fmt.Sprintf("127.0.0.1:%d", 30101+2*i) {
			t.Errorf("home %d: %+v", i, h.Config)
		}
		for _, origin := range []string{"http://127.0.0.1:30100", "http://localhost:30104"} {
			if !slices.Contains(h.Config.API.AllowedOrigins, origin) {
				t.Errorf("home %d does not allow %s: %q", i, origin, h.Config.API.AllowedOrigins)
			}
		}
	}
	info, err := os.Stat(filepath.Join(dir, OperatorKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the operator's key: %v, %v", info, err)
	}
	if len(loaded[0].Genesis.Operators) != 1 || loaded[0].Genesis.Chain != "test" {
		t.Errorf("genesis %+v", loaded[0].Genesis)
	}
	if _, err := Make(Layout{Dir: dir, Nodes: 3}); !errors.Is(err, home.ErrExists) {
		t.Errorf("made over another one: %v", err)
	}
	if err := os.Rename(filepath.Join(dir, Name(2)), filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if loaded, err := Load(dir); err != nil || len(loaded) != 2 ||
		!slices.Equal(Missing(loaded), []string{Name(2)}) {
		t.Errorf("the home of a node that left is missing: %v", err)
	}
	if Missing(made) != nil {
		t.Errorf("nothing is missing, but %v", Missing(made))
	}
	other, _ := make3(t)
	if err := os.Rename(filepath.Join(other, Name(2)), filepath.Join(dir, Name(2))); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); !errors.Is(err, ErrForeign) {
		t.Errorf("a home of another chain: %v", err)
	}
	if _, err := Load(t.TempDir()); !errors.Is(err, ErrForeign) {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestMakeRefusesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, layout := range map[string]Layout{
		"no nodes":   {Nodes: 0},
		"too many":   {Nodes: NodesMax + 1},
		"no port":    {Nodes: 1, BasePort: -1},
		"ports end":  {Nodes: 4, BasePort: 65530},
		"bad engine": {Nodes: 2, Engine: "paxos"},
		"bad chain":  {Nodes: 2, Chain: "no chain"},
		"late change": {Nodes: 2, Change: func(i int, config *home.Config) {
			config.Ordering.PoolBytesMax = 1 - i
		}},
	} {
		layout.Dir = filepath.Join(t.TempDir(), "net")
		if _, err := Make(layout); err == nil {
			t.Errorf("%s: made", name)
		}
		if left, _ := filepath.Glob(filepath.Join(layout.Dir, "*")); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

func TestCheckPorts(t *testing.T) {
	t.Parallel()
	base, err := FreeBasePort(2)
	if err != nil {
		t.Fatal(err)
	}
	homes, err := Make(Layout{Dir: t.TempDir(), Nodes: 2, BasePort: base})
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", homes[1].FabricAddress())
	if err != nil {
		t.Skip("somebody took the port meanwhile")
	}
	defer taken.Close()
	if err := CheckPorts(homes); err == nil || !strings.Contains(err.Error(),
		"node-1 cannot listen for its fabric") {
		t.Errorf("%v", err)
	}
}

// Networks made side by side do not get the same ports, although none of them listens yet.
func TestFreeBasePortsAreApart(t *testing.T) {
	t.Parallel()
	const networks, nodes = 40, 3
	bases := make([]int, networks)
	var asking sync.WaitGroup
	for i := range bases {
		asking.Go(func() {
			var err error
			if bases[i], err = FreeBasePort(nodes); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	slices.Sort(bases)
	for i := range bases[1:] {
		if bases[i+1]-bases[i] < 2*nodes {
			t.Errorf("networks of %d nodes got the ports from %d on and from %d on",
				nodes, bases[i], bases[i+1])
		}
	}
}

// A process that runs out of blocks uses its own again, and never those of another process.
func TestFreeBasePortKeepsToItsClaims(t *testing.T) {
	other, err := net.Listen("tcp", address(lowestClaim))
	if err == nil {
		defer other.Close() // else another process has this block
	}
	for range portBlocks * blockPorts / 64 * 2 {
		base, err := FreeBasePort(32)
		if errors.Is(err, ErrLayout) {
			t.Skip("other processes use too many ports")
		}
		if err != nil {
			t.Fatal(err)
		}
		if base < lowestFreePort+blockPorts || base+64 > lowestFreePort+portBlocks*blockPorts {
			t.Fatalf("ports from %d on belong to another process, or to none", base)
		}
	}
}

// events collects the reported events, so that tests can wait for them.
type events struct {
	mutex sync.Mutex
	seen  []Event
}

func (e *events) report(event Event) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.seen = append(e.seen, event)
}

func (e *events) count(node int, kind EventKind) int {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	n := 0
	for _, event := range e.seen {
		if event.Node == node && event.Kind == kind {
			n++
		}
	}
	return n
}

func (e *events) wait(t *testing.T, node int, kind EventKind, count int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(
		5 * time.Millisecond) {
		if e.count(node, kind) >= count {
			return
		}
	}
	t.Fatalf("node %d was not %s %d times", node, kind, count)
}

func startRole(t *testing.T, role string, options ProcessOptions) (*Processes, []*home.Home,
	*events) {
	t.Helper()
	_, homes := make3(t)
	seen := new(events)
	options.Command, options.Environment, options.Report = []string{os.Args[0], "start"},
		[]string{roleVariable + "=" + role}, seen.report
	options.RestartPause = 10 * time.Millisecond
	processes := Run(homes, options)
	t.Cleanup(func() { stopNow(t, processes) })
	return processes, homes, seen
}

func stopNow(t *testing.T, processes *Processes) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	processes.Stop(ctx)
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestProcesses(t *testing.T) {
	t.Parallel()
	processes, homes, seen := startRole(t, "good", ProcessOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := processes.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	if urls := processes.URLs(); urls[2] != "http://node-2" {
		t.Errorf("addresses %v", urls)
	}
	first := processes.PIDs()
	if err := syscall.Kill(first[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	seen.wait(t, 1, EventReady, 2)
	second := processes.PIDs()
	if second[0] != first[0] || second[1] == first[1] || seen.count(1, EventEnded) != 1 ||
		seen.count(0, EventError) != 1 {
		t.Errorf("processes %v, then %v: %v", first, second, seen.seen)
	}
	stopNow(t, processes)
	for _, pid := range append(first, second...) {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if err := processes.Err(); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(filepath.Join(homes[1].Dir, LogFile))
	if err != nil || strings.Count(string(log), "hello") != 2 {
		t.Errorf("log %q, %v", log, err)
	}
}

func TestProcessesThatNeverComeUp(t *testing.T) {
	t.Parallel()
	processes, _, _ := startRole(t, "broken", ProcessOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := processes.Ready(ctx); !errors.Is(err, ErrGaveUp) ||
		!strings.Contains(err.Error(), "cheese") {
		t.Errorf("%v", err)
	}
	select {
	case <-processes.Done():
	case <-ctx.Done():
		t.Error("processes are left")
	}
}

// removedStatus is the exit status of a process whose node was removed.
const removedStatus = 3

func TestProcessOfARemovedNodeIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	processes, homes, seen := startRole(t, "removed", ProcessOptions{RemovedStatus: removedStatus})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := processes.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	seen.wait(t, 1, EventRemoved, 1)
	if removed := processes.Removed(); !slices.Equal(removed, []bool{false, true, false}) {
		t.Errorf("removed: %v", removed)
	}
	stopNow(t, processes)
	if seen.count(1, EventStarted) != 1 || seen.count(1, EventEnded) != 0 ||
		seen.count(1, EventRemoved) != 1 || processes.Err() != nil {
		t.Errorf("%v, %v", seen.seen, processes.Err())
	}
	log, err := os.ReadFile(filepath.Join(homes[1].Dir, LogFile))
	if err != nil || strings.Count(string(log), "hello") != 1 {
		t.Errorf("log %q, %v", log, err)
	}
}

// Hold stops a process for as long as nobody releases its node, and that is no crash.
func TestHoldAndRelease(t *testing.T) {
	t.Parallel()
	processes, homes, seen := startRole(t, "good", ProcessOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := processes.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	first := processes.PIDs()
	for round := range 5 { // more often than a process that never comes up is tried
		processes.Hold(1)
		seen.wait(t, 1, EventStopped, round+1)
		if now := processes.PIDs(); now[1] != 0 || now[0] != first[0] {
			t.Errorf("processes %v, then %v", first, now)
		}
		if err := processes.Ready(ctx); err != nil {
			t.Errorf("held: %v", err)
		}
		processes.Release(1)
		seen.wait(t, 1, EventReady, round+2)
	}
	if held := processes.Held(); slices.Contains(held, true) || alive(first[1]) {
		t.Errorf("held: %v", held)
	}
	// A release before the end starts the next process after it.
	processes.Hold(2)
	processes.Release(2)
	seen.wait(t, 2, EventReady, 2)
	if seen.count(1, EventEnded)+seen.count(2, EventEnded) != 0 {
		t.Errorf("a stop was reported as a crash: %v", seen.seen)
	}
	processes.Hold(0)
	seen.wait(t, 0, EventStopped, 1)
	stopNow(t, processes)
	if err := processes.Err(); err != nil {
		t.Error(err)
	}
	if log, err := os.ReadFile(filepath.Join(homes[1].Dir, LogFile)); err != nil ||
		strings.Count(string(log), "hello") != 6 {
		t.Errorf("log %q, %v", log, err)
	}
}

// One runner at a time runs a network. It forgets the requests to the runner before.
func TestRunner(t *testing.T) {
	t.Parallel()
	if _, err := Status(t.TempDir()); !errors.Is(err, ErrForeign) {
		t.Errorf("an empty folder: %v", err)
	}
	processes, homes, seen := startRole(t, "good", ProcessOptions{})
	dir := filepath.Dir(homes[0].Dir)
	if _, err := Status(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("nobody runs it: %v", err)
	}
	if err := Request(dir, Name(2), NodeStopped); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, stateFile), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	runner, err := Take(dir, homes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(dir, homes); !errors.Is(err, ErrRunning) {
		t.Errorf("a second runner: %v", err)
	}
	if _, err := Status(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a runner that does not serve yet: %v", err)
	}
	runner.Serve(t.Context(), processes)
	states := func(wanted ...NodeState) {
		t.Helper()
		var found []NodeState
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(
			5 * time.Millisecond) {
			status, err := Status(dir)
			if err != nil {
				t.Fatal(err)
			}
			found = nil
			for _, node := range status.Nodes {
				found = append(found, node.State)
			}
			if slices.Equal(found, wanted) {
				return
			}
		}
		t.Fatalf("%v, not %v", found, wanted)
	}
	states(NodeRunning, NodeRunning, NodeRunning)
	if err := Request(dir, Name(1), NodeStopped); err != nil {
		t.Fatal(err)
	}
	states(NodeRunning, NodeStopped, NodeRunning)
	if err := Request(dir, Name(1), NodeRunning); err != nil {
		t.Fatal(err)
	}
	states(NodeRunning, NodeRunning, NodeRunning)
	if seen.count(2, EventStarted) != 1 || seen.count(1, EventStarted) != 2 {
		t.Errorf("%v", seen.seen)
	}
	if err := runner.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Status(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after its end: %v", err)
	}
}

func TestDeafProcessesAreKilled(t *testing.T) {
	t.Parallel()
	processes, _, _ := startRole(t, "deaf", ProcessOptions{StopTime: 50 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := processes.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	ids := processes.PIDs()
	stopNow(t, processes)
	for _, pid := range ids {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}

func TestProgramThatIsNone(t *testing.T) {
	t.Parallel()
	_, homes := make3(t)
	processes := Run(homes, ProcessOptions{Command: []string{"/nonexistent/program"},
		RestartPause: time.Millisecond})
	if err := processes.Ready(t.Context()); !errors.Is(err, ErrGaveUp) ||
		!errors.Is(err, exec.ErrNotFound) && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	stopNow(t, processes)
}

func TestLongLines(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	var got []string
	l := &lines{log: &log, line: func(line string) { got = append(got, line) }}
	long := strings.Repeat("x", 3*lineMax)
	for _, part := range []string{"on", "e\ntwo\n", long, "\nth", "ree\n"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(got) != 4 || got[0] != "one" || got[1] != "two" || len(got[2]) != lineMax ||
		got[3] != "three" || log.Len() != len(long)+len("one\ntwo\n\nthree\n") {
		t.Errorf("%.60q", got)
	}
}

func TestLargeLogIsSetAside(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), LogFile)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, logBytesMax+1); err != nil {
		t.Fatal(err)
	}
	log, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() != logBytesMax+1 {
		t.Errorf("%v, %v", info, err)
	}
}

// imagined is a node whose behaviour the test decides.
type imagined struct {
	mode report.NodeMode
	done chan struct{}
	stop chan struct{}
}

func (n *imagined) URL() string { return "http://imagined" }
func (n *imagined) State() report.NodeState {
	return report.NodeState{Mode: n.mode, Reason: "it is imagined"}
}
func (n *imagined) Done() <-chan struct{}      { return n.done }
func (n *imagined) Err() error                 { return errors.New("it was a dream") }
func (n *imagined) Stop(context.Context) error { close(n.stop); return nil }

func TestEmbed(t *testing.T) {
	t.Parallel()
	nodes := make([]*imagined, 3)
	start := func(fail order) Starter {
		return func(_ context.Context, at *home.Home, fabric rdmanet.Host) (Node, error) {
			if order(at.Self) == fail {
				return nil, errors.New("no power")
			}
			if !slices.Contains(at.Config.API.AllowedOrigins, "http://127.0.0.1:102") {
				t.Errorf("%s allows %q", at.Name(), at.Config.API.AllowedOrigins)
			}
			if fabric.ID() == "" || at.Config.API.Listen != fmt.Sprintf("127.0.0.1:%d",
				100+at.Self) {
				t.Errorf("%s: %v at %s", at.Name(), fabric.ID(), at.Config.API.Listen)
			}
			nodes[at.Self] = &imagined{mode: report.ModeOrdering, done: make(chan struct{}),
				stop: make(chan struct{})}
			return nodes[at.Self], nil
		}
	}
	ports := []int{100, 101, 102}
	if _, err := Embed(t.Context(), EmbedOptions{Dir: t.TempDir(), Ports: ports,
		Start: start(1)}); err == nil || !strings.Contains(err.Error(), "node-1: no power") {
		t.Errorf("%v", err)
	}
	<-nodes[0].stop
	<-nodes[2].stop
	cluster, err := Embed(t.Context(), EmbedOptions{Dir: t.TempDir(), Ports: ports,
		Start: start(-1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Ordering(t.Context()); err != nil {
		t.Error(err)
	}
	nodes[2].mode = report.ModeStarting
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := cluster.Ordering(ctx); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "node-2 is starting: it is imagined") {
		t.Errorf("%v", err)
	}
	close(nodes[1].done)
	if err := cluster.Ordering(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "node-1 ended: it was a dream") {
		t.Errorf("%v", err)
	}
	if err := cluster.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// order is a node's place among the nodes, -1 for none.
type order int
