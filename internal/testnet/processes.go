package testnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/node/home"
)

const (
	// ReadyWord begins the line on standard output that a process writes once its API answers. The
	// API's address follows.
	ReadyWord = "ready "
	// LogFile is the file in a home that gets the output of the node's process.
	LogFile = "node.log"
)

const (
	// logBytesMax limits a log when its process starts. A larger log is set aside as node.log.1.
	logBytesMax  = 64 << 20
	firstTries   = 4 // of a process that never comes up
	steadyAfter  = time.Minute
	killAfter    = 20 * time.Second // the default of ProcessOptions.StopTime
	restartFirst = 500 * time.Millisecond
	restartMost  = 15 * time.Second
)

// ErrGaveUp means that a process does not come up.
var ErrGaveUp = errors.New("testnet: a node does not start")

// Event is an event of a process.
type Event struct {
	Node int
	Kind EventKind
	// Detail is the process's id, the API's address, the reason why it ended, or the line that it
	// wrote.
	Detail string
}

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	EventStarted EventKind = "started"
	EventReady   EventKind = "ready"
	EventEnded   EventKind = "ended"
	EventError   EventKind = "error"   // the process wrote a line of that level
	EventRemoved EventKind = "removed" // it ended for good: its node is no longer a member
	EventStopped EventKind = "stopped" // it ended because of Hold, and waits for Release
)

// ProcessOptions describes how to run the processes.
type ProcessOptions struct {
	// Command is the program and its first arguments; --home and the home's folder follow. The
	// program prints ReadyWord and its address once its API answers. It stops in good order when
	// its standard input ends or at SIGTERM. It exits with a status other than zero when it ends by
	// itself.
	Command []string
	// Environment is added to this process's environment.
	Environment []string
	// RemovedStatus is the exit status of a process whose node is no longer a member. Such a
	// process is not started again. 0 means that there is no such status.
	RemovedStatus int
	// Report receives the events, one call at a time. It may be nil.
	Report func(Event)
	// StopTime limits the time that a process may take to stop before it is killed. Default 20 s.
	StopTime time.Duration
	// Temporary means that the homes, with the logs in them, are removed after the end. Then no
	// error points to them.
	Temporary bool
	// RestartPause is the pause before the first restart. It doubles up to 15 s. Default 500 ms.
	RestartPause time.Duration
}

// Processes runs the nodes of a network as processes.
type Processes struct {
	options ProcessOptions
	cancel  context.CancelFunc
	members []*member
	running sync.WaitGroup
	done    chan struct{}

	mutex   sync.Mutex
	changed chan struct{} // closed and replaced when a member's state or err changes
	err     error
	report  sync.Mutex
}

// member is one node, with its process and the process's successors. The mutex of Processes guards
// the fields below home.
type member struct {
	index int
	home  *home.Home
	pid   int
	url   string // of the ready process; empty while there is none
	// removed is set once the node is no longer a member.
	removed bool
	// held is set while the node has to have no process. end stops the process that it has.
	held bool
	end  context.CancelFunc
}

// state returns the state of a node as commands see it.
func (m *member) state() NodeState {
	switch {
	case m.removed:
		return NodeRemoved
	case m.held && m.pid != 0:
		return NodeStopping
	case m.held:
		return NodeStopped
	case m.url != "":
		return NodeRunning
	}
	return NodeStarting
}

// Run starts a process for each home and returns at once. The processes run until Stop.
func Run(homes []*home.Home, options ProcessOptions) *Processes {
	if options.StopTime == 0 {
		options.StopTime = killAfter
	}
	if options.RestartPause == 0 {
		options.RestartPause = restartFirst
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Processes{options: options, cancel: cancel, done: make(chan struct{}),
		changed: make(chan struct{})}
	for i, h := range homes {
		p.members = append(p.members, &member{index: i, home: h})
	}
	for _, m := range p.members {
		p.running.Go(func() { p.supervise(ctx, m) })
	}
	go func() {
		p.running.Wait()
		close(p.done)
	}()
	return p
}

// Done is closed when no process is left: after Stop, when they were given up, or when all their
// nodes were removed.
func (p *Processes) Done() <-chan struct{} { return p.done }

// Err returns the reason why the processes were given up, with ErrGaveUp. It is nil before that.
func (p *Processes) Err() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.err
}

// URLs returns the addresses of the nodes' APIs. The address of a node that does not answer is
// empty.
func (p *Processes) URLs() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	urls := make([]string, len(p.members))
	for i, m := range p.members {
		urls[i] = m.url
	}
	return urls
}

// Removed reports for each node whether it is no longer a member. Such a node gets no process
// again.
func (p *Processes) Removed() []bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	removed := make([]bool, len(p.members))
	for i, m := range p.members {
		removed[i] = m.removed
	}
	return removed
}

// Hold asks a node's process to stop in good order, and starts none until Release. It returns at
// once.
func (p *Processes) Hold(node int) {
	p.change(func() {
		m := p.members[node]
		m.held = true
		if m.end != nil {
			m.end()
		}
	})
}

// Release starts a process again for a node that Hold stopped. It returns at once. If the process
// still stops, the next one starts after its end.
func (p *Processes) Release(node int) { p.change(func() { p.members[node].held = false }) }

// Held reports for each node whether Hold keeps it without a process.
func (p *Processes) Held() []bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	held := make([]bool, len(p.members))
	for i, m := range p.members {
		held[i] = m.held
	}
	return held
}

// PIDs returns the ids of the processes, 0 for a node without a process.
func (p *Processes) PIDs() []int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	ids := make([]int, len(p.members))
	for i, m := range p.members {
		ids[i] = m.pid
	}
	return ids
}

// Ready waits until the APIs of all nodes answer, except those of removed and held nodes. The error
// wraps ErrGaveUp, or is ctx's cause.
func (p *Processes) Ready(ctx context.Context) error {
	for {
		p.mutex.Lock()
		changed, err, ready := p.changed, p.err, true
		for _, m := range p.members {
			ready = ready && (m.url != "" || m.removed || m.held)
		}
		p.mutex.Unlock()
		if err != nil || ready {
			return err
		}
		select {
		case <-changed:
		case <-p.done:
			return errors.Join(p.Err(), context.Cause(ctx))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Stop asks all processes to stop in good order. It kills those that take longer than
// ProcessOptions.StopTime, or that still run when ctx ends. No process is left when it returns.
func (p *Processes) Stop(ctx context.Context) {
	p.cancel()
	select {
	case <-p.done:
		return
	case <-ctx.Done():
	}
	for _, pid := range p.PIDs() {
		if pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended just now
		}
	}
	<-p.done
}

// change modifies the state that Ready observes, and wakes Ready.
func (p *Processes) change(do func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	do()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Processes) tell(m *member, kind EventKind, format string, arguments ...any) {
	if p.options.Report == nil {
		return
	}
	p.report.Lock()
	defer p.report.Unlock()
	p.options.Report(Event{Node: m.index, Kind: kind, Detail: fmt.Sprintf(format, arguments...)})
}

// supervise runs a node's process, and starts it again when it ends, until ctx ends.
func (p *Processes) supervise(ctx context.Context, m *member) {
	pause := p.options.RestartPause
	everReady := false
	for tries := 1; ; tries++ {
		lifetime, allowed := p.awaitRelease(ctx, m)
		if !allowed {
			return
		}
		begun := time.Now()
		ready, last, err := p.life(lifetime, m)
		if ctx.Err() != nil {
			return
		}
		if ended := (*exec.ExitError)(nil); p.options.RemovedStatus != 0 &&
			errors.As(err, &ended) && ended.ExitCode() == p.options.RemovedStatus {
			p.change(func() { m.removed = true })
			p.tell(m, EventRemoved, "%s", last)
			return
		}
		everReady = everReady || ready
		if lifetime.Err() != nil { // Hold ended it, so this is no crash.
			tries, pause = 0, p.options.RestartPause
			continue
		}
		if ready && time.Since(begun) >= steadyAfter {
			pause = p.options.RestartPause
		}
		if !everReady && tries >= firstTries {
			p.change(func() {
				if p.err == nil {
					p.err = fmt.Errorf("%w: %s: %w; it said %q", ErrGaveUp, m.home.Name(), err,
						last)
					if !p.options.Temporary {
						p.err = fmt.Errorf("%w, more is in %s", p.err,
							filepath.Join(m.home.Dir, LogFile))
					}
				}
			})
			p.cancel()
			return
		}
		p.tell(m, EventEnded, "%v; it starts again in %v", err, pause)
		p.rest(lifetime, pause)
		pause = min(2*pause, restartMost)
	}
}

// awaitRelease waits while the node is held. It returns the context of the next process, which Hold
// cancels, and reports whether a process may start at all.
func (p *Processes) awaitRelease(ctx context.Context, m *member) (lifetime context.Context,
	allowed bool) {
	for told := false; ; {
		p.mutex.Lock()
		changed, held := p.changed, m.held
		if m.end != nil {
			m.end() // the last process has ended
		}
		lifetime, m.end = context.WithCancel(ctx)
		p.mutex.Unlock()
		if ctx.Err() != nil {
			return nil, false
		}
		if !held {
			return lifetime, true
		}
		if !told {
			p.tell(m, EventStopped, "")
			told = true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// rest waits for a pause, or until the context ends.
func (p *Processes) rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// life runs one process from its start to its end. It returns whether the process was ready, the
// last line that it wrote, and how it ended.
func (p *Processes) life(ctx context.Context, m *member) (ready bool, last string, err error) {
	log, err := openLog(filepath.Join(m.home.Dir, LogFile))
	if err != nil {
		return false, "", err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	output := &lines{log: log, line: func(line string) {
		last = line
		switch {
		case strings.HasPrefix(line, ReadyWord):
			ready = true
			url := strings.TrimSpace(strings.TrimPrefix(line, ReadyWord))
			p.change(func() { m.url = url })
			p.tell(m, EventReady, "%s", url)
		case strings.Contains(line, "level=ERROR") || strings.Contains(line, `"level":"ERROR"`):
			p.tell(m, EventError, "%s", line)
		}
	}}
	arguments := append(append([]string(nil), p.options.Command[1:]...), "--home", m.home.Dir)
	command := exec.Command(p.options.Command[0], arguments...)
	command.Env = append(os.Environ(), p.options.Environment...)
	command.Stdout, command.Stderr = output, output // the same writer, so that one goroutine writes
	command.WaitDelay = time.Second
	// Use a process group of its own. An interrupt at the terminal then reaches this process only,
	// which stops the others in good order.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := command.StdinPipe()
	if err != nil {
		return false, "", err
	}
	if err := command.Start(); err != nil {
		return false, "", err
	}
	p.change(func() { m.pid = command.Process.Pid })
	p.tell(m, EventStarted, "%d", command.Process.Pid)
	ended := make(chan struct{})
	var stopper sync.WaitGroup
	stopper.Go(func() { p.stopAtEnd(ctx, command.Process, input, ended) })
	err = command.Wait()
	close(ended)
	stopper.Wait()
	p.change(func() { m.pid, m.url = 0, "" })
	if err == nil {
		err = errors.New("exit status 0")
	}
	return ready, last, err
}

// stopAtEnd asks the process to stop when ctx ends, and kills it if it does not.
func (p *Processes) stopAtEnd(ctx context.Context, process *os.Process, input io.Closer,
	ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	_ = input.Close()                   // the process may have ended
	_ = process.Signal(syscall.SIGTERM) // as above
	timer := time.NewTimer(p.options.StopTime)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		_ = process.Kill() // as above
	}
}

// openLog opens a log for appending, after setting a large one aside.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > logBytesMax {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// lineMax limits how much of an unfinished line is kept.
const lineMax = 4096

// lines is a writer that writes to a log and passes on each line.
type lines struct {
	log  io.Writer
	line func(string)
	part []byte
}

// Write implements io.Writer. It never fails: a log that cannot be written does not stop the
// process whose log it is.
func (l *lines) Write(data []byte) (int, error) {
	_, _ = l.log.Write(data) // the node itself notices a full disk
	for _, b := range data {
		switch {
		case b == '\n':
			l.line(string(l.part))
			l.part = l.part[:0]
		case len(l.part) < lineMax:
			l.part = append(l.part, b)
		}
	}
	return len(data), nil
}
