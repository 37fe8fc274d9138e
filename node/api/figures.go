package api

import (
	"cmp"
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Bounds of the figures: how much one question counts, and how many periods are kept.
const (
	countedBlocks  = 2_000
	countedEntries = 50_000
	maxHours       = 31 * 24
	maxDays        = 3_660
	maxMonths      = 1_200
	maxCrossings   = 20_000 // of all hours, of all days and of all months

	hour ledger.Milliseconds = 3_600_000
	day                      = 24 * hour
)

// GetFigures counts on, and returns what is counted.
//
// A chain does not keep how many of its entries are transactions of users. Nothing but these
// figures needs it, so nodes neither agree on it nor store it. It follows from the blocks, of which
// each question counts some more. A node that starts again counts again once it is asked.
func (s *Service) GetFigures(ctx context.Context,
	request *connect.Request[ledgerdv1.GetFiguresRequest]) (
	*connect.Response[ledgerdv1.GetFiguresResponse], error) {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	if request.Msg.GetHours() > maxHours || request.Msg.GetDays() > maxDays ||
		request.Msg.GetMonths() > maxMonths {
		return nil, invalid("hours: at most %d; days: at most %d; months: at most %d", maxHours,
			maxDays, maxMonths)
	}
	select {
	case s.figures.turn <- struct{}{}:
		defer func() { <-s.figures.turn }()
	case <-ctx.Done():
		return nil, s.failure(ctx, "waiting for figures", ctx.Err())
	}
	opened := s.backend.Store()
	if err := s.figures.count(ctx, opened); err != nil {
		return nil, s.failure(ctx, "counting", err)
	}
	f, crossings := s.figures, request.Msg.GetCrossings()
	return connect.NewResponse(&ledgerdv1.GetFiguresResponse{
		Total: f.total.toProto(crossings), FromHeight: uint64(f.from),
		CountedHeight: uint64(f.height), HeadHeight: uint64(opened.Head().Height),
		Hours:  newest(f.hours, int(request.Msg.GetHours()), crossings),
		Days:   newest(f.days, int(request.Msg.GetDays()), crossings),
		Months: newest(f.months, int(request.Msg.GetMonths()), crossings),
	}), nil
}

// figures are the counts of the blocks from one height to another.
type figures struct {
	turn         chan struct{} // held by the one who counts or reads
	from, height ledger.Height
	hash         ledger.Hash // of the last counted block
	total        figure
	hours, days  []figure // by time
	months       []figure // by time
}

func newFigures() *figures { return &figures{turn: make(chan struct{}, 1)} }

// figure counts the entries of a period.
type figure struct {
	start                                ledger.Milliseconds
	transactions, first, failed, between uint64
	crossings                            []crossing // by the other shard
	forgotten                            bool       // the crossings are left out, for want of room
}

// crossing counts what concerned another shard too, and the verdicts of that shard.
type crossing struct {
	shard                  ledger.ShardID
	transactions, verdicts uint64
}

func (f *figure) add(other *figure) {
	f.transactions += other.transactions
	f.first += other.first
	f.failed += other.failed
	f.between += other.between
	for _, each := range other.crossings {
		*f.crossing(each.shard) = each.plus(*f.crossing(each.shard))
	}
}

// crossing returns the counts of a shard, which it adds if there are none yet.
func (f *figure) crossing(shard ledger.ShardID) *crossing {
	i, found := slices.BinarySearchFunc(f.crossings, shard,
		func(each crossing, shard ledger.ShardID) int { return cmp.Compare(each.shard, shard) })
	if !found {
		f.crossings = slices.Insert(f.crossings, i, crossing{shard: shard})
	}
	return &f.crossings[i]
}

func (c crossing) plus(other crossing) crossing {
	c.transactions += other.transactions
	c.verdicts += other.verdicts
	return c
}

func (f *figure) toProto(crossings bool) *ledgerdv1.Figures {
	shown := &ledgerdv1.Figures{StartMs: uint64(f.start), Transactions: f.transactions,
		First: f.first, Failed: f.failed, Between: f.between}
	if crossings {
		shown.CrossingsForgotten = f.forgotten
		for _, each := range f.crossings {
			shown.Crossings = append(shown.Crossings, &ledgerdv1.Crossings{
				Shard: uint32(each.shard), Transactions: each.transactions,
				Verdicts: each.verdicts})
		}
	}
	return shown
}

// count counts blocks after those that are counted, within the bounds of one question.
func (f *figures) count(ctx context.Context, opened *store.Store) error {
	if err := f.check(opened); err != nil {
		return err
	}
	entries := 0
	for blocks := 0; blocks < countedBlocks && entries < countedEntries &&
		f.height < opened.Head().Height && ctx.Err() == nil; blocks++ {
		block, err := opened.Block(f.height + 1)
		if err != nil {
			return err
		}
		f.take(opened, block)
		entries += block.Len()
	}
	return ctx.Err()
}

// check begins again if the counted blocks are not those of the chain, or if earlier ones have come
// since.
func (f *figures) check(opened *store.Store) error {
	from := opened.Absent() + 1
	same := f.from == from && f.height <= opened.Head().Height
	if same && f.height >= f.from {
		block, err := opened.Block(f.height)
		if err != nil {
			return err
		}
		same = block.Hash == f.hash
	}
	if !same {
		*f = figures{turn: f.turn, from: from, height: from - 1}
	}
	return nil
}

// take counts a block.
func (f *figures) take(opened *store.Store, block *ledger.Block) {
	counted := figureOf(opened, block)
	if f.height < f.from {
		f.total.start = block.Header.Time
	}
	f.height, f.hash = block.Header.Height, block.Hash
	f.total.add(&counted)
	at := block.Header.Time
	f.hours = inPeriod(f.hours, &counted, at-at%hour, maxHours)
	f.days = inPeriod(f.days, &counted, at-at%day, maxDays)
	f.months = inPeriod(f.months, &counted, monthOf(at), maxMonths)
}

// monthOf returns the beginning of the calendar month of a moment, in UTC.
func monthOf(at ledger.Milliseconds) ledger.Milliseconds {
	year, month, _ := time.UnixMilli(int64(at)).UTC().Date()
	return ledger.Milliseconds(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
}

// inPeriod adds a block's figure to that of the period that begins at start, and forgets the oldest
// period if there are too many. Blocks never become younger, so the period is the last one or a new
// one.
func inPeriod(periods []figure, counted *figure, start ledger.Milliseconds,
	most int) []figure {
	if last := len(periods) - 1; last < 0 || periods[last].start < start {
		if len(periods) == most {
			periods = append(periods[:0], periods[1:]...)
		}
		periods = append(periods, figure{start: start})
	}
	periods[len(periods)-1].add(counted)
	if len(counted.crossings) > 0 {
		forgetCrossings(periods, maxCrossings)
	}
	return periods
}

// forgetCrossings keeps the crossings of the newest periods, at most so many in all, but always
// those of the last period.
func forgetCrossings(periods []figure, most int) {
	kept := 0
	for i := len(periods) - 1; i >= 0 && !periods[i].forgotten; i-- {
		kept += len(periods[i].crossings)
		if kept > most && i < len(periods)-1 {
			periods[i].crossings, periods[i].forgotten = nil, true
		}
	}
}

// figureOf counts a block's entries by kind.
func figureOf(opened *store.Store, block *ledger.Block) (counted figure) {
	sharded, own := opened.ShardTree() != nil, opened.Shard()
	for i, entry := range block.All() {
		code := entry.Result.Code
		transaction := entry.Transaction()
		if transaction.Verdict != nil || transaction.Arrival != nil || code == ledger.Relayed {
			counted.between++
			if code == ledger.Released {
				counted.failed++
			}
			if transaction.Verdict != nil {
				counted.crossing(transaction.Verdict.Shard).verdicts++
			}
			continue
		}
		counted.transactions++
		if code != ledger.Applied && code != ledger.SetAside {
			counted.failed++
		}
		lowest := own
		if sharded {
			lowest = ledger.MaxShards
			for _, shard := range opened.Destinations(block, i) {
				lowest = min(lowest, shard)
				if shard != own {
					counted.crossing(shard).transactions++
				}
			}
		}
		if lowest == own {
			counted.first++
		}
	}
	return counted
}

// newest returns the last periods, at most so many.
func newest(periods []figure, most int, crossings bool) []*ledgerdv1.Figures {
	shown := make([]*ledgerdv1.Figures, 0, min(most, len(periods)))
	for i := max(0, len(periods)-most); i < len(periods); i++ {
		shown = append(shown, periods[i].toProto(crossings))
	}
	return shown
}
