package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/ledgerd/ledgerd/sim/sweep"
)

// simFailuresShown limits the failing seeds whose evidence is shown. The others are only counted.
const simFailuresShown = 5

// seedRange is the seeds that a command runs, or the one seed that it traces.
type seedRange struct {
	first  uint64
	count  int
	traced bool
}

// runSeeds runs seeds of a simulator and hands each result to take, in the order of the seeds. take
// returns how many seeds have failed so far. If the context ends, that is no error: the results so
// far count. A traced run is always shown whole, without a progress bar.
func runSeeds[R any](ctx context.Context, progress io.Writer, seeds seedRange,
	run func(seed uint64) (R, error), take func(R) (failed int)) error {
	if seeds.traced {
		ctx, progress = context.WithoutCancel(ctx), io.Discard
	}
	bar := newSimProgress(progress, seeds.count)
	err := sweep.Seeds(ctx, seeds.first, seeds.count, run, func(r R) bool {
		bar(take(r))
		return ctx.Err() == nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// err returns the command's error after it ran some of the seeds, or nil.
func (s seedRange) err(ran, failed int, interrupted bool) error {
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d seeds break a property", failed, ran)
	case interrupted:
		return &interruptedError{fmt.Errorf(
			"interrupted after %d of %d seeds; go on with --seed %d", ran, s.count,
			s.first+uint64(ran))}
	}
	return nil
}

// newSimProgress returns a function to call after each seed. If progress is a terminal, the
// function draws a bar once the seeds take longer than a moment.
func newSimProgress(progress io.Writer, seeds int) func(failed int) {
	file, isFile := progress.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return func(int) {}
	}
	const moment = time.Second
	started := time.Now()
	bar := progressbar.NewOptions(seeds, progressbar.OptionSetWriter(progress),
		progressbar.OptionSetDescription("seeds"),
		progressbar.OptionShowCount(), progressbar.OptionThrottle(moment/4),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
	done := 0
	return func(failed int) {
		done++
		if time.Since(started) < moment {
			return
		}
		if failed > 0 {
			bar.Describe(fmt.Sprintf("seeds, %d failing", failed))
		}
		// Go on even if the bar cannot be drawn.
		_ = bar.Set(done)
	}
}
