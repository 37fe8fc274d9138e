//go:build linux

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// beginning is the time for which a ready node may seem to have no group: its state and its
// readiness are asked at different moments.
const beginning = time.Second

// idle is how long the test watches nodes that must not order. They used to go on after four
// seconds.
const idle = 6 * time.Second

// TestDurableSurvivesForgottenDisks makes a minority of the disks forget what they acknowledged. It
// starts their nodes first, together with nodes whose disks never had it. They must not go on
// without the node that remembers.
func TestDurableSurvivesForgottenDisks(t *testing.T) {
	t.Parallel()
	removeData := func(s *shard, i int) { s.remove(s.homes[i].Data()) }
	for _, c := range []struct {
		name   string
		nodes  int
		behind []int // killed before the writes
		losers []int // whose disks forget; the remaining node remembers, and starts last
		older  bool  // the losers' homes are copied before the writes
		forget func(s *shard, i int)
	}{
		{"data of one of three", 3, []int{2}, []int{0}, false, removeData},
		{"data of two of five, moved away", 5, []int{3, 4}, []int{0, 1},
			false, func(s *shard, i int) {
				if err := os.Rename(s.homes[i].Data(), s.homes[i].Data()+".damaged"); err != nil {
					s.t.Fatal(err)
				}
			}},
		{"promises of one of three", 3, []int{2}, []int{0}, false, func(s *shard, i int) {
			s.remove(s.homes[i].Generation())
		}},
		{"an older copy of one of three", 3, []int{2}, []int{0}, true, func(s *shard, i int) {
			s.restore(i, s.copyPath(i))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newRunningShard(t, c.nodes)
			acme := s.newParty("acme", []string{"cash"}, 0)
			s.same(s.all()...)
			if c.older {
				s.stop(c.losers...)
				for _, i := range c.losers {
					s.copyHome(i, s.copyPath(i))
				}
				s.start(c.losers...)
				s.ordering(s.all()...)
			}
			s.kill(c.behind...)
			s.ordering(s.others(c.behind...)...)
			writers := s.others(c.behind...)
			promises := s.writeFor(time.Second, acme, "before", writers...)
			s.kill(s.all()...)
			for _, i := range c.losers {
				c.forget(s, i)
			}
			first := append(append([]int{}, c.losers...), c.behind...)
			s.start(first...)
			s.waitingForOthers(idle, first...)
			for _, i := range c.losers {
				state, err := s.state(i)
				if err != nil || state.GetDiskLearner() == "" {
					t.Errorf("node %d does not say that its disk is a new one: %v, %v", i, state,
						err)
				}
			}
			s.start(s.others(first...)...)
			s.ordering(s.all()...)
			s.same(s.all()...)
			s.kept(acme, promises)
			s.noneAside(promises)
			// The new disks count now: the shard goes on without one of the others.
			s.kill(c.behind[0])
			s.ordering(s.others(c.behind[0])...)
			s.start(c.behind[0])
			s.ordering(s.all()...)
			s.same(s.all()...)
			s.exports(s.all()...)
			s.stop(s.all()...)
			s.verified(s.all()...)
			t.Logf("%d promises kept", len(promises))
		})
	}
}

// TestNodeWithoutItsPromises removes a node's promises while the others run. The node must not act
// on its own: it comes back through the others, and reports that it is ready only when it is.
func TestNodeWithoutItsPromises(t *testing.T) {
	t.Parallel()
	const nodes, forgetful = 5, 4
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	s := newRunningShard(t, nodes)
	acme := s.newParty("acme", []string{"cash"}, 0, 1)
	var promises []promise
	for round := range rounds {
		stop := s.writers(acme, fmt.Sprintf("round-%d", round), 0, 1, 2)
		s.kill(forgetful)
		s.remove(s.homes[forgetful].Generation())
		begun := time.Now()
		s.start(forgetful)
		watched := s.watchReady(nodes/2+1, forgetful)
		s.ordering(s.all()...)
		t.Logf("round %d: it orders again after %v", round,
			time.Since(begun).Round(time.Millisecond))
		watched()
		promises = append(promises, stop()...)
		s.same(s.all()...)
	}
	// Alone, it orders nothing.
	s.kill(s.all()...)
	s.remove(s.homes[forgetful].Generation())
	s.start(forgetful)
	watched := s.watchReady(nodes/2+1, forgetful)
	s.waitingForOthers(idle/2, forgetful)
	s.start(s.others(forgetful)...)
	s.ordering(s.all()...)
	watched()
	if log := s.log(forgetful); strings.Contains(log, "stop all nodes") {
		t.Error("it asked to stop all nodes")
	}
	s.same(s.all()...)
	s.kept(acme, promises)
	s.noneAside(promises)
	s.exports(s.all()...)
	s.stop(s.all()...)
	s.verified(s.all()...)
}

func (s *shard) remove(path string) {
	s.t.Helper()
	if err := os.RemoveAll(path); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shard) copyPath(i int) string { return filepath.Join(s.dir, "copy-of-"+testnet.Name(i)) }

// copyHome copies the home of a stopped node, and replaces any earlier copy.
func (s *shard) copyHome(i int, to string) {
	s.t.Helper()
	s.remove(to)
	if err := os.CopyFS(to, os.DirFS(s.homes[i].Dir)); err != nil {
		s.t.Fatal(err)
	}
}

// restore replaces a home by a copy, and syncs it: an operator's copy is on the disk long before
// the next loss of power. The folder itself stays, since it may be a mount.
func (s *shard) restore(i int, from string) {
	s.t.Helper()
	entries, err := os.ReadDir(s.homes[i].Dir)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, entry := range entries {
		s.remove(filepath.Join(s.homes[i].Dir, entry.Name()))
	}
	if err := os.CopyFS(s.homes[i].Dir, os.DirFS(from)); err != nil {
		s.t.Fatal(err)
	}
	folder, err := os.Open(s.homes[i].Dir)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(unix.Syncfs(int(folder.Fd())), folder.Close()); err != nil {
		s.t.Fatal(err)
	}
}

// writeFor lets clients write at nodes for a while, and returns the promises that they got.
func (s *shard) writeFor(while time.Duration, owner *party, name string, at ...int) []promise {
	s.t.Helper()
	stop := s.writers(owner, name, at...)
	<-time.After(while)
	return stop()
}

// waiting checks that nodes order nothing for a while, and give the reason why they wait. The
// reason must not advise to give up the nodes that are away. It returns the last reasons.
func (s *shard) waiting(while time.Duration, which ...int) (said map[int]string) {
	s.t.Helper()
	said = map[int]string{}
	for end := time.Now().Add(while); time.Now().Before(end); <-time.After(lookEvery) {
		s.alive(which...)
		for _, i := range which {
			state, err := s.state(i)
			if err != nil {
				continue // it does not serve yet
			}
			switch said[i] = state.GetReason(); {
			case state.GetMode() == ledgerdv1.NodeMode_NODE_MODE_ORDERING:
				s.t.Fatalf("node %d orders though too few disks remember: %v", i, state)
			case said[i] == "":
				s.t.Errorf("node %d waits and does not say why: %v", i, state)
			case strings.Contains(said[i], "stop all nodes"):
				s.t.Errorf("node %d does not wait for those that are away: %q", i, said[i])
			}
		}
	}
	for _, i := range which {
		s.t.Logf("node %d waits: %q", i, said[i])
		if said[i] == "" {
			s.t.Errorf("node %d did not answer within %v", i, while)
		}
	}
	return said
}

// waitingForOthers is like waiting, after the nodes have had the time to detect which members are
// away. The reasons must name these members.
func (s *shard) waitingForOthers(while time.Duration, which ...int) {
	s.t.Helper()
	for i, reason := range s.waiting(while, which...) {
		if err := namesAway(reason, which); err != nil {
			s.t.Errorf("node %d said after %v: %q: %v", i, while, reason, err)
		}
	}
}

// unreachable matches the members that a reason names as unreachable.
var unreachable = regexp.MustCompile(`members? ([0-9, ]+) unreachable`)

// namesAway checks that a reason names members as unreachable, and none that runs.
func namesAway(reason string, run []int) error {
	found := unreachable.FindStringSubmatch(reason)
	if found == nil {
		return errors.New("it names no member that is away")
	}
	for _, name := range strings.Split(found[1], ", ") {
		if member, err := strconv.Atoi(name); err != nil || slices.Contains(run, member) {
			return fmt.Errorf("member %s runs", name)
		}
	}
	return nil
}

// noneAside checks that no node has set blocks aside that hold a promise. A block above these may
// be set aside: the last write may have been on its way when the nodes were killed, so that only
// one of them stored its block.
func (s *shard) noneAside(promises []promise) {
	s.t.Helper()
	promised := uint64(0)
	for _, p := range promises {
		promised = max(promised, p.height)
	}
	if promised == 0 {
		s.t.Error("the promises name no block")
	}
	for i, h := range s.homes {
		for _, aside := range asideOf(s.t, h) {
			name := strings.TrimPrefix(aside, h.Data()+asideSuffix)
			head, _, _ := strings.Cut(name, "-")
			height, err := strconv.ParseUint(head, 10, 64)
			if err != nil || height <= promised {
				s.t.Errorf("node %d set a chain aside: %s, %v; block %d was durable", i, aside, err,
					promised)
			}
		}
	}
}

// asideSuffix begins what a node appends to the name of a data folder that it sets aside. The
// height of the folder's chain follows.
const asideSuffix = ".rolled-back-"

// asideOf returns the data folders that a node has set aside.
func asideOf(t *testing.T, h *home.Home) []string {
	t.Helper()
	folders, err := filepath.Glob(h.Data() + asideSuffix + "*")
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

// watchReady watches nodes until it is stopped. A node that reports that it is ready must order
// with at least the given number of members. A node that does not order must give a reason.
func (s *shard) watchReady(members int, which ...int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, i := range which {
		node, url := s.nodes[i], testnet.URL(s.homes[i])
		running.Go(func() {
			grouped := time.Now() // the last time when it was not ready, or had a group
			for ; ctx.Err() == nil; <-time.After(lookEvery) {
				state, err := node.Node(ctx)
				if err != nil {
					grouped = time.Now()
					continue // it does not run, or is paused
				}
				if err := reasonGiven(state); err != nil {
					s.t.Errorf("node %d: %v", i, err)
				}
				ready, err := askReady(ctx, url)
				after, asking := node.Node(ctx)
				orders := func(state *ledgerdv1.NodeState) bool {
					return state.GetMode() == ledgerdv1.NodeMode_NODE_MODE_ORDERING &&
						len(state.GetEngine().GetMembers()) >= members
				}
				if err != nil || asking != nil || !ready || orders(state) || orders(after) {
					grouped = time.Now()
				} else if time.Since(grouped) > beginning {
					s.t.Errorf("node %d says that it is ready; before: %v; after: %v", i, state,
						after)
				}
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

// reasonGiven checks that a node that does not order gives a reason.
func reasonGiven(state *ledgerdv1.NodeState) error {
	if state.GetMode() != ledgerdv1.NodeMode_NODE_MODE_ORDERING && state.GetReason() == "" {
		return fmt.Errorf("it does not order and does not say why: %v", state)
	}
	return nil
}

// askReady asks a node's /readyz. The status and the body have to agree.
func askReady(ctx context.Context, url string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return false, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err
	}
	var said struct{ Ready bool }
	err = errors.Join(json.NewDecoder(response.Body).Decode(&said), response.Body.Close())
	if err == nil && said.Ready != (response.StatusCode == http.StatusOK) {
		err = fmt.Errorf("ready %t with status %d", said.Ready, response.StatusCode)
	}
	return said.Ready, err
}
