package testnet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/node/home"
)

const (
	// lockFile is the file in a network's folder that its runner locks.
	lockFile = "testnet.lock"
	// stateFile is the file in a network's folder with the runner's RunStatus.
	stateFile = "testnet.json"
	// stopFile is the file in a home that asks the runner to keep the node stopped.
	stopFile = "stop"
)

const (
	// requestPause is the pause between two looks for requests.
	requestPause = 100 * time.Millisecond
	// lockPatience limits how long Take waits for the lock. Status holds it for a moment.
	lockPatience = time.Second
)

// Errors of a runner. Match them with errors.Is.
var (
	// ErrNotRunning means that no process runs the nodes of a network.
	ErrNotRunning = errors.New("testnet: not running")
	// ErrRunning means that another process runs the nodes of a network.
	ErrRunning = errors.New("testnet: running already")
)

// NodeState is the state of a node that a runner runs.
type NodeState string

// The states of a node.
const (
	NodeStarting NodeState = "starting" // it has a process or will get one, and does not answer
	NodeRunning  NodeState = "running"  // its API answers
	NodeStopping NodeState = "stopping" // its process was asked to stop
	NodeStopped  NodeState = "stopped"  // it has no process until a request for one
	NodeRemoved  NodeState = "removed"  // it is no longer a member, and gets no process
)

// RunStatus is the state of a network that a runner runs.
type RunStatus struct {
	Process int          `json:"process"` // of the runner
	Shards  int          `json:"shards"`
	Nodes   []NodeStatus `json:"nodes"`
}

// NodeStatus is the state of a node in a RunStatus.
type NodeStatus struct {
	Name    string    `json:"name"`
	Shard   uint32    `json:"shard"`
	State   NodeState `json:"state"`
	Process int       `json:"process,omitempty"` // 0 without a process
	API     string    `json:"api,omitempty"`     // empty unless it answers
}

// Runner is the right to run the nodes of a network.
type Runner struct {
	dir     string
	homes   []*home.Home
	lock    *os.File
	serving sync.WaitGroup
	cancel  context.CancelFunc
}

// Take takes the right to run the nodes of the network in a folder. It removes what an earlier
// runner left: its states, and requests to stop nodes. The error wraps ErrRunning if another runner
// has that right.
func Take(dir string, homes []*home.Home) (*Runner, error) {
	r := &Runner{dir: dir, homes: homes, cancel: func() {}}
	var err error
	for end := time.Now().Add(lockPatience); ; time.Sleep(requestPause / 10) {
		if r.lock, err = tryLock(dir, syscall.LOCK_EX); err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%w: another process runs the nodes of %s", ErrRunning, dir)
		}
	}
	left := []string{filepath.Join(dir, stateFile)}
	for _, h := range homes {
		left = append(left, filepath.Join(h.Dir, stopFile))
	}
	for _, path := range left {
		if err := removeIfThere(path); err != nil {
			return nil, errors.Join(err, r.lock.Close())
		}
	}
	return r, nil
}

// Serve does what Request asks for, and publishes the states of the processes, until Close or until
// ctx ends. It returns at once.
func (r *Runner) Serve(ctx context.Context, processes *Processes) {
	ctx, r.cancel = context.WithCancel(ctx)
	r.serving.Go(func() { r.serve(ctx, processes) })
}

func (r *Runner) serve(ctx context.Context, processes *Processes) {
	ticker := time.NewTicker(requestPause)
	defer ticker.Stop()
	var published []byte
	for {
		for i, held := range processes.Held() {
			_, err := os.Lstat(filepath.Join(r.homes[i].Dir, stopFile))
			switch {
			case err == nil && !held:
				processes.Hold(i)
			case errors.Is(err, fs.ErrNotExist) && held:
				processes.Release(i)
			}
		}
		status, changed := r.status(processes)
		content, err := json.Marshal(status)
		// A write that fails, for example on a full disk, is tried again at the next look.
		if err == nil && !bytes.Equal(content, published) &&
			replaceFile(filepath.Join(r.dir, stateFile), content) == nil {
			published = content
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-ticker.C:
		}
	}
}

// status returns the states of the processes, and a channel that is closed when they change.
func (r *Runner) status(processes *Processes) (RunStatus, <-chan struct{}) {
	status := RunStatus{Process: os.Getpid(), Shards: len(shards(r.homes[0].Genesis))}
	processes.mutex.Lock()
	defer processes.mutex.Unlock()
	for _, m := range processes.members {
		status.Nodes = append(status.Nodes, NodeStatus{Name: filepath.Base(m.home.Dir),
			Shard: uint32(m.home.Genesis.Shard), State: m.state(), Process: m.pid, API: m.url})
	}
	return status, processes.changed
}

// Close gives the right back. It removes the published states.
func (r *Runner) Close() error {
	r.cancel()
	r.serving.Wait()
	return errors.Join(removeIfThere(filepath.Join(r.dir, stateFile)),
		syscall.Flock(int(r.lock.Fd()), syscall.LOCK_UN), r.lock.Close())
}

// Status returns the state of the network in a folder, as its runner published it. The error wraps
// ErrForeign if there is no network, and ErrNotRunning if nobody runs its nodes.
func Status(dir string) (RunStatus, error) {
	if !Exists(dir) {
		return RunStatus{}, fmt.Errorf("%w: %s holds no node's home", ErrForeign, dir)
	}
	lock, err := tryLock(dir, syscall.LOCK_SH)
	if err == nil {
		err = errors.Join(fmt.Errorf("%w: no process runs the nodes of %s", ErrNotRunning, dir),
			syscall.Flock(int(lock.Fd()), syscall.LOCK_UN), lock.Close())
		return RunStatus{}, err
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return RunStatus{}, err
	}
	// A new runner publishes its states a moment after it took the lock.
	var status RunStatus
	for end := time.Now().Add(lockPatience); ; time.Sleep(requestPause / 10) {
		content, err := os.ReadFile(filepath.Join(dir, stateFile))
		if err == nil {
			err = json.Unmarshal(content, &status)
			return status, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return status, err
		}
		if time.Now().After(end) {
			return status, fmt.Errorf("%w: the nodes of %s start or end just now", ErrNotRunning,
				dir)
		}
	}
}

// Request asks the runner to stop a node (NodeStopped), or to start it again (NodeRunning). It
// returns at once: Status shows the progress. A request holds until the opposite one, or until the
// runner ends.
func Request(dir, name string, state NodeState) error {
	path := filepath.Join(dir, name, stopFile)
	if state == NodeRunning {
		return removeIfThere(path)
	}
	return os.WriteFile(path, []byte("ledgerd testnet keeps this node stopped\n"), 0o644)
}

// tryLock locks a network's folder, or fails at once with EWOULDBLOCK.
func tryLock(dir string, how int) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
	}
	return file, nil
}

// replaceFile replaces a file so that readers see the old content or the new one.
func replaceFile(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
