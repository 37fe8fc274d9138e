package abci

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
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
}

// Notice says what happened to the feed.
type Notice struct {
	// Event is begin (the application is connected, and executed everything up to Height), block
	// (it executed a block), or retry (something failed, and is tried again).
	Event  string `json:"event"`
	Height int64  `json:"height"`
	// Transactions and LeftOut are how many of a block were executed, and how many the application
	// did not accept in one.
	Transactions int    `json:"transactions,omitempty"`
	LeftOut      int    `json:"left_out,omitempty"`
	AppHash      string `json:"app_hash,omitempty"`
	Error        string `json:"error,omitempty"`
}

func (o *Options) tell(notice Notice) {
	if o.Report != nil {
		o.Report(notice)
	}
}

// Run runs an application on a shard's chain until the context ends, or no retry helps. It returns
// after the last of its goroutines. A block that is being executed when the context ends is
// finished first.
func Run(ctx context.Context, options Options) error {
	app, err := newApplication(options.Config.Application, maxMessageBytes)
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
			serving = newServer(&options, app, kept, pool).serve(ctx, listener)
			cancel()
		})
	}
	f := &follower{options: &options, application: app, results: kept, pool: pool}
	err = f.run(ctx)
	cancel()
	parts.Wait()
	if errors.Is(err, context.Canceled) && serving != nil {
		return serving
	}
	return err
}
