package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
)

// Limits of Parameters.
const (
	ServersMax = 64
	BatchMax   = 1 << 20     // requests
	PayloadMax = 8 << 20     // bytes of a batch
	RateMax    = 1 << 20     // requests a second at a server
	DelayMax   = time.Second // how late a frame may come
)

// Errors of a run. Match them with errors.Is.
var (
	// ErrParameters means that Parameters are invalid. The error's text explains it.
	ErrParameters = errors.New("bench: bad parameters")
	// ErrDiverged means that two servers delivered different rounds, or two nodes different blocks.
	ErrDiverged = errors.New("bench: servers delivered different rounds")
	// ErrServer means that a server failed.
	ErrServer = errors.New("bench: a server failed")
)

// Engines lists the engines that Run measures. The production driver drives those that take frames,
// and the production poller the others.
func Engines() engine.List { return engine.All() }

// Parameters are the parameters of a run.
type Parameters struct {
	// Engine is the name of an engine of package engine.
	Engine string `json:"engine"`
	// Servers is n, 1 to ServersMax.
	Servers int `json:"servers"`
	// Batch is the number of requests that a server packs into a message. Size is their size in
	// bytes.
	Batch int `json:"batch"`
	Size  int `json:"size"`
	// Each has servers pack the requests of a message one after the other, each behind its length,
	// and hand over each delivered request by itself. Otherwise a message is one piece.
	Each bool `json:"each"`
	// Fabric is fabric.Memory, with all servers in this process, or another kind, with a process
	// for each server.
	Fabric fabric.Kind `json:"fabric"`
	// NoPoller has a goroutine of its own read each lane, as on systems without the poller of
	// package p2p. The memory and verbs fabrics have no poller.
	NoPoller bool `json:"no_poller"`
	// InFlight is the number of rounds in flight; 0 is 1.
	InFlight int `json:"in_flight"`
	// Trains is the number of trains of trains.EngineName; 0 is trains.TrainsDefault.
	Trains int `json:"trains,omitempty"`
	// Layout, unless it is "", has the wagons of trains.EngineName carry requests as the paper's
	// do, each behind a header of trains.AppendMessage, and delivers each by itself. It is the name
	// of a trains.Layout: of the frames.
	Layout string `json:"layout,omitempty"`
	// Rate, unless it is 0, is how many requests arrive at each server in a second, evenly. They
	// gather until the server may A-broadcast, and go in messages of up to Batch requests.
	Rate int `json:"rate"`
	// Delay is how late every frame comes, as over a long way.
	Delay time.Duration `json:"delay_ns"`
	// For is the length of the measured window.
	For time.Duration `json:"-"`
}

// Validate reports the first invalid parameter. The error wraps ErrParameters.
func (p Parameters) Validate() error {
	made, unknown := Engines().Of(p.Engine)
	switch {
	case unknown != nil:
		return fmt.Errorf("%w: %w", ErrParameters, unknown)
	case p.Engine == trains.EngineName && p.InFlight > 1:
		return fmt.Errorf("%w: the rounds in flight of %s are its trains; say how many trains",
			ErrParameters, p.Engine)
	case p.Trains != 0 && p.Engine != trains.EngineName:
		return fmt.Errorf("%w: only %s has trains", ErrParameters, trains.EngineName)
	case p.Trains < 0 || p.Trains > trains.TrainsMax:
		return fmt.Errorf("%w: %d trains, want 1 to %d", ErrParameters, p.Trains, trains.TrainsMax)
	case p.Layout != "" && p.Engine != trains.EngineName:
		return fmt.Errorf("%w: only %s has a layout", ErrParameters, trains.EngineName)
	case p.Servers < 1 || p.Servers > ServersMax:
		return fmt.Errorf("%w: %d servers, want 1 to %d", ErrParameters, p.Servers, ServersMax)
	case p.Batch < 1 || p.Batch > BatchMax:
		return fmt.Errorf("%w: batches of %d requests, want 1 to %d", ErrParameters, p.Batch,
			BatchMax)
	case p.Size < 1 || p.Size > PayloadMax/p.Batch || p.payload() > PayloadMax:
		return fmt.Errorf("%w: %d requests of %d bytes, want at least 1 byte each and at most "+
			"%d bytes a batch", ErrParameters, p.Batch, p.Size, PayloadMax)
	case p.For <= 0:
		return fmt.Errorf("%w: a run for %v", ErrParameters, p.For)
	case p.InFlight < 0 || p.InFlight > made.InFlightMax:
		return fmt.Errorf("%w: %d rounds in flight, want 1 to %d", ErrParameters, p.InFlight,
			made.InFlightMax)
	case p.Rate < 0 || p.Rate > RateMax:
		return fmt.Errorf("%w: %d requests a second at each server, want at most %d, or 0 for as "+
			"many as possible", ErrParameters, p.Rate, RateMax)
	case p.Delay > 0 && !made.TakesFrames():
		return fmt.Errorf("%w: %s sends no frames that could be late; leave the delay out",
			ErrParameters, p.Engine)
	case p.Delay < 0 || p.Delay > DelayMax:
		return fmt.Errorf("%w: a delay of %v, want at most %v", ErrParameters, p.Delay, DelayMax)
	case p.NoPoller && (p.Fabric == fabric.Memory || p.Fabric == fabric.Verbs):
		return fmt.Errorf("%w: %s has no poller to leave out; p2p has one", ErrParameters, p.Fabric)
	}
	if _, err := p.layout(); err != nil {
		return fmt.Errorf("%w: %w", ErrParameters, err)
	}
	return checkFabric(p.Fabric)
}

// layout returns the layout of frames of trains.
func (p Parameters) layout() (trains.Layout, error) {
	if p.Layout == "" {
		return trains.LayoutHouse, nil
	}
	return trains.LayoutNamed(p.Layout)
}

// payload returns the bytes of a message's payload.
func (p Parameters) payload() int { return p.Batch * (p.lengthBytes() + p.Size) }

// lengthBytes returns the bytes of a request's length in a message, or of its header.
func (p Parameters) lengthBytes() int {
	switch {
	case p.Layout != "":
		return len(trains.AppendMessage(nil, wagonRequest, nil))
	case !p.Each:
		return 0
	}
	return len(binary.AppendUvarint(nil, uint64(p.Size)))
}

// checkFabric reports an unknown kind of fabric, or what the kind needs and this machine lacks.
func checkFabric(kind fabric.Kind) error {
	if err := fabric.Check(kind); err != nil && !errors.Is(err, fabric.ErrOneProcess) {
		return fmt.Errorf("%w: %w", ErrParameters, err)
	}
	return nil
}

// Result is the result of a run. The package comment explains the figures.
type Result struct {
	Parameters
	Seconds           float64 `json:"seconds"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	GbitPerSecond     float64 `json:"gbit_per_second"`
	LatencyP50        float64 `json:"latency_p50_us"`
	LatencyP99        float64 `json:"latency_p99_us"`
	CPUSeconds        float64 `json:"cpu_seconds"`
	WireBytesPerByte  float64 `json:"wire_bytes_per_byte"`
	// POTE is the throughput efficiency that the paper on TRAINS computes, in hundredths: bytes of
	// requests divided by bytes on a lane to each server but their origin [TRAINS, section V-A]. It
	// is nil if there is one server.
	POTE *float64 `json:"pote_percent"`
	// RoundsPerSecond is the number of rounds that server 0 delivered in one second.
	RoundsPerSecond float64 `json:"rounds_per_second"`
	// CPUPerFrame is the processor time of a frame on a lane, in microseconds. It is nil if there
	// were no frames.
	CPUPerFrame *float64 `json:"cpu_us_per_frame"`
	// SystemCallsPerMessage is nil if the system does not count system calls for this process.
	// SystemCallsUncounted then says why. ReadsAndWritesPerMessage is nil if it does not count
	// calls that read and write.
	SystemCallsPerMessage    *float64 `json:"syscalls_per_message"`
	SystemCallsUncounted     string   `json:"syscalls_uncounted,omitempty"`
	ReadsAndWritesPerMessage *float64 `json:"reads_and_writes_per_message"`
	SwitchesPerMessage       float64  `json:"switches_per_message"`
	// Hashed says what was hashed of the deliveries: HashedSample.
	Hashed string `json:"hashed"`
	// ComparedRound is the round up to which all servers' deliveries were compared.
	ComparedRound order.Round `json:"compared_round"`
}

// HashedSample means that servers hash the round, the removed servers, the origins, the payloads'
// lengths and their first bytes, and whole payloads in a few rounds only.
const HashedSample = "sample"

// report is one server's report at the end of a run.
type report struct {
	Window     Window   `json:"window"`
	Payload    uint64   `json:"payload"`
	Rounds     uint64   `json:"rounds"`
	BytesSent  uint64   `json:"bytes_sent"`
	FramesSent uint64   `json:"frames_sent"`
	Prefixes   []Prefix `json:"prefixes"`
	Halted     string   `json:"halted"`
}

// combine computes the result from all servers' reports and from what their processes used.
func combine(p Parameters, reports []report, used use, counted calls) (Result, error) {
	for server, r := range reports {
		if r.Halted != "" {
			return Result{}, fmt.Errorf("%w: server %d halted: %s", ErrServer, server, r.Halted)
		}
	}
	compared, err := compare(reports)
	if err != nil {
		return Result{}, err
	}
	var latency Histogram
	sent, messages, frames := uint64(0), uint64(0), 0.0
	for _, r := range reports {
		latency.Merge(r.Window.Latency)
		sent += r.BytesSent
		messages += r.Window.Messages
		// All rounds of a run without failures need the same frames.
		frames += float64(r.FramesSent) / float64(r.Rounds) * float64(r.Window.Rounds)
	}
	first := reports[0]
	if first.Window.Requests == 0 {
		return Result{}, fmt.Errorf("%w: nothing was delivered in %.3f s; measure for longer",
			ErrServer, first.Window.Seconds)
	}
	// On a busy machine the few batches delivered in a short window all began before it.
	if latency.total() == 0 {
		return Result{}, fmt.Errorf("%w: no batch began and was delivered within %.3f s; "+
			"measure for longer", ErrServer, first.Window.Seconds)
	}
	result := Result{
		Parameters:        p,
		Seconds:           first.Window.Seconds,
		RequestsPerSecond: float64(first.Window.Requests) / first.Window.Seconds,
		GbitPerSecond:     float64(first.Window.Bytes) * 8 / 1e9 / first.Window.Seconds,
		LatencyP50:        float64(latency.Quantile(0.50)) / 1e3,
		LatencyP99:        float64(latency.Quantile(0.99)) / 1e3,
		CPUSeconds:        used.CPU.Seconds(),
		WireBytesPerByte:  float64(sent) / float64(first.Payload),
		RoundsPerSecond:   float64(first.Window.Rounds) / first.Window.Seconds,
		Hashed:            HashedSample,
		ComparedRound:     compared,
	}
	if sent > 0 {
		pote := 100 * float64(p.Servers-1) / result.WireBytesPerByte
		result.POTE = &pote
	}
	if frames > 0 {
		perFrame := float64(used.CPU.Microseconds()) / frames
		result.CPUPerFrame = &perFrame
	}
	result.SwitchesPerMessage = float64(used.Switches) / float64(messages)
	if used.ReadsAndWrites != nil {
		perMessage := float64(*used.ReadsAndWrites) / float64(messages)
		result.ReadsAndWritesPerMessage = &perMessage
	}
	switch {
	case counted.Uncounted != "":
		result.SystemCallsUncounted = counted.Uncounted
	case counted.Messages == 0:
		result.SystemCallsUncounted = "nothing was delivered while they were counted"
	default:
		perMessage := float64(counted.SystemCalls) / float64(counted.Messages)
		result.SystemCallsPerMessage = &perMessage
	}
	return result, nil
}

// compare checks the servers' hashes at the last round that all of them delivered, and returns that
// round.
func compare(reports []report) (order.Round, error) {
	last := make([]order.Round, len(reports))
	for server, r := range reports {
		for _, prefix := range r.Prefixes {
			last[server] = max(last[server], prefix.Round)
		}
	}
	common := last[0]
	for _, round := range last {
		common = min(common, round)
	}
	if common == 0 {
		return 0, fmt.Errorf("%w: a server delivered nothing; last rounds %v", ErrServer, last)
	}
	var want Prefix
	for server, r := range reports {
		found := false
		for _, prefix := range r.Prefixes {
			if prefix.Round != common {
				continue
			}
			found = true
			if server == 0 {
				want = prefix
			}
			if prefix != want {
				return 0, fmt.Errorf("%w: up to round %d, server %d has hash %016x and server 0 "+
					"has %016x", ErrDiverged, common, server, prefix.Hash, want.Hash)
			}
		}
		if !found {
			return 0,
				fmt.Errorf("%w: server %d no longer knows its hash at round %d; last rounds %v",
					ErrDiverged, server, common, last)
		}
	}
	return common, nil
}

// reliableDigraph returns G_R for a run, the same as in a shard of that size.
func reliableDigraph(servers int) (*digraph.Digraph, error) {
	return digraph.Reliable(servers, digraph.Target{})
}
