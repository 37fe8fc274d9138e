package driver_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/node/detector"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// fabricVariable chooses the fabric between the processes; the default is p2p. processVariable
// makes the test binary one of the processes.
const (
	fabricVariable  = "LEDGERD_TEST_FABRIC"
	processVariable = "LEDGERD_TEST_SERVER_PROCESS"
)

// processTiming does not treat a process that waits on a busy machine as crashed. Processes that
// ended are noticed by their connections.
var processTiming = detector.Timing{Heartbeat: 100 * time.Millisecond, Timeout: patience,
	Grace: 5 * time.Second}

// processPace is the pause between two batches of a server.
const processPace = 4 * time.Millisecond

func init() {
	if os.Getenv(processVariable) == "" {
		return
	}
	if err := serveProcess(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "server process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// processOrder is an order to a server process; processNote is a note from it. Both are JSON, one a
// line.
type (
	processOrder struct {
		// The first order: the server's identity.
		Fabric  fabric.Kind
		Engine  string
		Self    order.ServerID
		Servers int
		// The second order: all servers' addresses.
		Members []processMember
		// The third order: no more batches.
		Finish bool
	}
	processMember struct {
		Peer    rdmanet.PeerID
		Address string
	}
	processNote struct {
		Member    *processMember  `json:",omitempty"`
		Broadcast []byte          `json:",omitempty"` // may be A-broadcast from now on
		Delivery  *order.Delivery `json:",omitempty"`
		Finished  bool            `json:",omitempty"` // no more batches
		Halted    string          `json:",omitempty"`
	}
)

// notes writes notes, whole lines at a time, so that the notes of a killed process can be read.
type notes struct {
	mu sync.Mutex
	to io.Writer
}

func (n *notes) write(note processNote) error {
	line, err := json.Marshal(note)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	_, err = n.to.Write(append(line, '\n'))
	return err
}

// Deliver implements driver.Sink.
func (n *notes) Deliver(_ context.Context, deliveries []order.Delivery) error {
	for i := range deliveries {
		if err := n.write(processNote{Delivery: &deliveries[i]}); err != nil {
			return err
		}
	}
	return nil
}

// TryDeliver implements driver.PromptSink. The test reads the notes at once.
func (n *notes) TryDeliver(deliveries []order.Delivery) (bool, error) {
	return true, n.Deliver(context.Background(), deliveries)
}

// serveProcess is one server. It makes batches until it is told to finish, and ends with its input.
func serveProcess(input io.Reader, output io.Writer) error {
	orders, out := json.NewDecoder(input), &notes{to: output}
	var who, where processOrder
	if err := orders.Decode(&who); err != nil {
		return err
	}
	key, err := p2p.NewIdentity(rand.Reader)
	if err != nil {
		return err
	}
	host, err := fabric.Open(who.Fabric, fabric.Options{Key: key, Listen: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	defer func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = host.Close(ended) // at once: the others end too, and wait for nothing under way
	}()
	if err := out.write(processNote{Member: &processMember{Peer: host.ID(),
		Address: host.Address()}}); err != nil {
		return err
	}
	if err := orders.Decode(&where); err != nil {
		return err
	}
	addresses, peers, members := map[rdmanet.PeerID]string{}, []rdmanet.PeerID{}, []order.ServerID{}
	for i, member := range where.Members {
		addresses[member.Peer] = member.Address
		peers, members = append(peers, member.Peer), append(members, order.ServerID(i))
	}
	if err := host.SetMembers(addresses); err != nil {
		return err
	}
	g, err := digraph.Reliable(who.Servers, digraph.Target{})
	if err != nil {
		return err
	}
	source, logger := newPool(), slog.New(slog.DiscardHandler)
	var failures *detector.Detector
	rounds, err := driver.New(driver.Config{
		Host: host, Self: who.Self, Peers: peers, Source: source, Sink: out,
		FrameRun: allconcur.FrameGeneration, Logger: logger,
		NewEngine: func(group driver.Group, place order.ServerID) (order.Broadcaster, error) {
			return allconcur.New(allconcur.Config{Engine: who.Engine, Self: place,
				Servers: len(group.Members), Reliable: g, Generation: group.Run,
				FirstRound: group.FirstRound, MaxPayload: 1024})
		},
		Lost: func(generation uint64, server order.ServerID, cause error) {
			failures.Lost(generation, server, cause)
		},
		Removed: func(generation uint64, servers []order.ServerID) {
			failures.Removed(generation, servers)
		},
		Halted: func(_ driver.Group, reason string) { _ = out.write(processNote{Halted: reason}) },
	})
	if err != nil {
		return err
	}
	defer rounds.Close()
	shared, err := wire.NewDatagrams(host, logger)
	if err != nil {
		return err
	}
	failures, err = detector.New(detector.Config{Host: host, Control: shared, Self: who.Self,
		Peers: peers, Suspect: rounds.Suspect, Trust: rounds.Trust, Timing: processTiming,
		Logger: logger})
	if err != nil {
		return err
	}
	defer failures.Close()
	if err := failures.Activate(detector.Group{Generation: 1, Members: members,
		Reliable: g}); err != nil {
		return err
	}
	if err := rounds.Activate(driver.Group{Run: 1, FirstRound: 1,
		Members: members}); err != nil {
		return err
	}
	finish := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() { makeBatches(who.Self, source, out, finish) })
	for {
		var next processOrder
		err := orders.Decode(&next)
		if err == nil && !next.Finish {
			continue
		}
		close(finish)
		working.Wait()
		if err == nil {
			_, err = io.Copy(io.Discard, input) // until the input ends
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
}

// makeBatches submits a batch whenever the last one was taken, and writes a note before.
func makeBatches(self order.ServerID, source *pool, out *notes, finish <-chan struct{}) {
	ticker := time.NewTicker(processPace)
	defer ticker.Stop()
	for number := 1; ; {
		select {
		case <-finish:
			_ = out.write(processNote{Finished: true}) // if it fails, the reader has gone
			return
		case <-ticker.C:
		}
		if source.waiting() > 0 {
			continue
		}
		payload := batch(int(self), number, 64)
		if out.write(processNote{Broadcast: payload}) != nil {
			return
		}
		source.submit(payload)
		number++
	}
}

// serverProcess is a server process as its parent sees it.
type serverProcess struct {
	command *exec.Cmd
	input   io.WriteCloser
	orders  *json.Encoder
	reading sync.WaitGroup

	mu         sync.Mutex
	member     *processMember
	broadcasts [][]byte
	deliveries []order.Delivery
	payloads   map[order.ServerID]int // delivered, by the server that A-broadcast them
	removed    []order.ServerID
	finished   bool
	halted     string
}

func startServerProcess(t *testing.T) *serverProcess {
	t.Helper()
	p := &serverProcess{command: exec.Command(os.Args[0]), payloads: map[order.ServerID]int{}}
	p.command.Env = append(os.Environ(), processVariable+"=1")
	p.command.Stderr = os.Stderr
	input, err := p.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	p.input, p.orders = input, json.NewEncoder(input)
	p.reading.Go(func() { p.read(output) })
	t.Cleanup(func() {
		_ = p.command.Process.Kill() // it may have ended
		p.reading.Wait()
		_ = p.command.Wait() // the same
	})
	return p
}

// read reads the process's notes. A line that was cut off by its end was never acted upon.
func (p *serverProcess) read(output io.Reader) {
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadBytes('\n')
		var note processNote
		if err != nil || json.Unmarshal(line, &note) != nil {
			return
		}
		p.mu.Lock()
		switch {
		case note.Member != nil:
			p.member = note.Member
		case note.Broadcast != nil:
			p.broadcasts = append(p.broadcasts, note.Broadcast)
		case note.Delivery != nil:
			p.deliveries = append(p.deliveries, *note.Delivery)
			p.removed = append(p.removed, note.Delivery.Removed...)
			for _, message := range note.Delivery.Messages {
				if len(message.Payload) > 0 {
					p.payloads[message.Origin]++
				}
			}
		case note.Finished:
			p.finished = true
		case note.Halted != "":
			p.halted = note.Halted
		}
		p.mu.Unlock()
	}
}

// awaitProcess waits for conditions that may take processes on an emulated machine long.
func awaitProcess(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", 3*patience, what)
		}
	}
}

// look evaluates a condition on a process's notes.
func (p *serverProcess) look(is func() bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return is()
}

func (p *serverProcess) tell(t *testing.T, o processOrder) {
	t.Helper()
	if err := p.orders.Encode(o); err != nil {
		t.Fatal(err)
	}
}

// Both engines run in processes of their own, over a fabric between processes. One process is
// killed. The property checker judges the A-broadcasts and A-deliveries.
func TestProcesses(t *testing.T) {
	t.Parallel()
	kind := fabric.P2P
	if name := os.Getenv(fabricVariable); name != "" {
		var err error
		if kind, err = fabric.Parse(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		engine  string
		servers int
	}{{allconcur.EngineAllConcurPlus, 5}, {allconcur.EngineAllConcur, 4}} {
		t.Run(fmt.Sprintf("%s, %d over %s", test.engine, test.servers, kind), func(t *testing.T) {
			processesAgree(t, kind, test.engine, test.servers)
		})
	}
}

// batchesBefore and batchesAfter are how many batches of each server must be A-delivered everywhere
// before a server is killed, and of each survivor after that.
const batchesBefore, batchesAfter = 15, 15

func processesAgree(t *testing.T, kind fabric.Kind, engine string, servers int) {
	processes := make([]*serverProcess, servers)
	defer func() {
		for i, p := range processes {
			if t.Failed() && p != nil {
				p.look(func() bool {
					t.Logf("server %d: %d batches made, %d rounds delivered with batches %v, "+
						"removed %v, halted %q", i, len(p.broadcasts), len(p.deliveries),
						p.payloads, p.removed, p.halted)
					return true
				})
			}
		}
	}()
	for i := range processes {
		processes[i] = startServerProcess(t)
		processes[i].tell(t, processOrder{Fabric: kind, Engine: engine, Self: order.ServerID(i),
			Servers: servers})
	}
	var members []processMember
	for i, p := range processes {
		awaitProcess(t, fmt.Sprintf("server %d says where it is", i), func() bool {
			return p.look(func() bool { return p.member != nil })
		})
		members = append(members, *p.member)
	}
	for _, p := range processes {
		p.tell(t, processOrder{Members: members})
	}
	delivered := func(at *serverProcess, from []int, atLeast int) bool {
		return at.look(func() bool {
			for _, i := range from {
				if at.payloads[order.ServerID(i)] < atLeast {
					return false
				}
			}
			return true
		})
	}
	var everyone, survivors []int
	victim := servers / 2
	for i := range processes {
		everyone = append(everyone, i)
		if i != victim {
			survivors = append(survivors, i)
		}
	}
	for _, i := range everyone {
		awaitProcess(t, fmt.Sprintf("server %d delivers all servers' batches", i), func() bool {
			return delivered(processes[i], everyone, batchesBefore)
		})
	}
	if err := processes[victim].command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, i := range survivors {
		p := processes[i]
		awaitProcess(t, fmt.Sprintf("server %d removes the killed one", i), func() bool {
			return p.look(func() bool { return slices.Contains(p.removed, order.ServerID(victim)) })
		})
	}
	for _, i := range survivors {
		p, now := processes[i], 0
		p.look(func() bool { now = p.payloads[order.ServerID(survivors[0])]; return true })
		awaitProcess(t, fmt.Sprintf("server %d delivers what came after", i), func() bool {
			return delivered(p, survivors[:1], now+batchesAfter)
		})
	}
	for _, i := range survivors {
		processes[i].tell(t, processOrder{Finish: true})
	}
	for _, i := range survivors {
		p := processes[i]
		awaitProcess(t, fmt.Sprintf("server %d finishes", i), func() bool {
			return p.look(func() bool { return p.finished })
		})
	}
	for _, i := range survivors {
		for _, from := range survivors {
			awaitProcess(t, fmt.Sprintf("server %d delivers all of server %d",
				i, from), func() bool {
				return delivered(processes[i], []int{from}, len(processes[from].broadcasts))
			})
		}
	}
	judgeProcesses(t, processes, victim)
}

// judgeProcesses passes everything that happened to the property checker. Nothing more of the
// killed server can come, since it was removed.
func judgeProcesses(t *testing.T, processes []*serverProcess, victim int) {
	t.Helper()
	for _, p := range processes {
		_ = p.input.Close() // the end of its input ends the process
	}
	for _, p := range processes {
		p.reading.Wait()
	}
	history, rounds := order.NewRoundHistory(len(processes)), 0
	for i, p := range processes {
		for _, payload := range p.broadcasts {
			history.Broadcast(order.ServerID(i), payload)
		}
	}
	history.Fail(order.ServerID(victim))
	for i, p := range processes {
		if i != victim && p.halted != "" {
			t.Errorf("server %d halted: %s", i, p.halted)
		}
		for _, delivery := range p.deliveries {
			if broken := history.Deliver(order.ServerID(i), delivery); broken != nil {
				t.Fatal(broken)
			}
		}
		rounds += len(p.deliveries)
	}
	for _, broken := range history.Judge(order.AtRest) {
		t.Error(broken)
	}
	t.Logf("%d rounds A-delivered, %d batches", rounds, len(processes[0].broadcasts)*len(processes))
}
