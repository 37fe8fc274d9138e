package shards

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// TrailLane is the lane that carries requests for trails and their answers.
const TrailLane = "trails"

// The defaults of TrailExchangeConfig.
const (
	TrailEveryDefault   = 10 * time.Second
	TrailTimeoutDefault = 3 * time.Second
	TrailBytesDefault   = 1 << 20
)

const (
	kindTrails byte = 1
	// trailAnswerMax bounds an answer.
	trailAnswerMax = 1 + TrailBytesDefault + trailItemSize + ledger.MaxCertificateBytes
	trailItemSize  = 4 + 4 // before each certificate
	trailChunk     = 256 << 10
	// How many requests are served at a time.
	trailServingPerPeer, trailServingMax = 2, 16
	// soonShare divides Every after a peer that did not answer.
	soonShare = 10
	// pauseDoublings bounds the growth of the time for which a peer's word that it knows more is
	// ignored, after it was wrong: from Every up to Every times two to this power.
	pauseDoublings = 3
)

// errTrailsBusy means that a peer serves too many other requests.
var errTrailsBusy = errors.New("shards: the peer is busy")

// TrailExchangeConfig is the configuration of a TrailExchange.
type TrailExchangeConfig struct {
	Directory *Directory
	Host      rdmanet.Host
	// Own returns certificates of the joins and leaves in this node's chain, after the first ones,
	// as store.Store.Trail does. Several goroutines call it.
	Own func(from ledger.MembersEpoch, bytesMax int) ([]*ledger.Certificate, error)
	// Logger may be nil.
	Logger *slog.Logger
	// Every is the interval of asking some peer, and Timeout bounds the wait for an answer. Zero
	// means the default.
	Every, Timeout time.Duration
	// Bytes bounds the certificates of an answer of this node, unless it has only one. Zero means
	// the default, which is also the largest value.
	Bytes int
}

// TrailExchange gets the trails of other shards for the directory, and gives all trails that this
// node has to its peers. A peer can hold a trail back, but cannot forge one, so any peer is asked:
// one that says that it has more, and now and then any member of any shard. In this way a node also
// finds a shard again of which it knows no present member.
//
// One goroutine asks one peer at a time. All methods are safe for concurrent use.
type TrailExchange struct {
	config   TrailExchangeConfig
	requests *wire.Requests
	closed   chan struct{}
	once     sync.Once
	done     sync.WaitGroup
	newer    chan struct{} // has a token while waiting is not empty

	mu sync.Mutex
	// waiting has the peers that say that they have more, each once. paused are those that were
	// wrong lately. Both have known members only.
	waiting []news
	paused  map[rdmanet.PeerID]pause

	// turns count the peers that were asked in turn: of all, and of those heard lately. latelyNext
	// tells which are next. Only run uses them.
	allTurns, latelyTurns int
	latelyNext            bool
}

// news is a peer's word that it has a shard's trail up to an epoch.
type news struct {
	peer  rdmanet.PeerID
	shard ledger.ShardID
	epoch ledger.MembersEpoch
}

// pause is for how long a peer is not asked because of what it says.
type pause struct {
	until    time.Time
	failures int
}

// NewTrailExchange registers for TrailLane, and starts to serve and to ask. It fails if a part of
// the configuration is missing, or with an error of the host.
func NewTrailExchange(config TrailExchangeConfig) (*TrailExchange, error) {
	if config.Directory == nil || config.Host == nil || config.Own == nil {
		return nil, errors.New("shards: a trail exchange needs a directory, a host and the own " +
			"trail")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Every <= 0 {
		config.Every = TrailEveryDefault
	}
	if config.Timeout <= 0 {
		config.Timeout = TrailTimeoutDefault
	}
	if config.Bytes <= 0 || config.Bytes > TrailBytesDefault {
		config.Bytes = TrailBytesDefault
	}
	x := &TrailExchange{config: config, closed: make(chan struct{}), newer: make(chan struct{}, 1),
		paused: map[rdmanet.PeerID]pause{}}
	var err error
	x.requests, err = wire.New(wire.Config{Host: config.Host, Lane: TrailLane,
		Logger: config.Logger, Serve: x.serve, Busy: []byte{trailBusy},
		BodyMax:        trailRequestSize(ledger.MaxShards),
		ServingPerPeer: trailServingPerPeer, ServingMax: trailServingMax,
		Admit: func(peer rdmanet.PeerID) bool {
			_, _, known := config.Directory.Find(peer)
			return known
		}})
	if err != nil {
		return nil, fmt.Errorf("shards: trails: %w", err)
	}
	x.done.Go(x.run)
	return x, nil
}

// Close ends the asking and the serving, and waits for both. A second Close also waits.
func (x *TrailExchange) Close() {
	x.once.Do(func() { close(x.closed) })
	x.requests.Close()
	x.done.Wait()
}

// Newer tells the exchange that a peer, a known member, says that it has the trail of another shard
// up to an epoch. It returns at once. It ignores a peer that was wrong lately.
func (x *TrailExchange) Newer(peer rdmanet.PeerID, shard ledger.ShardID,
	epoch ledger.MembersEpoch) {
	if epoch <= x.config.Directory.Epoch(shard) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if time.Now().Before(x.paused[peer].until) || slices.ContainsFunc(x.waiting,
		func(other news) bool { return other.peer == peer }) {
		return
	}
	x.waiting = append(x.waiting, news{peer, shard, epoch})
	x.signal()
}

// signal wakes run. The caller holds the lock.
func (x *TrailExchange) signal() {
	select {
	case x.newer <- struct{}{}:
	default:
	}
}

// run asks one peer after the other.
func (x *TrailExchange) run() {
	turn := time.NewTimer(0)
	defer turn.Stop()
	for {
		select {
		case <-x.closed:
			return
		case <-x.newer:
			if peer, any := x.next(); any {
				learned, _ := x.visit(peer)
				x.judge(peer, learned)
			}
		case <-turn.C:
			wait := x.config.Every
			if peer, any := x.inTurn(); !any {
				wait /= soonShare
			} else if _, err := x.visit(peer); err != nil {
				wait /= soonShare
			}
			turn.Reset(wait)
		}
	}
}

// next returns the next peer that says that it has more, if this node has not learned that by now.
func (x *TrailExchange) next() (peer rdmanet.PeerID, any bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.waiting) > 0 {
		first := x.waiting[0]
		x.waiting = x.waiting[1:]
		if first.epoch > x.config.Directory.Epoch(first.shard) {
			x.signal()
			return first.peer, true
		}
	}
	return "", false
}

// judge records whether a peer had more as it said.
func (x *TrailExchange) judge(peer rdmanet.PeerID, learned bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if learned {
		delete(x.paused, peer)
		return
	}
	p := x.paused[peer]
	p.until = time.Now().Add(x.config.Every << min(p.failures, pauseDoublings))
	p.failures++
	x.paused[peer] = p
	for peer := range x.paused {
		if _, _, known := x.config.Directory.Find(peer); !known {
			delete(x.paused, peer)
		}
	}
}

// inTurn returns the next of all peers: the members of the own shard, and then those of the others.
// Every other time it is the next of those that were heard lately, if there are any.
func (x *TrailExchange) inTurn() (peer rdmanet.PeerID, any bool) {
	x.latelyNext = !x.latelyNext
	if lately := x.config.Directory.peers(true); x.latelyNext && len(lately) > 0 {
		x.latelyTurns++
		return lately[(x.latelyTurns-1)%len(lately)], true
	}
	peers := x.config.Directory.peers(false)
	if len(peers) == 0 {
		return "", false
	}
	x.allTurns++
	return peers[(x.allTurns-1)%len(peers)], true
}

// visit asks a peer for trails until it has nothing more that the directory believes. It reports
// whether the directory learned something. An error means that the peer did not answer.
func (x *TrailExchange) visit(peer rdmanet.PeerID) (learned bool, err error) {
	d := x.config.Directory
	refused := make(map[ledger.ShardID]bool)
	for more := true; more; {
		epochs := make([]ledger.MembersEpoch, d.Tree().Shards())
		for shard := range epochs {
			epochs[shard] = d.Epoch(ledger.ShardID(shard))
			if ledger.ShardID(shard) == d.Own() || refused[ledger.ShardID(shard)] {
				epochs[shard] = trailUnwanted
			}
		}
		answer, err := x.ask(peer, encodeTrailRequest(epochs))
		if err != nil {
			x.config.Logger.Debug("no trail of another shard's members", "peer", peer, "error", err)
			return learned, err
		}
		trails, err := decodeTrails(answer, epochs)
		if err != nil {
			x.config.Logger.Error("trails of other shards' members dropped", "peer", peer, "error",
				err)
			return learned, err
		}
		more = false
		for shard, further := range trails {
			if len(further) == 0 {
				continue
			}
			more = true
			if x.learn(peer, ledger.ShardID(shard), further) {
				learned = true
			} else {
				refused[ledger.ShardID(shard)] = true
			}
		}
	}
	return learned, nil
}

// learn passes the continuation of a trail on to the directory. It reports whether the directory
// believes it.
func (x *TrailExchange) learn(peer rdmanet.PeerID, shard ledger.ShardID,
	further []*ledger.Certificate) bool {
	d := x.config.Directory
	learned, err := d.LearnTrail(shard, slices.Concat(d.Trail(shard), further))
	switch {
	case err != nil:
		x.config.Logger.Error("a trail of another shard's members is refused", "peer", peer,
			"shard", shard, "error", err)
	case learned:
		_, members := d.Members(shard)
		x.config.Logger.Info("the members of another shard changed", "shard", shard, "epoch",
			d.Epoch(shard), "members", len(members))
	}
	return learned
}

// ask sends a request to a peer and waits for the whole answer.
func (x *TrailExchange) ask(peer rdmanet.PeerID, body []byte) (answer []byte, err error) {
	wake := make(chan struct{}, 1)
	timeout := time.NewTimer(x.config.Timeout)
	defer timeout.Stop()
	asked := x.requests.Ask(peer, wire.Request{Kind: kindTrails, Body: body,
		Deadline: time.Now().Add(x.config.Timeout), AnswerMax: trailAnswerMax, Wake: wake})
	defer asked.Close()
	for {
		now := asked.Progress()
		for chunk, ok := asked.Next(); ok; chunk, ok = asked.Next() {
			answer = append(answer, chunk...)
		}
		switch {
		case now.Err != nil:
			return nil, now.Err
		case now.Whole && bytes.Equal(answer, []byte{trailBusy}):
			return nil, errTrailsBusy
		case now.Whole:
			return answer, nil
		case now.Doubted:
			asked.Check()
		}
		select {
		case <-wake:
		case <-timeout.C:
			return nil, context.DeadlineExceeded
		case <-x.closed:
			return nil, wire.ErrClosed
		}
	}
}

// serve answers a request with what the peer lacks.
func (x *TrailExchange) serve(_ context.Context, request *wire.Served) error {
	d := x.config.Directory
	epochs, err := decodeTrailRequest(request.Body)
	if err != nil || request.Kind != kindTrails {
		return fmt.Errorf("%w: a request of kind %d: %w", ErrMalformed, request.Kind, err)
	}
	answer := []byte{trailVersion}
	// One of both may not know yet of shards that were added to the book.
	for i, from := range epochs[:min(len(epochs), d.Tree().Shards())] {
		shard := ledger.ShardID(i)
		further, err := x.further(shard, from, x.config.Bytes-len(answer))
		if err != nil {
			return err
		}
		for _, c := range further {
			encoded := c.Encode()
			if len(answer) > 1 && len(answer)+len(encoded) > x.config.Bytes {
				break
			}
			answer = appendTrailItem(answer, shard, encoded)
		}
	}
	for len(answer) > trailChunk {
		if err := request.Send(answer[:trailChunk]); err != nil {
			return err
		}
		answer = answer[trailChunk:]
	}
	return request.End(answer)
}

// further returns what this node has of a shard's trail after an epoch. It may return more than a
// number of bytes.
func (x *TrailExchange) further(shard ledger.ShardID, from ledger.MembersEpoch, bytesMax int) (
	[]*ledger.Certificate, error) {
	d := x.config.Directory
	switch {
	case from == trailUnwanted || bytesMax <= 0:
		return nil, nil
	case shard == d.Own():
		return x.config.Own(from, bytesMax)
	}
	known := d.Trail(shard)
	return known[min(from, ledger.MembersEpoch(len(known))):], nil
}

// The first bytes of messages, and the epoch of a shard whose trail is not asked for.
const (
	trailVersion  = 1
	trailBusy     = 2
	trailUnwanted = ledger.MembersEpoch(1<<64 - 1)
)

func trailRequestSize(shards int) int { return 1 + 8*shards }

// encodeTrailRequest encodes a request, little-endian: version u8, then for each shard the epoch
// u64 up to which the asker has the trail, or all ones if it wants none.
func encodeTrailRequest(epochs []ledger.MembersEpoch) []byte {
	b := append(make([]byte, 0, trailRequestSize(len(epochs))), trailVersion)
	for _, epoch := range epochs {
		b = binary.LittleEndian.AppendUint64(b, uint64(epoch))
	}
	return b
}

// decodeTrailRequest reads the encoding of encodeTrailRequest, or returns ErrMalformed. There is an
// epoch for each shard that the asker knows.
func decodeTrailRequest(b []byte) ([]ledger.MembersEpoch, error) {
	r := reader{rest: b}
	if version := r.uint8(); version != trailVersion {
		r.fail("a request for trails of version %d", version)
	}
	epochs := make([]ledger.MembersEpoch, r.list(ledger.MaxShards, 8))
	for i := range epochs {
		epochs[i] = ledger.MembersEpoch(r.uint64())
	}
	return epochs, r.end()
}

// appendTrailItem appends a certificate of a shard's trail to an answer, little-endian: shard u32,
// length u32, certificate.
func appendTrailItem(b []byte, shard ledger.ShardID, certificate []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(shard))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(certificate)))
	return append(b, certificate...)
}

// decodeTrails reads an answer to a request for the trails after some epochs, or returns
// ErrMalformed. It returns the certificates by shard, none before the epoch that was asked for. The
// certificates are not verified. They share no memory with b.
func decodeTrails(b []byte, epochs []ledger.MembersEpoch) ([][]*ledger.Certificate, error) {
	r := reader{rest: b}
	if version := r.uint8(); version != trailVersion {
		r.fail("trails of version %d", version)
	}
	trails := make([][]*ledger.Certificate, len(epochs))
	for r.err == nil && len(r.rest) > 0 {
		shard, size := r.uint32(), r.uint32()
		if r.err != nil || int64(shard) >= int64(len(epochs)) || epochs[shard] == trailUnwanted ||
			size > ledger.MaxCertificateBytes || int(size) > len(r.rest) {
			r.fail("%d bytes of certificate of shard %d", size, shard)
			break
		}
		c, err := ledger.DecodeCertificate(bytes.Clone(r.rest[:size]))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		r.rest = r.rest[size:]
		trails[shard] = append(trails[shard], c)
	}
	return trails, r.err
}
