package ledger

import "fmt"

// Testimony is a question about a shard that is lost: had another shard's chain taken the good
// verdict of shard About on a transaction when the operators settled with shard AsOf? The answer is
// a Verdict of the other shard, whose result says HeardAgreement or HeardNothing.
//
// About and AsOf are the same unless the transaction concerns several lost shards. Then a later
// loss makes the shards that are left ask anew, as of the later one: those that were lost meanwhile
// may have told some of them what they had heard, and others not.
type Testimony struct {
	About ShardID `json:"about"`
	AsOf  ShardID `json:"as_of"`
}

// Verdict returns a shard's answer on a transaction.
func (t Testimony) Verdict(id Hash, from ShardID, agreed bool) Verdict {
	code := HeardNothing
	if agreed {
		code = HeardAgreement
	}
	return Verdict{ID: id, Shard: from, Result: Result{Code: code,
		Item: uint32(t.About)<<16 | uint32(t.AsOf)}}
}

// testifies reports whether results with this code are testimonies.
func (c Code) testifies() bool { return c == HeardAgreement || c == HeardNothing }

// testimony returns the question that a result with the code of a testimony answers.
func (r Result) testimony() Testimony {
	return Testimony{About: ShardID(r.Item >> 16), AsOf: ShardID(r.Item & 0xffff)}
}

// Testimony returns the question that the verdict answers. It returns false for a verdict on the
// shard's own part.
func (v *Verdict) Testimony() (testimony Testimony, is bool) {
	if !v.Result.Code.testifies() {
		return Testimony{}, false
	}
	return v.Result.testimony(), true
}

// Subject tells apart the verdicts of one shard on one transaction: 0 is the one on the shard's own
// part, and each Testimony has a number of its own.
type Subject uint32

// Subject returns the verdict's subject.
func (v *Verdict) Subject() Subject {
	if t, is := v.Testimony(); is {
		return t.Subject()
	}
	return 0
}

// Subject returns the subject of the testimony's answers.
func (t Testimony) Subject() Subject { return Subject(t.About)<<16 + Subject(t.AsOf) + 1 }

// Testimony returns the question, and false for the verdict on the shard's own part.
func (s Subject) Testimony() (testimony Testimony, is bool) {
	if s == 0 {
		return Testimony{}, false
	}
	return Testimony{About: ShardID((s - 1) >> 16), AsOf: ShardID((s - 1) & 0xffff)}, true
}

// checkTestimony checks that a testimony is one that a shard can give.
func (v *Verdict) checkTestimony() error {
	t := v.Result.testimony()
	if t.About >= MaxShards || t.AsOf >= MaxShards || v.Shard == t.About || v.Shard == t.AsOf {
		return fmt.Errorf("%w: shard %d testifies about shard %d as of the loss of shard %d",
			ErrMalformed, v.Shard, t.About, t.AsOf)
	}
	return nil
}
