package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// FabricResult holds the figures between two hosts of a fabric. Times are in microseconds.
type FabricResult struct {
	Fabric  fabric.Kind `json:"fabric"`
	Seconds float64     `json:"seconds"`
	Lanes   LaneResult  `json:"lanes"`
	// Regions is nil if the fabric has none.
	Regions *RegionResult `json:"regions,omitempty"`
}

// LaneResult holds the figures of lanes: 64 bytes there and back, frames of 64 bytes one way, and
// frames of 64 KiB one way, in payload bytes.
type LaneResult struct {
	RoundTripP50    float64 `json:"round_trip_us_p50"`
	RoundTripP99    float64 `json:"round_trip_us_p99"`
	FramesPerSecond float64 `json:"frames_per_second"`
	BytesPerSecond  float64 `json:"bytes_per_second"`
}

// RegionResult holds the figures of one-sided memory: a write and a read of 64 bytes from posting
// to completion, one after the other; and operations of 64 KiB with several outstanding.
type RegionResult struct {
	WriteP50            float64 `json:"write_us_p50"`
	WriteP99            float64 `json:"write_us_p99"`
	ReadP50             float64 `json:"read_us_p50"`
	ReadP99             float64 `json:"read_us_p99"`
	WriteBytesPerSecond float64 `json:"write_bytes_per_second"`
	ReadBytesPerSecond  float64 `json:"read_bytes_per_second"`
}

const (
	askLane    = "measure"        // to the answering side
	answerLane = "measure-answer" // and back
	regionName = "measure"

	smallBytes = 64
	largeBytes = 64 << 10
	// framesPerCall is the number of small frames in one call.
	framesPerCall = 64
	// writesOutstanding is the number of outstanding large writes or reads.
	writesOutstanding = 16
	regionBytes       = writesOutstanding * largeBytes
	// A stream asks the other side for its progress after every sendsTogether calls. At most
	// groupsAhead answers may be outstanding, so that a slow fabric is not flooded.
	sendsTogether = 16
	groupsAhead   = 8
	// fabricAnswerTime limits how long the other side may take to answer.
	fabricAnswerTime = 30 * time.Second
)

// The first byte of a frame on askLane is the kind of request.
const (
	wantEcho   = 'e' // send the frame back
	wantNone   = 'n' // send nothing: only count the frame
	wantCount  = 'c' // send the number of bytes and of frames counted
	wantRegion = 'r' // expose a region and grant access; the answer is empty or an error
	wantEnd    = 'x' // the end of the measurement
)

// FabricAnswerer is the side of a measurement that only answers.
type FabricAnswerer struct {
	host   rdmanet.Host
	bytes  atomic.Uint64
	frames atomic.Uint64
	ended  chan struct{}
	once   sync.Once
	region rdmanet.Region // used by the receiving goroutine only
}

// frameLender is a host that can lend frames instead of giving them away. Lent frames take no new
// memory, and this side of a measurement keeps none. The figures are then those of the fabric
// alone, like reading from TCP into one buffer.
type frameLender interface {
	ReceiveLent(lane string, receive rdmanet.ReceiveFunc) error
}

// AnswerFabric answers measuring peers on a host, until the host is closed.
func AnswerFabric(host rdmanet.Host) (*FabricAnswerer, error) {
	a := &FabricAnswerer{host: host, ended: make(chan struct{})}
	register := host.Receive
	if lender, can := host.(frameLender); can {
		register = lender.ReceiveLent
	}
	if err := register(askLane, a.receive); err != nil {
		return nil, fmt.Errorf("bench: fabric: %w", err)
	}
	return a, nil
}

// Ended is closed when the measuring side has finished.
func (a *FabricAnswerer) Ended() <-chan struct{} { return a.ended }

func (a *FabricAnswerer) receive(from rdmanet.Peer, frames [][]byte) {
	for _, frame := range frames {
		if len(frame) == 0 {
			continue
		}
		switch frame[0] {
		case wantEcho:
			a.answer(from, slices.Clone(frame)) // the frame may be lent
		case wantNone:
			a.bytes.Add(uint64(len(frame)))
			a.frames.Add(1)
		case wantCount:
			a.answer(from, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil,
				a.bytes.Load()), a.frames.Load()))
		case wantRegion:
			reason := ""
			if err := a.open(from); err != nil {
				reason = err.Error()
			}
			a.answer(from, []byte(reason))
		case wantEnd:
			a.once.Do(func() { close(a.ended) })
		}
	}
}

// answer sends a frame back. A peer that does not accept the answer, or is gone, notices by itself.
func (a *FabricAnswerer) answer(to rdmanet.Peer, frame []byte) {
	lane, err := a.host.Lane(to.ID, answerLane)
	if err == nil {
		_, _ = lane.TrySend(frame) // see above
	}
}

// open exposes the region once, and grants access to the peer.
func (a *FabricAnswerer) open(to rdmanet.Peer) error {
	host, can := a.host.(rdmanet.RegionHost)
	if !can {
		return errors.New("this fabric has no regions")
	}
	if a.region == nil {
		region, err := host.Expose(regionName, regionBytes)
		if err != nil {
			return err
		}
		a.region = region
	}
	return a.region.Grant(to, rdmanet.PermissionReadWrite)
}

// fabricMeasurer is the side that measures.
type fabricMeasurer struct {
	host    rdmanet.Host
	peer    rdmanet.PeerID
	lane    rdmanet.Lane
	answers chan []byte
}

// MeasureFabric measures between a host and a peer that runs AnswerFabric, for about the given
// time. A host can measure only once.
func MeasureFabric(ctx context.Context, kind fabric.Kind, host rdmanet.Host, peer rdmanet.PeerID,
	measured time.Duration) (FabricResult, error) {
	if measured <= 0 {
		return FabricResult{}, fmt.Errorf("%w: a run for %v", ErrParameters, measured)
	}
	m, err := newFabricMeasurer(host, peer)
	if err != nil {
		return FabricResult{}, err
	}
	begun := time.Now()
	result := FabricResult{Fabric: kind}
	part := measured / 3
	regions, can := host.(rdmanet.RegionHost)
	if can {
		part = measured / 7
	}
	if result.Lanes, err = m.lanes(ctx, part); err != nil {
		return FabricResult{}, fmt.Errorf("bench: lanes of %s: %w", kind, err)
	}
	if can {
		measuredRegions, err := m.regions(ctx, regions, part)
		if err != nil {
			return FabricResult{}, fmt.Errorf("bench: regions of %s: %w", kind, err)
		}
		result.Regions = &measuredRegions
	}
	if err := m.lane.Send(ctx, []byte{wantEnd}); err != nil {
		return FabricResult{}, fmt.Errorf("bench: fabric: %w", err)
	}
	if err := m.lane.Flushed(ctx); err != nil {
		return FabricResult{}, fmt.Errorf("bench: fabric: %w", err)
	}
	result.Seconds = time.Since(begun).Seconds()
	return result, nil
}

// newFabricMeasurer prepares measurements to a peer. A host can do so only once.
func newFabricMeasurer(host rdmanet.Host, peer rdmanet.PeerID) (*fabricMeasurer, error) {
	m := &fabricMeasurer{host: host, peer: peer, answers: make(chan []byte, groupsAhead+1)}
	if err := host.Receive(answerLane, m.receive); err != nil {
		return nil, fmt.Errorf("bench: fabric: %w", err)
	}
	var err error
	if m.lane, err = host.Lane(peer, askLane); err != nil {
		return nil, fmt.Errorf("bench: fabric: %w", err)
	}
	return m, nil
}

func (m *fabricMeasurer) receive(_ rdmanet.Peer, frames [][]byte) {
	for _, frame := range frames {
		select {
		case m.answers <- frame:
		default: // unrequested
		}
	}
}

// ask sends a frame and waits for the answer.
func (m *fabricMeasurer) ask(ctx context.Context, frame []byte) ([]byte, error) {
	if err := m.lane.Send(ctx, frame); err != nil {
		return nil, err
	}
	return m.answer(ctx)
}

// answer waits for the next answer.
func (m *fabricMeasurer) answer(ctx context.Context) ([]byte, error) {
	timeout := time.NewTimer(fabricAnswerTime)
	defer timeout.Stop()
	select {
	case answer := <-m.answers:
		return answer, nil
	case <-timeout.C:
		return nil, fmt.Errorf("%w: no answer within %v", ErrServer, fabricAnswerTime)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (m *fabricMeasurer) lanes(ctx context.Context, part time.Duration) (r LaneResult, err error) {
	small := make([]byte, smallBytes)
	small[0] = wantEcho
	if _, err := m.ask(ctx, small); err != nil { // this connects
		return r, err
	}
	var trips Histogram
	for begun := time.Now(); time.Since(begun) < part; {
		sent := time.Now()
		if _, err := m.ask(ctx, small); err != nil {
			return r, err
		}
		trips.Add(time.Since(sent))
	}
	r.RoundTripP50, r.RoundTripP99 = float64(trips.Quantile(0.50))/1e3,
		float64(trips.Quantile(0.99))/1e3

	counted := make([]byte, smallBytes)
	counted[0] = wantNone
	together := make([][]byte, framesPerCall)
	for i := range together {
		together[i] = counted
	}
	if _, r.FramesPerSecond, err = m.stream(ctx, part, together); err != nil {
		return r, err
	}
	large := touched(largeBytes)
	large[0] = wantNone
	r.BytesPerSecond, _, err = m.stream(ctx, part, [][]byte{large})
	return r, err
}

// stream sends the frames repeatedly. It returns the bytes and frames a second that the peer's
// program received.
func (m *fabricMeasurer) stream(ctx context.Context, part time.Duration, frames [][]byte) (bytes,
	count float64, err error) {
	before, err := m.counted(ctx)
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	after, outstanding := before, 0
	for sending := true; sending || outstanding > 0; {
		if sending = sending && time.Since(begun) < part; sending {
			for range sendsTogether {
				if err := m.lane.Send(ctx, frames...); err != nil {
					return 0, 0, err
				}
			}
			if err := m.lane.Send(ctx, []byte{wantCount}); err != nil {
				return 0, 0, err
			}
			outstanding++
		}
		if outstanding > groupsAhead || !sending && outstanding > 0 {
			answer, err := m.answer(ctx)
			if err != nil {
				return 0, 0, err
			}
			if after, err = countOf(answer); err != nil {
				return 0, 0, err
			}
			outstanding--
		}
	}
	seconds := time.Since(begun).Seconds()
	return float64(after[0]-before[0]) / seconds, float64(after[1]-before[1]) / seconds, nil
}

func (m *fabricMeasurer) counted(ctx context.Context) (count [2]uint64, err error) {
	answer, err := m.ask(ctx, []byte{wantCount})
	if err != nil {
		return count, err
	}
	return countOf(answer)
}

// countOf parses the answer to wantCount.
func countOf(answer []byte) (count [2]uint64, err error) {
	if len(answer) != 16 {
		return count, fmt.Errorf("%w: a count of %d bytes", ErrServer, len(answer))
	}
	return [2]uint64{binary.LittleEndian.Uint64(answer), binary.LittleEndian.Uint64(answer[8:])},
		nil
}

func (m *fabricMeasurer) regions(ctx context.Context, host rdmanet.RegionHost,
	part time.Duration) (r RegionResult, err error) {
	reason, err := m.ask(ctx, []byte{wantRegion})
	if err != nil {
		return r, err
	}
	if len(reason) > 0 {
		return r, fmt.Errorf("%w: %s", ErrServer, reason)
	}
	to, err := host.Attach(ctx, m.peer, regionName)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	queue, err := host.Queue(writesOutstanding)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, queue.Close()) }()
	for _, each := range []struct {
		kind     rdmanet.OperationKind
		p50, p99 *float64
		bytes    *float64
	}{
		{rdmanet.OperationWrite, &r.WriteP50, &r.WriteP99, &r.WriteBytesPerSecond},
		{rdmanet.OperationRead, &r.ReadP50, &r.ReadP99, &r.ReadBytesPerSecond},
	} {
		var latency Histogram
		if _, err := operate(ctx, queue, to, each.kind, smallBytes, 1, part, &latency); err != nil {
			return r, err
		}
		*each.p50, *each.p99 = float64(latency.Quantile(0.50))/1e3,
			float64(latency.Quantile(0.99))/1e3
		if *each.bytes, err = operate(ctx, queue, to, each.kind, largeBytes, writesOutstanding,
			part, nil); err != nil {
			return r, err
		}
	}
	return r, nil
}

// operate keeps the given number of operations outstanding, each at a place of its own. It returns
// the bytes completed in a second, and records each operation's time in latency unless that is nil.
func operate(ctx context.Context, queue rdmanet.Queue, to rdmanet.Attachment,
	kind rdmanet.OperationKind, size, outstanding int, part time.Duration,
	latency *Histogram) (float64, error) {
	buffer := touched(size * outstanding)
	post := func(place uint64) error {
		at := int(place) * size
		return queue.Post(rdmanet.Operation{To: to, Kind: kind, Offset: at,
			Bytes: buffer[at : at+size], Tag: place})
	}
	completions := make([]rdmanet.Completion, outstanding)
	begun := time.Now()
	done, posted := 0, 0
	for place := range outstanding {
		if err := post(uint64(place)); err != nil {
			return 0, err
		}
		posted++
	}
	last := begun
	for done < posted {
		n, err := queue.Wait(ctx, completions)
		if err != nil {
			return 0, err
		}
		now := time.Now()
		for _, completion := range completions[:n] {
			if completion.Err != nil {
				return 0, completion.Err
			}
			done++
			if latency != nil {
				latency.Add(now.Sub(last))
			}
			if now.Sub(begun) >= part {
				continue
			}
			last = now
			if err := post(completion.Tag); err != nil {
				return 0, err
			}
			posted++
		}
	}
	return float64(done) * float64(size) / time.Since(begun).Seconds(), nil
}
