package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Options of Run. The zero value of each field means its default.
type Options struct {
	Filter Filter
	// Shards are the chains to stream; default: those of all shards, and of shards that are added.
	Shards []ledger.ShardID
	// From is where a stream begins of which the target has nothing: block From of each chain, or
	// From of the shard in FromOf; default: block 1. With FromHead it begins after the head.
	From     ledger.Height
	FromOf   map[ledger.ShardID]ledger.Height
	FromHead bool
	// Once ends each stream at the block that is the last durable one when the stream begins.
	Once bool
	// BatchRecords and BatchBytes bound a batch; default 500 and 4 MiB.
	BatchRecords, BatchBytes int
	// GiveUp ends a stream that made no progress for so long although it tried; default: never, and
	// a minute with Once.
	GiveUp time.Duration
	// Patience is how long a node may be behind the target's mark before that is refused; default
	// 15 s.
	Patience time.Duration
	// Backoff is the pause after the first failure. It doubles up to MaxBackoff; default 200 ms and
	// 30 s.
	Backoff, MaxBackoff time.Duration
	// Poll is how long a call waits for the next block; default 10 s.
	Poll time.Duration
	// CallTime bounds a call to nodes or the opening of the target, WriteTime the writing of a
	// batch; default 1 and 5 minutes.
	CallTime, WriteTime time.Duration
	// Report takes events. It is called by one goroutine at a time.
	Report func(Event)

	mutex *sync.Mutex
}

// Event says what happened to a stream.
type Event struct {
	// Event is begin, progress, retry, lost, end or shards: no node says yet how many shards there
	// are, and the event is of no stream.
	Event string `json:"event"`
	// Shard is that of the stream, and Height and Index the place up to which the target has
	// everything. Durable is the last durable block of the chain, Written how many records were
	// written since the start.
	Shard   ledger.ShardID `json:"shard"`
	Height  ledger.Height  `json:"height"`
	Index   int            `json:"index"`
	Durable ledger.Height  `json:"durable_height"`
	Written uint64         `json:"written"`
	Error   string         `json:"error,omitempty"`
}

func (o *Options) tell(event Event) {
	if o.Report == nil {
		return
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.Report(event)
}

func (o *Options) from(shard ledger.ShardID) ledger.Height {
	if height, named := o.FromOf[shard]; named {
		return height
	}
	return o.From
}

func defaultTo[Value comparable](value *Value, standard Value) {
	var none Value
	if *value == none {
		*value = standard
	}
}

// discoverEvery is how often Run looks for shards that were added to the book.
const discoverEvery = 10 * time.Second

// Run streams the chains to the target until the context ends, all streams are at their end (Once),
// or one of them cannot go on. It returns after the last of its goroutines. It does not close the
// target.
func Run(ctx context.Context, source Source, target Target, options Options) error {
	if err := options.Filter.Validate(); err != nil {
		return Refuse("%w", err)
	}
	options.mutex = new(sync.Mutex)
	if options.Once {
		defaultTo(&options.GiveUp, time.Minute)
	}
	defaultTo(&options.BatchRecords, 500)
	defaultTo(&options.BatchBytes, 4<<20)
	defaultTo(&options.Patience, 15*time.Second)
	defaultTo(&options.Backoff, 200*time.Millisecond)
	defaultTo(&options.MaxBackoff, 30*time.Second)
	defaultTo(&options.Poll, 10*time.Second)
	defaultTo(&options.CallTime, time.Minute)
	defaultTo(&options.WriteTime, 5*time.Minute)
	count, err := countShards(ctx, source, &options)
	if err != nil {
		return err
	}
	shards := options.Shards
	if len(shards) == 0 {
		for shard := range count {
			shards = append(shards, ledger.ShardID(shard))
		}
	}
	for _, shard := range shards {
		if int(shard) >= count {
			return Refuse("there is no shard %d: the book has %d, from 0 to %d", shard, count,
				count-1)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var streams sync.WaitGroup
	var mutex sync.Mutex
	var failed []error
	var opening sync.WaitGroup // the streams that have not tried to begin yet
	all := make(chan struct{})
	begin := func(shard ledger.ShardID, added bool) {
		opened := func() {}
		if !added {
			opening.Add(1)
			opened = sync.OnceFunc(opening.Done)
		}
		streams.Go(func() {
			f := &follower{source: source, target: target, options: &options, shard: shard,
				added: added, opened: opened, all: all}
			defer opened() // after the others are told to end
			if err := f.run(ctx); err != nil {
				mutex.Lock()
				failed = append(failed, err)
				mutex.Unlock()
				cancel(err)
			}
		})
	}
	for _, shard := range slices.Compact(slices.Sorted(slices.Values(shards))) {
		begin(shard, false)
	}
	streams.Go(func() {
		opening.Wait()
		close(all)
	})
	if len(options.Shards) == 0 && !options.Once {
		streams.Go(func() { discover(ctx, source, count, begin) })
	}
	streams.Wait()
	for _, err := range failed {
		if !errors.Is(err, context.Canceled) {
			return err
		}
	}
	if len(failed) > 0 {
		return failed[0]
	}
	return nil
}

// countShards asks how many shards the book has, until a node answers.
func countShards(ctx context.Context, source Source, options *Options) (int, error) {
	begun := time.Now()
	for pauses := 0; ; pauses++ {
		count, err := source.Shards(ctx)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err == nil || final(err):
			return count, err
		case options.GiveUp > 0 && time.Since(begun) >= options.GiveUp:
			return 0, fmt.Errorf("%w; gave up after %s", err, options.GiveUp)
		}
		options.tell(Event{Event: "shards", Error: err.Error()})
		if !pause(ctx, min(options.Backoff<<min(pauses, 16), options.MaxBackoff)) {
			return 0, ctx.Err()
		}
	}
}

// discover begins the streams of shards that are added to the book, from their first block on.
func discover(ctx context.Context, source Source, known int,
	begin func(shard ledger.ShardID, added bool)) {
	for pause(ctx, discoverEvery) {
		count, err := source.Shards(ctx)
		if err != nil {
			continue // the other streams report whether nodes answer
		}
		for ; known < count; known++ {
			begin(ledger.ShardID(known), true)
		}
	}
}
