package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/book"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// tooEarlyTime bounds how long a call waits for a chain that is not so far yet. A node of another
// shard asks several members in turn before it gives up, so it is short.
const tooEarlyTime = time.Second

// farAhead is how many blocks a chain can surely not grow while callers ask one member after the
// other.
const farAhead = 10_000

// accountsAtOnce is how many accounts a page at a cut reads at a time.
const accountsAtOnce = 64

// onceThere reads until the chain is as far as the read needs it, for a while. It gives read the
// height of the last durable block.
func (s *Service) onceThere(ctx context.Context, doing string,
	read func(durable ledger.Height) error) error {
	bounded, cancel := context.WithTimeout(ctx, tooEarlyTime)
	defer cancel()
	for {
		heights, changed := s.backend.Heights()
		err := read(heights.Durable)
		if err == nil {
			return nil
		}
		if errors.Is(err, store.ErrFarBack) {
			return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s in shard %d: "+
				"%w: ask for a later cut", doing, s.backend.Store().Shard(), err))
		}
		if !errors.Is(err, store.ErrNotYet) {
			return s.failure(ctx, doing, err)
		}
		select {
		case <-changed:
		case <-bounded.Done():
			if failed := ContextError(ctx); failed != nil {
				return failed
			}
			return Retryable(connect.CodeUnavailable, fmt.Errorf("%s in shard %d: %w: try again",
				doing, s.backend.Store().Shard(), err), nil)
		}
	}
}

// GetPlace returns a place in this shard's chain, once the chain is so far.
func (s *Service) GetPlace(ctx context.Context,
	request *connect.Request[ledgerdv1.GetPlaceRequest]) (
	*connect.Response[ledgerdv1.GetPlaceResponse], error) {
	asked := request.Msg
	if err := s.answersFor(asked.Shard); err != nil {
		return nil, err
	}
	if len(asked.GetStreamed()) > s.mostChildren() {
		return nil, invalid("streamed: shard %d has not as many child shards",
			s.backend.Store().Shard())
	}
	found, err := s.findPlace(ctx, &book.Question{Exact: asked.Carried != nil,
		Carried: asked.GetCarried(), Height: ledger.Height(asked.GetHeight()),
		Time: ledger.Milliseconds(asked.GetTimeMs()), Latest: asked.GetLatest(),
		Streamed: asked.GetStreamed(), Shards: s.askedShards(asked),
		Rehung: int(asked.GetRehung())})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ledgerdv1.GetPlaceResponse{Place: placeToProto(&found),
		TimeMs: uint64(found.Time), Shards: uint32(found.Shards),
		Rehung: uint32(found.Rehung)}), nil
}

// askedShards returns the number of shards of the asker's tree. A version before changes of the
// tree does not say it.
func (s *Service) askedShards(asked *ledgerdv1.GetPlaceRequest) int {
	if asked.GetShards() == 0 {
		return s.backend.Store().BookShards()
	}
	return int(asked.GetShards())
}

// mostChildren bounds the shards right below this one, as far as others may know of them.
func (s *Service) mostChildren() int {
	if s.backend.Store().ShardTree() == nil {
		return 0
	}
	return ledger.MaxShards
}

// findPlace answers a question from this node's store.
func (s *Service) findPlace(ctx context.Context, question *book.Question) (found book.Position,
	err error) {
	if !question.Latest && !question.Exact {
		if err := s.comesSoon(question.Height); err != nil {
			return found, err
		}
	}
	err = s.onceThere(ctx, "finding a place", func(durable ledger.Height) error {
		found, err = book.Find(ctx, s.backend.Store(), question, durable)
		return err
	})
	return found, err
}

// comesSoon returns an error if a block is so far above all heads that this node knows of that no
// member will have it soon. A block that is nearer may come while the call waits, or another member
// may have it.
func (s *Service) comesSoon(height ledger.Height) error {
	head := s.backend.Store().AppendedHeight()
	if height <= head || height-head <= farAhead {
		return nil
	}
	for _, member := range s.backend.ClusterState().Members {
		head = max(head, member.OrderedHeight)
	}
	if height <= head || height-head <= farAhead {
		return nil
	}
	return connect.NewError(connect.CodeOutOfRange, fmt.Errorf("the chain of shard %d ends with "+
		"block %d: ask for an earlier one than %d", s.backend.Store().Shard(), head, height))
}

// GetCut returns the cut of a book of one shard: a place in its chain.
func (s *Service) GetCut(ctx context.Context, request *connect.Request[ledgerdv1.GetCutRequest]) (
	*connect.Response[ledgerdv1.GetCutResponse], error) {
	if s.backend.Store().ShardTree() != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition,
			errors.New("this node answers here for its own shard only"))
	}
	return FindCut(nil, request.Msg, func(questions []book.Question) ([]book.Position, error) {
		found, err := s.findPlace(ctx, &questions[0])
		return []book.Position{found}, err
	})
}

// FindCut finds the cut that a request asks for. It calls ask with the questions that may be asked
// together, until the cut is found. A book of one shard has no tree, nil.
func FindCut(tree *ledger.ShardTree, request *ledgerdv1.GetCutRequest,
	ask func(questions []book.Question) ([]book.Position, error)) (
	*connect.Response[ledgerdv1.GetCutResponse], error) {
	var height *ledger.Height
	if request.Height != nil {
		height = new(ledger.Height)
		*height = ledger.Height(request.GetHeight())
	}
	cut := book.NewCut(tree, height)
	if moment := request.GetBeforeMs(); moment != 0 {
		if height != nil || moment < 2 {
			return nil, invalid("before_ms: a moment from 2 on, and no height beside it")
		}
		cut = book.NewCutNotAfter(tree, ledger.Milliseconds(moment-1))
	}
	for questions := cut.Ask(); len(questions) > 0; questions = cut.Ask() {
		answers, err := ask(questions)
		if err != nil {
			return nil, err
		}
		if err := cut.Answer(answers); errors.Is(err, store.ErrNotYet) {
			return nil, Retryable(connect.CodeUnavailable, fmt.Errorf("%w: try again", err), nil)
		} else if err != nil {
			return nil, contradiction(err)
		}
	}
	positions, answer := cut.Positions(), &ledgerdv1.GetCutResponse{BeforeMs: request.GetBeforeMs()}
	if err := book.CheckCut(tree, positions); err != nil {
		return nil, contradiction(err)
	}
	if tree != nil {
		answer.Root = uint32(tree.Root())
	}
	for i := range positions {
		answer.Places = append(answer.Places, placeToProto(&positions[i]))
	}
	answer.TimeMs = uint64(positions[answer.GetRoot()].Time)
	return connect.NewResponse(answer), nil
}

// contradiction is the error of answers that cannot be right: a node that was asked lies, or has
// another book.
func contradiction(err error) *connect.Error {
	return connect.NewError(connect.CodeInternal, fmt.Errorf("the answers of the shards "+
		"contradict each other: %w: ask another node", err))
}

func placeToProto(position *book.Position) *ledgerdv1.Place {
	return &ledgerdv1.Place{Height: uint64(position.Place.Height), Entries: position.Place.Entries,
		Carried: position.Carried, Streamed: position.Streamed}
}

// PositionsOf converts places.
func PositionsOf(places ...*ledgerdv1.Place) []book.Position {
	positions := make([]book.Position, len(places))
	for i, place := range places {
		positions[i] = book.Position{Place: store.Place{Height: ledger.Height(place.GetHeight()),
			Entries: place.GetEntries()}, Carried: place.GetCarried(),
			Streamed: slices.Clone(place.GetStreamed())}
	}
	return positions
}

// badCut converts book.ErrNoCut to the error of a call.
func badCut(err error) error {
	if errors.Is(err, book.ErrNoCut) {
		return invalid("cut: %w: give the places as GetCut returned them", err)
	}
	return err
}

// Reached is this shard's place of a cut, for the reads of a call. ReachCut alone makes one, so the
// place was checked, wherever the cut came from.
type Reached struct {
	place  store.Place
	caller string // its address
	// later is set if the shard was added after the cut: its chain does not reach back to it.
	later bool
}

// ReachCut returns this shard's place of a cut for the caller at an address, once the chain has it
// durably. It refuses places that are no cut, as far as this chain can tell. Then this node knows
// all organisations that are registered at the cut, and their homes.
func (s *Service) ReachCut(ctx context.Context, caller string,
	places []*ledgerdv1.Place) (Reached, error) {
	reached := Reached{caller: caller}
	cut := PositionsOf(places...)
	if opened := s.backend.Store(); int64(opened.Shard()) >= int64(len(cut)) {
		// The shard was added after the cut, and is at its beginning there. Its chain knows the
		// organisations from before.
		reached.later = true
		return reached, badCut(book.CheckCut(opened.ShardTree(), cut))
	}
	err := s.onceThere(ctx, readingAtCut, func(durable ledger.Height) (err error) {
		reached.place, err = book.PlaceIn(ctx, s.backend.Store(), cut, durable)
		return badCut(err)
	})
	return reached, err
}

// HomesAtCut returns the shards where an organisation may have lived at a cut, and the accounts in
// the others do not count there. There is one, unless this shard was added after the cut: its chain
// does not have the places of earlier moves.
func (s *Service) HomesAtCut(name ledger.OrganisationName, at Reached) []ledger.ShardID {
	opened := s.backend.Store()
	moves := opened.Moves(name)
	if !at.later || len(moves) == 0 {
		return []ledger.ShardID{opened.HomeAtPlace(name, at.place)}
	}
	homes := []ledger.ShardID{opened.HomeShard(name)}
	for i := range moves {
		homes = append(homes, moves[i].From)
	}
	return homes
}

const readingAtCut = "reading at a cut"

// tooFarBack is the reason why a read at a cut gave up.
func (s *Service) tooFarBack() *connect.Error {
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("an account of shard %d "+
		"changed so often since the cut that reading it there takes too much work: ask for a "+
		"later cut, or read the folder of a stopped node with `ledgerd export --cut`",
		s.backend.Store().Shard()))
}

// effort returns the bound of the work of a caller's read at a cut. The read calls done at its end.
func (s *Service) effort(caller string) (effort *store.Effort, done func()) {
	release := func() {}
	most := s.options.MaxReadEffort
	effort = &store.Effort{Most: most, Near: most / 30, Far: func(ctx context.Context) error {
		placed, err := s.limits.readFarBack(ctx, caller)
		if err == nil {
			release = placed
		}
		return err
	}}
	return effort, func() { release() }
}

// gaveUp returns the error of a read at a cut: tooFarBack if its time or its effort was over.
func (s *Service) gaveUp(ctx, bounded context.Context, err error) error {
	if tookTooMuch(ctx, bounded, err) {
		return s.tooFarBack()
	}
	return err
}

// tookTooMuch reports whether a read ended because its time or its effort was over.
func tookTooMuch(ctx, bounded context.Context, err error) bool {
	coded := (*connect.Error)(nil)
	return errors.Is(err, store.ErrFarBack) ||
		err != nil && !errors.As(err, &coded) && bounded.Err() != nil && ctx.Err() == nil
}

// forPage returns a context that bounds the time of a page at a cut, so that its caller gets what
// there is while it still waits.
func (s *Service) forPage(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := s.options.MaxReadTime / 3
	if deadline, has := ctx.Deadline(); has {
		limit = min(limit, time.Until(deadline)/2)
	}
	return context.WithTimeout(ctx, limit)
}

// AccountAtCut returns an account with the balances that it has at a cut, and the terms if the
// store knows them.
func (s *Service) AccountAtCut(ctx context.Context, account string, at Reached) (
	*connect.Response[ledgerdv1.GetAccountResponse], error) {
	path, err := ledger.ParseAccountPath(account)
	if err != nil {
		return nil, invalid("account: %w", err)
	}
	bounded, cancel := s.forPage(ctx)
	defer cancel()
	effort, done := s.effort(at.caller)
	defer done()
	var found ledger.Account
	var known bool // the terms of then
	err = s.onceThere(ctx, readingAtCut, func(ledger.Height) (err error) {
		found, err = s.backend.Store().AccountAt(bounded, path, at.place, effort)
		if err == nil {
			known, err = s.backend.Store().TermsAt(&found, at.place)
		}
		switch {
		case errors.Is(err, store.ErrNotFound):
			opened, name := s.backend.Store(), path.Organisation()
			if opened.IsStranded(name) && opened.HomeAtPlace(name, at.place) == opened.Shard() {
				return s.livesHere(name)
			}
			return notFound("no account %s is open at the cut", path)
		}
		return s.gaveUp(ctx, bounded, err)
	})
	if err != nil {
		return nil, err
	}
	shown := s.accountToProto(&found, at.place.Height)
	shown.TermsAtCut = known
	return connect.NewResponse(&ledgerdv1.GetAccountResponse{AtCut: true, Account: shown}), nil
}

// AccountsAtCut lists accounts as AccountAtCut returns them. The page's token is the last path that
// it looked at.
func (s *Service) AccountsAtCut(ctx context.Context, request *ledgerdv1.ListAccountsRequest,
	at Reached) (*connect.Response[ledgerdv1.ListAccountsResponse], error) {
	size, err := s.pageOfAccounts(request)
	if err != nil {
		return nil, err
	}
	bounded, cancel := s.forPage(ctx)
	defer cancel()
	effort, done := s.effort(at.caller)
	defer done()
	prefix, answer := request.GetPrefix(), &ledgerdv1.ListAccountsResponse{AtCut: true}
	after := ledger.AccountPath(request.GetPageToken())
	if after == "" && prefix != "" {
		// The store lists accounts after a path, and the prefix itself may be an account's path.
		after = ledger.AccountPath(prefix)
		exact, err := s.AccountAtCut(ctx, prefix, at)
		switch connect.CodeOf(err) {
		case connect.CodeNotFound, connect.CodeInvalidArgument: // the prefix is no account
		default:
			if err != nil {
				return nil, err
			}
			answer.Accounts = append(answer.Accounts, exact.Msg.GetAccount())
		}
	}
	for looked := len(answer.GetAccounts()); looked < size; {
		limit := min(size-looked, accountsAtOnce)
		var page []ledger.Account
		var known []bool // which of them have the terms of then
		var last ledger.AccountPath
		var more bool
		err := s.onceThere(ctx, readingAtCut, func(ledger.Height) (err error) {
			page, last, more, err = s.backend.Store().AccountsAt(bounded, at.place, after,
				limit, effort)
			known = make([]bool, len(page))
			for i := 0; i < len(page) && err == nil; i++ {
				known[i], err = s.backend.Store().TermsAt(&page[i], at.place)
			}
			return s.gaveUp(ctx, bounded, err)
		})
		if err != nil && (looked == 0 || bounded.Err() == nil && !effort.Over()) {
			return nil, err
		}
		if err != nil {
			break // the next page begins with the account that takes long
		}
		for i := range page {
			if strings.HasPrefix(string(page[i].Path), prefix) {
				shown := s.accountToProto(&page[i], at.place.Height)
				shown.TermsAtCut = known[i]
				answer.Accounts = append(answer.Accounts, shown)
			}
		}
		if !more || !strings.HasPrefix(string(last), prefix) {
			return connect.NewResponse(answer), nil
		}
		after, looked = last, looked+limit
	}
	answer.NextPageToken = string(after)
	return connect.NewResponse(answer), nil
}
