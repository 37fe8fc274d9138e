package generation

import "github.com/ledgerd/ledgerd/order"

// tailOfLog returns the rounds after the furthest head, if the newest run R's engine orders by a
// log that a leader writes into the memory of others (package dare). K, R and d are as for choose.
// c is the majority of R's shard.
//
// # The rules that it builds upon
//
// Each entry of a log has a term of birth, which with the index is its identity, and the stamp of
// the last leader that made it its own. A log is as recent as its last entry: by stamp, then index.
//
//	(L1) An entry is committed in a term t only if c servers have the log of t's leader up to an
//	     entry y at or behind it, and y has stamp t at each of them. Then y is committed, too.
//	(L2) The leader of a later term has all entries that were committed in earlier ones, with the
//	     same messages, and puts its stamp only on its last entry at that time, and on entries
//	     behind it.
//	(L3) The entries up to one with a given stamp, in any log, are those that the leader of that
//	     term has there.
//	(L4) A server that had y when it was committed keeps it, and what is behind y in its log
//	     never has a lower stamp than t.
//	(L5) What a server A-delivered is committed, and the rounds are the entries, in their order.
//	(L6) A report is made after the log was taken from all others. Nobody writes it any more, and
//	     no leader counts it for an entry that it does not have in the report.
//	(L7) A server keeps each entry until it A-delivered it, and has at most T others behind that
//	     (Bound). Its report has all of them.
//	(L8) Nothing follows an entry that ends a run. (V5) of choose holds.
//
// For (L4): that server had nothing behind what t's leader wrote. Only that leader and later ones
// write its log from then on. A later one sets the tail to the last entry that is also in its own
// log, which has y (L2). So a log may become less recent, but not less than y. Between two writes
// of a leader the log has the leader's stamp in its middle, and behind that entries which are about
// to go. They came behind y, too.
//
// (L1) is what DARE as published lacks: it commits entries of earlier terms by counting the logs
// that have them [Poke19, section 4.3.3.2]. The stamps of two logs then say nothing of what is
// committed. Package dare has the counterexample (G1).
//
// # The proof
//
// Let L be the most recent log of K. Lemma 1: L has every entry x that was A-delivered anywhere in
// R. By (L5), x was committed, in some term t, together with y. By (L1), c servers had the log of
// t's leader up to y, and K has one of them, s: K has a majority of R's shard, and all of K that
// took part in R remember it. By (L6), s had y before it reported. By (L4) it still has, and its
// last entry is y or behind it, with a stamp of at least t. So L's last entry has a stamp of at
// least t, too, and if it is t, then it is at y or behind it. In that case L has x by (L3). If it
// has a later stamp, the leader of that term had x by (L2), the entry is at x or behind it, and L
// has x by (L3).
//
// Lemma 2: what choose takes is what was A-delivered. Up to d the chain is the same everywhere. The
// server whose log L is A-delivered nothing later than d, so by (L7) its report has all entries of
// L behind d. By (L3) these are the entries of one leader's log, so a round that was A-delivered
// has one value, that of L. Rounds of L behind those were not A-delivered anywhere, and will not
// be: too few servers outside of K are left for (L1). Taking them does no harm.
//
// A learner's head may be further than the heads in K. Then L has all of it by Lemma 1.
//
// If too many servers restarted, K is no majority that remembers. Then the most recent log that is
// left is taken: a best effort, as for other engines.
func (v *survey) tailOfLog(bound Bound) []TailRound {
	var latest *Report
	logs := 0
	for i := range v.promises {
		r := &v.promises[i].Report
		if !v.votes(v.promises[i]) || r.Run != v.run {
			continue
		}
		if logs++; v.fault == FaultTailOfMinority && logs >= v.shard.Quorum() {
			break
		}
		if latest == nil || v.lessRecent(latest, r) {
			latest = r
		}
	}
	if latest == nil {
		return nil
	}
	var tail []TailRound
	for _, vote := range latest.Votes {
		next := v.head.Round + order.Round(len(tail)) + 1
		if vote.Round == next && len(tail) < v.longest(bound) {
			tail = append(tail, vote.TailRound)
		}
	}
	return tail
}

// lessRecent reports whether the log of a is less recent than that of b.
func (v *survey) lessRecent(a, b *Report) bool {
	if v.fault == FaultTailByLength {
		return a.Last.Index < b.Last.Index
	}
	return a.Last.Less(b.Last)
}
