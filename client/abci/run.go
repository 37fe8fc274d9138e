package abci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Options of Run.
type Options struct {
	Config *Config // from ReadConfig
	// Nodes is where the chain comes from.
	Nodes Source
	// Post submits what clients post, signed by the organisation Config.Post. Without it they
	// cannot post.
	Post Post
	// Report takes events. It is called by one goroutine at a time.
	Report func(Notice)
	// Bound, if set, takes the address that the RPC listens on.
	Bound func(address string)

	poll time.Duration // tests only
}

// Notice says what happened to the feed.
type Notice struct {
	// Event is one of these:
	//   - begin: the application is connected, and has executed everything up to Height
	//   - block: it executed the block of Height
	//   - waiting: it was asked Call about the block of Height, and has not answered for Seconds
	//   - answered: it has, in the end
	//   - retry: something failed, and is tried again
	//   - unkept: the adapter's file could not be written, and is behind
	Event  string `json:"event"`
	Height int64  `json:"height"`
	// Was is the height that the application had before it was connected again. If that is above
	// Height, it lost blocks, and executes them again.
	Was     int64   `json:"was,omitempty"`
	Call    string  `json:"call,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	// Transactions and LeftOut are how many of a block were executed, and how many the application
	// did not accept in one.
	Transactions int    `json:"transactions,omitempty"`
	LeftOut      int    `json:"left_out,omitempty"`
	AppHash      string `json:"app_hash,omitempty"`
	Error        string `json:"error,omitempty"`
}

// Run runs an application on a shard's chain until the context ends, or no retry helps. It returns
// after the last of its goroutines. A block that is being executed when the context ends is
// finished first.
func Run(ctx context.Context, options Options) error {
	lock, err := lockFolder(options.Config.Folder)
	if err != nil {
		return err
	}
	defer lock.Close()
	teller := newTeller(&options)
	app, err := newApplication(options.Config, maxMessageBytes, teller)
	if err != nil {
		return err
	}
	defer app.close()
	kept := newResults(options.Config.Results)
	pool := newPool(&options, app, kept)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var listener net.Listener
	if listen := options.Config.Listen; listen != "" {
		if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", listen); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		if options.Bound != nil {
			options.Bound(listener.Addr().String())
		}
	}
	var parts sync.WaitGroup
	var serving error
	parts.Go(func() { pool.run(ctx) })
	if listener != nil {
		parts.Go(func() {
			serving = newServer(&options, teller, app, kept, pool).serve(ctx, listener)
			cancel()
		})
	}
	f := &follower{options: &options, teller: teller, application: app, results: kept, pool: pool,
		poll: cmp.Or(options.poll, poll)}
	err = f.run(ctx)
	cancel()
	parts.Wait()
	if errors.Is(err, context.Canceled) && serving != nil {
		return serving
	}
	return err
}
