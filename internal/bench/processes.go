package bench

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
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// answerTimeout limits the time that a server process may take for a step.
const answerTimeout = 30 * time.Second

// The conversation is one JSON object on each line. The measuring process sends instructions, the
// server process answers.
type (
	// instruction is sent to a server process. The first describes the run, the second the members.
	instruction struct {
		Step       step        `json:"step"`
		Parameters *Parameters `json:"parameters,omitempty"`
		Self       int         `json:"self,omitempty"`
		Members    []member    `json:"members,omitempty"`
	}
	// answer comes from a server process.
	answer struct {
		Error  string  `json:"error,omitempty"`
		Member *member `json:"member,omitempty"`
		Report *report `json:"report,omitempty"`
		// Use is what the process used within the window. Calls are the system calls after it.
		Use   use   `json:"use,omitzero"`
		Calls calls `json:"calls,omitzero"`
	}
	member struct {
		Peer    rdmanet.Peer `json:"peer"`
		Address string       `json:"address"`
	}
)

// step is an instruction to a server process.
type step string

const (
	stepListen   step = "listen"   // open a host, answer with its identity and address
	stepActivate step = "activate" // set the members, run the engine
	stepStart    step = "start"    // make batches
	stepRun      step = "run"      // answer after the first delivered round
	stepBegin    step = "begin"    // open the window
	stepEnd      step = "end"      // close the window
	stepCount    step = "count"    // count system calls from now on
	stepCounted  step = "counted"  // stop counting, and make no more batches
	stepReport   step = "report"   // stop the rounds, answer with the report
)

// process is a server process, as the measuring process sees it.
type process struct {
	command *exec.Cmd
	input   io.WriteCloser
	encoder *json.Encoder
	answers chan answer // closed at the end of the process's output
	reader  sync.WaitGroup
}

// runProcesses runs every server as a process of its own. command is the program, which must call
// Serve, and its arguments.
func runProcesses(ctx context.Context, p Parameters, command []string,
	logger *slog.Logger) (result Result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	processes := make([]*process, 0, p.Servers)
	defer func() {
		if err != nil {
			cancel() // kills the processes
		}
		for _, process := range processes {
			err = errors.Join(err, process.end(err != nil))
		}
		cancel()
	}()
	for range p.Servers {
		process, err := startProcess(ctx, command)
		if err != nil {
			return Result{}, err
		}
		processes = append(processes, process)
	}
	logger.Debug("server processes run", "servers", p.Servers)
	return measure(ctx, p, processes)
}

// measure leads the processes through a run.
func measure(ctx context.Context, p Parameters, processes []*process) (Result, error) {
	describe := func(server int) instruction {
		return instruction{Step: stepListen, Parameters: &p, Self: server}
	}
	listening, err := askAll(ctx, processes, describe)
	if err != nil {
		return Result{}, err
	}
	members := make([]member, len(listening))
	for i, answer := range listening {
		if answer.Member == nil {
			return Result{}, fmt.Errorf("%w: server %d does not say where it listens", ErrServer, i)
		}
		members[i] = *answer.Member
	}
	say := func(s step) error {
		_, err := askAll(ctx, processes, func(int) instruction { return instruction{Step: s} })
		return err
	}
	if _, err := askAll(ctx, processes, func(int) instruction {
		return instruction{Step: stepActivate, Members: members}
	}); err != nil {
		return Result{}, err
	}
	for _, next := range []struct {
		step step
		then time.Duration
	}{{stepStart, 0}, {stepRun, warmUp(p.For)}, {stepBegin, p.For}, {stepEnd, 0},
		{stepCount, countingTime(p.For)}, {stepCounted, 0}} {
		if err := say(next.step); err != nil {
			return Result{}, err
		}
		if err := pause(ctx, next.then); err != nil {
			return Result{}, err
		}
	}
	answers, err := askAll(ctx, processes, func(int) instruction {
		return instruction{Step: stepReport}
	})
	if err != nil {
		return Result{}, err
	}
	reports := make([]report, len(answers))
	used, counted := answers[0].Use, answers[0].Calls
	for i, answer := range answers {
		if answer.Report == nil {
			return Result{}, fmt.Errorf("%w: server %d does not report", ErrServer, i)
		}
		reports[i] = *answer.Report
		if i > 0 {
			used, counted = used.plus(answer.Use), counted.plus(answer.Calls)
		}
	}
	return combine(p, reports, used, counted)
}

// askAll sends an instruction to every process first, and then waits for all answers.
func askAll(ctx context.Context, processes []*process, what func(server int) instruction) ([]answer,
	error) {
	for i, process := range processes {
		if err := process.encoder.Encode(what(i)); err != nil {
			return nil, fmt.Errorf("%w: server %d: %w", ErrServer, i, err)
		}
	}
	timeout := time.NewTimer(answerTimeout)
	defer timeout.Stop()
	answers := make([]answer, len(processes))
	for i, process := range processes {
		select {
		case answer, ok := <-process.answers:
			switch {
			case !ok:
				return nil, fmt.Errorf("%w: server %d ended", ErrServer, i)
			case answer.Error != "":
				return nil, fmt.Errorf("%w: server %d: %s", ErrServer, i, answer.Error)
			}
			answers[i] = answer
		case <-timeout.C:
			return nil, fmt.Errorf("%w: server %d does not answer within %v", ErrServer,
				i, answerTimeout)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return answers, nil
}

func startProcess(ctx context.Context, command []string) (*process, error) {
	p := &process{command: exec.CommandContext(ctx, command[0], command[1:]...),
		answers: make(chan answer)}
	p.command.Stderr = os.Stderr
	p.command.WaitDelay = time.Second
	input, err := p.command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("bench: server process: %w", err)
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("bench: server process: %w", err)
	}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("bench: server process: %w", err)
	}
	p.input, p.encoder = input, json.NewEncoder(input)
	p.reader.Go(func() {
		defer close(p.answers)
		decoder := json.NewDecoder(bufio.NewReader(output))
		for {
			var next answer
			if decoder.Decode(&next) != nil {
				return // the process's exit status explains more
			}
			select {
			case p.answers <- next:
			case <-ctx.Done():
				return
			}
		}
	})
	return p, nil
}

// end closes the process's input, at whose end the process ends, and waits for it.
func (p *process) end(killed bool) error {
	_ = p.input.Close() // the process may be gone
	p.reader.Wait()
	if err := p.command.Wait(); err != nil && !killed {
		return fmt.Errorf("%w: %w", ErrServer, err)
	}
	return nil
}

// Serve runs a server process. It follows the instructions on input, answers on output, and returns
// when input ends.
func Serve(ctx context.Context, input io.Reader, output io.Writer, logger *slog.Logger) error {
	s := &serving{logger: logger}
	defer s.close()
	decoder, encoder := json.NewDecoder(input), json.NewEncoder(output)
	for {
		var next instruction
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("bench: instruction: %w", err)
		}
		reply, err := s.follow(ctx, next)
		if err != nil {
			reply = answer{Error: err.Error()}
		}
		if err := encoder.Encode(reply); err != nil {
			return fmt.Errorf("bench: answer: %w", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// serving is the state of a server process.
type serving struct {
	logger     *slog.Logger
	parameters Parameters
	self       order.ServerID
	host       fabric.Host
	server     *server
	window     Window
	before     use // when the window began
	used       use
	counting   *callCounting
	counted    calls
}

// follow executes one instruction.
func (s *serving) follow(ctx context.Context, next instruction) (reply answer, err error) {
	if wrong := next.Step == stepListen && (s.host != nil || next.Parameters == nil) ||
		next.Step == stepActivate && (s.host == nil || s.server != nil) ||
		next.Step != stepListen && next.Step != stepActivate && s.server == nil; wrong {
		return answer{}, fmt.Errorf("bench: instruction %q makes no sense now", next.Step)
	}
	switch next.Step {
	case stepListen:
		return s.listen(*next.Parameters, next.Self)
	case stepActivate:
		return answer{}, s.activate(next.Members)
	case stepStart:
		s.server.workload.start()
	case stepRun:
		err = s.server.workload.running(ctx)
	case stepBegin:
		s.server.workload.begin()
		s.before, err = processUse()
	case stepEnd:
		s.window = s.server.workload.end()
		s.used, err = processUse()
		s.used = s.used.since(s.before)
	case stepCount:
		err = s.counting.close()
		s.counting = beginCalls(s.server.workload.messages)
	case stepCounted:
		s.counted = s.counting.end()
		s.counting = nil
		s.server.workload.stop()
	case stepReport:
		report := s.server.report(s.window)
		return answer{Report: &report, Use: s.used, Calls: s.counted}, nil
	default:
		return answer{}, fmt.Errorf("bench: instruction %q is not known", next.Step)
	}
	return answer{}, err
}

func (s *serving) listen(p Parameters, self int) (answer, error) {
	p.For = time.Second // valid; the measuring process knows the length
	if err := p.Validate(); err != nil {
		return answer{}, err
	}
	if self < 0 || self >= p.Servers {
		return answer{}, fmt.Errorf("%w: server %d of %d", ErrParameters, self, p.Servers)
	}
	key, err := p2p.NewIdentity(rand.Reader)
	if err != nil {
		return answer{}, err
	}
	host, err := fabric.Open(p.Fabric, fabric.Options{Key: key, Listen: "127.0.0.1:0",
		NoPoller: p.NoPoller})
	if err != nil {
		return answer{}, err
	}
	s.host, s.parameters, s.self = host, p, order.ServerID(self)
	return answer{Member: &member{Address: host.Address(),
		Peer: rdmanet.Peer{ID: host.ID(), Incarnation: host.Incarnation()}}}, nil
}

func (s *serving) activate(members []member) error {
	addresses := make(map[rdmanet.PeerID]string, len(members))
	peers := make([]rdmanet.Peer, len(members))
	for i, member := range members {
		addresses[member.Peer.ID] = member.Address
		peers[i] = member.Peer
	}
	if err := s.host.SetMembers(addresses); err != nil {
		return err
	}
	server, err := newServer(s.parameters, s.host, s.self, peers, s.logger)
	if err != nil {
		return err
	}
	s.server = server
	return server.ordering.start()
}

func (s *serving) close() {
	err := s.counting.close()
	switch {
	case s.server != nil:
		err = errors.Join(err, s.server.close())
	case s.host != nil:
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = errors.Join(err, s.host.Close(ctx))
	}
	if err != nil {
		s.logger.Warn("server process does not close in order", "error", err)
	}
}
