package shards

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// The defaults of IntroductionsConfig.
const (
	IntroduceEveryDefault   = 10 * time.Second
	IntroduceTimeoutDefault = 5 * time.Second
	IntroduceBytesDefault   = 128 << 10
)

// errNotBelieved reports that a member of another shard did not take over what it was shown.
var errNotBelieved = errors.New("shards: it does not believe the trail of this shard")

// IntroductionsConfig is the configuration of Introductions.
type IntroductionsConfig struct {
	Directory *Directory
	Host      rdmanet.IntroductionHost
	// Own returns certificates of the joins and leaves in this node's chain, after the first ones,
	// as store.Store.Trail does.
	Own func(from ledger.MembersEpoch, bytesMax int) ([]*ledger.Certificate, error)
	// Logger may be nil.
	Logger *slog.Logger
	// Every is the interval of introductions, and Timeout bounds each of them. Zero means the
	// default.
	Every, Timeout time.Duration
	// Bytes bounds the certificates of an introduction of this node, unless it has only one. Zero
	// means the default, which is also the largest value.
	Bytes int
}

// Introductions makes this node known to members of other shards that do not admit it: it shows
// them the trail of its shard. And it takes the introductions of strangers to this node.
//
// One goroutine introduces this node to one member at a time. All methods are safe for concurrent
// use.
type Introductions struct {
	config IntroductionsConfig
	gate   *gate
	closed context.Context
	close  context.CancelFunc
	done   sync.WaitGroup
	turns  int // counts the members to which this node tried to introduce itself. Only run uses it.
}

// NewIntroductions opens the host's door for strangers, and begins to introduce this node. It fails
// if a part of the configuration is missing, or with an error of the host.
func NewIntroductions(config IntroductionsConfig) (*Introductions, error) {
	if config.Directory == nil || config.Host == nil || config.Own == nil {
		return nil, errors.New("shards: introductions need a directory, a host and the own trail")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Every <= 0 {
		config.Every = IntroduceEveryDefault
	}
	if config.Timeout <= 0 {
		config.Timeout = IntroduceTimeoutDefault
	}
	if config.Bytes <= 0 || config.Bytes > IntroduceBytesDefault {
		config.Bytes = IntroduceBytesDefault
	}
	x := &Introductions{config: config, gate: newGate()}
	x.closed, x.close = context.WithCancel(context.Background())
	if err := config.Host.Introduced(x.take); err != nil {
		x.close()
		return nil, fmt.Errorf("shards: introductions: %w", err)
	}
	x.done.Go(x.run)
	return x, nil
}

// Close ends the introductions of this node, and waits. Those of strangers are refused from then
// on. A second Close also waits.
func (x *Introductions) Close() {
	x.close()
	x.done.Wait()
}

// run introduces this node to one member after the other.
func (x *Introductions) run() {
	// The members that know this node are heard before the first turn.
	soon := x.config.Every / soonShare
	turn := time.NewTimer(2 * soon)
	defer turn.Stop()
	for {
		select {
		case <-x.closed.Done():
			return
		case <-turn.C:
		}
		wait := x.config.Every
		if peer, any := x.inTurn(); any && x.introduce(peer) != nil {
			wait = soon
		}
		turn.Reset(wait)
	}
}

// inTurn returns the next member of another shard that this node does not hear. It may be down, or
// not admit this node.
func (x *Introductions) inTurn() (peer rdmanet.PeerID, any bool) {
	unheard := x.config.Directory.unheard()
	if len(unheard) == 0 {
		return "", false
	}
	x.turns++
	return unheard[(x.turns-1)%len(unheard)], true
}

// introduce shows a member of another shard the trail of this one, as far as it has not seen it.
// The trail may need several introductions. A shard whose members are those of the genesis needs
// none.
func (x *Introductions) introduce(peer rdmanet.PeerID) error {
	own := x.config.Directory.Own()
	chain, _ := x.config.Directory.chain(own)
	for from := ledger.MembersEpoch(0); ; {
		certificates, err := x.config.Own(from, x.config.Bytes)
		if err != nil || len(certificates) == 0 {
			if from > 0 {
				x.config.Logger.Info("this node introduced itself to a member of another shard",
					"peer", peer, "epoch", from)
			}
			return err
		}
		ctx, cancel := context.WithTimeout(x.closed, x.config.Timeout)
		answer, err := x.config.Host.Introduce(ctx, peer,
			encodeIntroduction(chain, own, from, certificates))
		cancel()
		var epoch ledger.MembersEpoch
		if err == nil {
			epoch, err = decodeIntroduced(answer)
		}
		if err == nil && epoch < from+ledger.MembersEpoch(len(certificates)) {
			err = errNotBelieved
		}
		if err != nil {
			x.config.Logger.Debug("this node could not introduce itself to a member of another "+
				"shard", "peer", peer, "error", err)
			return err
		}
		from = epoch
	}
}

// take takes the introduction of a stranger.
func (x *Introductions) take(from string, read func() ([]byte, error)) (answer []byte, err error) {
	if err := x.closed.Err(); err != nil {
		return nil, err
	}
	if err := x.gate.admit(from); err != nil {
		return nil, err
	}
	introduction, err := read()
	if err != nil {
		return nil, err
	}
	d := x.config.Directory
	said, err := decodeIntroduction(introduction, d)
	if err != nil {
		x.gate.blame(from, 0)
		x.config.Logger.Debug("the introduction of a stranger dropped", "address", from, "error",
			err)
		return nil, err
	}
	learned, wasted, err := d.LearnIntroduction(said.shard, said.from, said.further)
	if learned {
		_, members := d.Members(said.shard)
		x.config.Logger.Info("the members of another shard introduced themselves", "address", from,
			"shard", said.shard, "epoch", d.Epoch(said.shard), "members", len(members))
	}
	if err != nil {
		x.gate.blame(from, wasted)
		x.config.Logger.Warn("the introduction of a stranger does not hold", "address", from,
			"shard", said.shard, "error", err)
		return nil, err
	}
	return encodeIntroduced(d.Epoch(said.shard)), nil
}

// introduction is what a stranger shows.
type introduction struct {
	shard ledger.ShardID
	// further are the certificates of the shard's joins and leaves after an epoch.
	from    ledger.MembersEpoch
	further []*ledger.Certificate
}

const introductionVersion = 1

// encodeIntroduction encodes certificates of a shard's trail after an epoch, little-endian: version
// u8, hash of the shard's genesis, shard u32, epoch u64, then for each certificate its length u32
// and its encoding.
func encodeIntroduction(chain ledger.Hash, shard ledger.ShardID, from ledger.MembersEpoch,
	certificates []*ledger.Certificate) []byte {
	b := append([]byte{introductionVersion}, chain[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(shard))
	b = binary.LittleEndian.AppendUint64(b, uint64(from))
	for _, c := range certificates {
		encoded := c.Encode()
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(encoded))), encoded...)
	}
	return b
}

// decodeIntroduction reads the encoding of encodeIntroduction, or returns ErrMalformed. It must be
// of a shard that the directory knows. Certificates before the epoch up to which the directory
// knows the shard's trail are passed over, and from is then this epoch. The certificates are not
// verified. They share no memory with b.
func decodeIntroduction(b []byte, d *Directory) (said introduction, err error) {
	r := reader{rest: b}
	if version := r.uint8(); version != introductionVersion {
		r.fail("an introduction of version %d", version)
	}
	chain := ledger.Hash(r.take(ledger.HashSize))
	said.shard, said.from = ledger.ShardID(r.uint32()), ledger.MembersEpoch(r.uint64())
	want, known := d.chain(said.shard)
	switch {
	case r.err != nil:
		return introduction{}, r.err
	case said.shard == d.Own() || !known:
		r.fail("an introduction of members of shard %d", said.shard)
	case chain != want:
		r.fail("an introduction of members of another book")
	}
	for epoch, at := said.from, d.Epoch(said.shard); r.err == nil && len(r.rest) > 0; epoch++ {
		size := r.uint32()
		if r.err != nil || size > ledger.MaxCertificateBytes || int(size) > len(r.rest) {
			r.fail("%d bytes of certificate", size)
			break
		}
		encoded := r.rest[:size]
		r.rest = r.rest[size:]
		if epoch < at {
			said.from = epoch + 1
			continue
		}
		c, err := ledger.DecodeCertificate(bytes.Clone(encoded))
		if err != nil {
			return introduction{}, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		said.further = append(said.further, c)
	}
	if r.err != nil {
		return introduction{}, r.err
	}
	return said, nil
}

// encodeIntroduced encodes the answer to an introduction, little-endian: version u8, the epoch u64
// up to which the shard's trail is known now.
func encodeIntroduced(epoch ledger.MembersEpoch) []byte {
	return binary.LittleEndian.AppendUint64([]byte{introductionVersion}, uint64(epoch))
}

// decodeIntroduced reads the encoding of encodeIntroduced, or returns ErrMalformed.
func decodeIntroduced(b []byte) (ledger.MembersEpoch, error) {
	r := reader{rest: b}
	if version := r.uint8(); version != introductionVersion {
		r.fail("an answer to an introduction of version %d", version)
	}
	epoch := ledger.MembersEpoch(r.uint64())
	return epoch, r.end()
}
