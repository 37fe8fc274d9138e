package shards

import (
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
)

const (
	// proofsMax bounds the verdicts that wait for a certified proof. The others come to their turn
	// at a later look.
	proofsMax = 64
	// proofTimeout bounds the time of one certified proof.
	proofTimeout = 5 * time.Second
	// proofAfter is how often the members of a shard are asked for a verdict before a certified
	// proof is tried.
	proofAfter = 2
)

// proofs is the goroutine that gets certified proofs, one at a time.
func (v *Verdicts) proofs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.unprovedWake:
		}
		for {
			key, wanted := v.nextUnproved()
			if !wanted || ctx.Err() != nil {
				break
			}
			v.prove(ctx, key)
		}
	}
}

// nextUnproved removes and returns the next verdict to prove.
func (v *Verdicts) nextUnproved() (key verdicts.Key, wanted bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(v.unproved) > 0 {
		key = v.unproved[0]
		v.unproved = slices.Delete(v.unproved, 0, 1)
		if _, believed := v.exchange.Believed(key); !believed && !v.exchange.Settled(key) {
			return key, true
		}
	}
	return verdicts.Key{}, false
}

// wantProof queues a verdict for a certified proof. The caller holds the lock.
func (v *Verdicts) wantProof(key verdicts.Key) {
	if v.config.Prove == nil || len(v.unproved) >= proofsMax || slices.Contains(v.unproved, key) {
		return
	}
	v.unproved = append(v.unproved, key)
	select {
	case v.unprovedWake <- struct{}{}:
	default:
	}
}

// prove gets the certified proof of a verdict, and believes it.
func (v *Verdicts) prove(ctx context.Context, key verdicts.Key) {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	verdict, err := v.config.Prove(ctx, key.Shard, key.ID)
	if err != nil {
		v.config.Logger.Debug("verdict not proved", "shard", key.Shard, "transaction", key.ID,
			"error", err)
		return
	}
	if _, possible := ledger.VerdictOf(&ledger.Entry{ID: verdict.ID, Result: verdict.Result,
		Decoded: &someTransaction}, verdict.Shard); !possible || verdicts.KeyOf(&verdict) != key {
		v.config.Logger.Error("a proof of another verdict dropped", "shard", key.Shard,
			"transaction", key.ID, "proved", verdict)
		return
	}
	v.mu.Lock()
	v.status.Proved++
	found := v.contradict(v.exchange.Believe(&verdict))
	v.mu.Unlock()
	v.log(found)
	v.nudge()
}
