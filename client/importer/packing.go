package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// The lines that are packed together follow from these numbers and the file alone, so that every
// run makes the same bundles, and thus the same ids. They never change.
const (
	// groupLines is the number of lines of a group. Line n is in group (n-1)/groupLines.
	groupLines = 250
	// leastPacked is the number of plain lines, one after the other in a group, that are packed.
	// Fewer are submitted as whole transactions.
	leastPacked = 8
	// maxGroupBytes bounds the lines of a group that is packed. It is far more than groupLines
	// plain lines take.
	maxGroupBytes = maxAheadBytes / 8
)

// openingAccounts bounds the accounts that one transaction opens before a group.
const openingAccounts = 200

// A group has a number for each opening of its accounts, and the openings of its plain lines fit.
var (
	_ [ledger.MaxOpenings - openingAccounts]struct{}
	_ [groupLines - (2*groupLines+openingAccounts-1)/openingAccounts]struct{}
	_ [ledger.MaxBundleTransactions - groupLines]struct{}
	_ [maxAhead - 2*groupLines]struct{}
)

// group is groupLines consecutive lines of the file, which are placed in their lane together and in
// the order of the file. If the group is not complete, it goes as whole transactions, since the
// lines that are packed together would not be known in another run: at the end of the file, where
// an earlier run ended in the middle of a group, or after too many bytes.
type group struct {
	lines  []*line
	bytes  int
	closed bool // there are no more lines
	whole  bool // nothing is packed
	runs   []*packedRun
	// gate waits until the accounts of the packed lines are open. It is no line of the file.
	gate line
}

// packedRun is consecutive plain lines of a group, as one packed bundle.
type packedRun struct {
	bundle *ledger.Bundle // not signed
	first  uint64         // the number of its first line
	whole  bool           // its lines go as whole transactions after all
}

// packed reports whether a job goes in a packed bundle.
func (j *job) packed() bool { return j.run != nil && !j.run.whole }

// packedID returns the id of a line's transaction in its packed bundle.
func (j *job) packedID() ledger.Hash { return j.run.bundle.ID(int(j.line.number - j.run.first)) }

// wholeID returns the id of a line's transaction if it is not packed.
func (j *job) wholeID() (ledger.Hash, error) {
	bundle, err := ledger.NewBundle(j.transaction)
	if err != nil {
		return ledger.Hash{}, err
	}
	return bundle.ID(0), nil
}

// plain returns a line's transaction as one that can be packed, or false. Its accounts must be
// opened before.
func (j *job) plain() (ledger.Transaction, bool) {
	whole := &j.transaction
	if len(whole.Postings) != 2 || len(whole.Note) > 0 {
		return ledger.Transaction{}, false
	}
	from, to := whole.Postings[0], whole.Postings[1]
	if from.Amount.Sign() > 0 {
		from, to = to, from
	}
	taken, err := from.Amount.Neg()
	if err != nil || from.Amount.Sign() >= 0 || taken != to.Amount || from.Asset != to.Asset ||
		from.Account == to.Account {
		return ledger.Transaction{}, false
	}
	return ledger.Transaction{Ledger: whole.Ledger, Signer: whole.Signer, Nonce: whole.Nonce,
		Postings: []ledger.Posting{from, to}}, true
}

// beginPacking decides whether the import packs lines. It is called once the earlier progress is
// known.
func (r *run) beginPacking(ctx context.Context) (err error) {
	if r.tree != nil || len(r.builder.organisations) > 1 || r.options.window < 2*groupLines ||
		r.options.whole {
		return nil
	}
	if r.packs, err = r.nodes.Packs(ctx); err != nil || !r.packs {
		return err
	}
	r.probing = true
	if r.saved.Line%groupLines != 0 {
		r.groups = []*group{{whole: true}}
	}
	return nil
}

// join adds a line to the last group.
func (r *run) join(l *line, bytes int) {
	last := r.lastGroup()
	last.lines = append(last.lines, l)
	if last.bytes += bytes; last.bytes >= maxGroupBytes {
		last.whole = true
	}
}

// lastGroup returns the group that lines are added to.
func (r *run) lastGroup() *group {
	if n := len(r.groups); n > 0 && !r.groups[n-1].closed {
		return r.groups[n-1]
	}
	made := &group{}
	r.groups = append(r.groups, made)
	return made
}

// closeGroup ends the last group, after its last line or at the end of what is imported. It finds
// the lines that are packed, and begins to open their accounts.
func (r *run) closeGroup(ctx context.Context, complete bool) error {
	if n := len(r.groups); n == 0 || r.groups[n-1].closed {
		return nil
	}
	last := r.lastGroup()
	last.closed = true
	if last.whole = last.whole || !complete || r.stopped != nil; last.whole {
		return nil
	}
	if err := last.findRuns(); err != nil {
		return err
	}
	if len(last.runs) == 0 {
		last.whole = true
		return nil
	}
	if r.probing {
		whole, err := r.importedWhole(ctx, last)
		if err != nil {
			return err
		}
		if whole {
			last.goWhole()
			return nil
		}
	}
	r.openAccounts(last)
	return nil
}

// importedWhole reports whether lines of a group were imported as whole transactions: by a program
// that did not pack, before the chain took packed bundles, or when the group was at the end of the
// file. Then all of them go so again, with the ids that they had. The first line shows it, since no
// line is taken before the one before it. If that line is not known in any form, no later line is,
// and no more groups are looked for.
func (r *run) importedWhole(ctx context.Context, its *group) (bool, error) {
	first := slices.IndexFunc(its.lines, func(l *line) bool { return l.posting.run != nil })
	posting := &its.lines[first].posting
	id, err := posting.wholeID()
	if err != nil {
		return false, err
	}
	known, err := r.statusOf(ctx, r.nodes, id)
	if err != nil || known != nil {
		return true, err
	}
	known, err = r.statusOf(ctx, r.nodes, posting.packedID())
	r.probing = known != nil
	return false, err
}

// statusOf returns what the nodes know of a transaction, or nil. It retries while they do not
// answer.
func (r *run) statusOf(ctx context.Context, nodes Nodes,
	id ledger.Hash) (*ledgerdv1.TransactionStatus, error) {
	for {
		known, err := nodes.Transaction(ctx, id)
		switch {
		case err == nil:
			return known.GetStatus(), nil
		case client.CodeOf(err) == connect.CodeNotFound:
			return nil, nil
		case ctx.Err() != nil || !r.mayRetry(err) || !r.patient():
			return nil, err
		}
		nodes.Rotate()
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// findRuns finds the lines that are packed.
func (g *group) findRuns() error {
	var plain []ledger.Transaction
	var assets []ledger.AssetName
	from := 0 // the line of plain[0]
	finish := func() error {
		defer func() { plain, assets = nil, nil }()
		if len(plain) < leastPacked {
			return nil
		}
		bundle, err := ledger.PackBundle(plain...)
		if err != nil {
			return fmt.Errorf("importer: packing %d lines from line %d on: %w", len(plain),
				g.lines[from].number, err)
		}
		made := &packedRun{bundle: bundle, first: g.lines[from].number}
		g.runs = append(g.runs, made)
		for _, each := range g.lines[from : from+len(plain)] {
			each.posting.run = made
		}
		return nil
	}
	for i, each := range g.lines {
		transfer, is := each.posting.plain()
		follows := is && len(plain) > 0 && g.lines[i-1].number+1 == each.number
		if follows && !slices.Contains(assets, transfer.Postings[0].Asset) {
			follows = len(assets) < ledger.MaxPackedAssets
		}
		if !follows {
			if err := finish(); err != nil {
				return err
			}
			from = i
		}
		if is {
			plain = append(plain, transfer)
			if asset := transfer.Postings[0].Asset; !slices.Contains(assets, asset) {
				assets = append(assets, asset)
			}
		}
	}
	return finish()
}

// goWhole makes all lines of a group go as whole transactions.
func (g *group) goWhole() {
	g.whole = true
	for _, run := range g.runs {
		run.whole = true
	}
}

// openAccounts begins to open the accounts of the packed lines that are not known to be open. A
// packed transfer cannot open any. Opening an open account again changes nothing, so these
// transactions need not be the same in every run.
func (r *run) openAccounts(its *group) {
	var missing []ledger.Opening
	seen := make(map[ledger.AccountPath]bool)
	for _, each := range its.lines {
		if each.posting.run == nil {
			continue
		}
		for _, opening := range each.posting.transaction.Openings {
			if !seen[opening.Account] && !r.openings.isOpen(opening.Account) {
				missing = append(missing, opening)
			}
			seen[opening.Account] = true
		}
	}
	its.gate.number, its.gate.group = its.runs[0].first, its
	for part := range slices.Chunk(missing, openingAccounts) {
		number := its.gate.number - its.gate.number%groupLines + uint64(len(its.gate.openings))
		added := &opening{job: job{line: &its.gate, transaction: ledger.Transaction{
			Ledger: r.builder.book, Signer: r.builder.organisations[0].name,
			Nonce:    r.builder.lineNonce(r.builder.organisations[0].openings, number),
			Openings: slices.Clone(part)}}}
		added.opening = added
		added.signs(0)
		its.gate.openings = append(its.gate.openings, added)
	}
	its.gate.waits++ // until all are begun
	for _, each := range its.gate.openings {
		r.open(each)
	}
	its.gate.waits--
	r.proceed(&its.gate)
}

// opened lets a group continue whose accounts are open. If one cannot be opened, the whole
// transactions of the lines find out for which lines that matters.
func (g *group) opened() {
	g.gate.standing = over
	if g.gate.failure != nil {
		g.goWhole()
	}
}

// placeGroups puts the lines of the first groups into their lane, as far as these are ready.
func (r *run) placeGroups() {
	for len(r.groups) > 0 {
		first := r.groups[0]
		if !first.whole && first.gate.standing != over {
			return
		}
		lines := first.lines
		first.lines = nil
		for _, each := range lines {
			r.proceed(each)
		}
		if !first.closed {
			return
		}
		r.groups = r.groups[1:]
	}
}

// unpack makes a bundle of the whole transactions of a packed bundle's lines. A node that refuses
// packed bundles takes it: one that is behind the change of the chain's version.
func (r *run) unpack(ctx context.Context, its *bundle) error {
	its.jobs[0].run.whole = true
	return r.sign(ctx, its)
}

// findOutcomes replaces the statuses of lines whose nonces were taken by the same lines in the
// other form: packed, if these are whole transactions, or the other way round. The ledger executes
// only one of them.
func (r *run) findOutcomes(ctx context.Context, nodes Nodes, its *bundle,
	statuses []*ledgerdv1.TransactionStatus) error {
	for i, each := range its.jobs {
		if each.run == nil ||
			statuses[i].GetReasonCode() != api.ReasonCode(ledger.StaleNonce) {
			continue
		}
		other, err := each.wholeID()
		if err != nil {
			return err
		}
		if !its.bundle.Packed() {
			other = each.packedID()
		}
		found, err := r.statusOf(ctx, nodes, other)
		if err != nil {
			return err
		}
		if found.GetHeight() > 0 {
			statuses[i] = found
		}
	}
	return nil
}

// errNotReached means that a node does not have all transactions of a bundle.
var errNotReached = errors.New("importer: the node does not have all transactions of the bundle")

// await waits until a bundle that a node has is acknowledged, without sending it again.
func (r *run) await(ctx context.Context, nodes Nodes,
	its *bundle) ([]*ledgerdv1.TransactionStatus, error) {
	statuses, err := nodes.WaitAll(ctx, its.bundle.IDs(), r.options.Wait)
	if err != nil {
		return nil, err
	}
	for _, status := range statuses {
		if !client.Reached(status, r.options.Wait) {
			return nil, errNotReached
		}
	}
	return statuses, nil
}
