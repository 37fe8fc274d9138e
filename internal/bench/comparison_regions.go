package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// comparedRegions is one host's access to regions of other hosts.
type comparedRegions struct {
	host        rdmanet.RegionHost
	owners      []rdmanet.RegionHost
	regions     []rdmanet.Region
	attachments []rdmanet.Attachment
	queue       rdmanet.Queue
	local       []byte // the source of writes and the target of reads
	completions []rdmanet.Completion
}

// newComparedRegions gives the first host access to a region of each other host. Only the first of
// these regions is large enough for bulk.
func newComparedRegions(ctx context.Context, hosts []rdmanet.Host) (r *comparedRegions, err error) {
	r = &comparedRegions{local: touched(comparedBytes),
		completions: make([]rdmanet.Completion, smallOutstanding)}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.end())
		}
	}()
	for i, host := range hosts {
		regions, can := host.(rdmanet.RegionHost)
		if !can {
			return r, fmt.Errorf("%w: host %d has no regions", ErrParameters, i)
		}
		if i == 0 {
			r.host = regions
			continue
		}
		size := smallOutstanding * smallBytes
		if i == 1 {
			size = comparedBytes
		}
		region, err := regions.Expose(comparedRegion, size)
		if err != nil {
			return r, err
		}
		r.owners, r.regions = append(r.owners, regions), append(r.regions, region)
		if err := region.Grant(r.self(), rdmanet.PermissionReadWrite); err != nil {
			return r, err
		}
		attachment, err := r.host.Attach(ctx, host.ID(), comparedRegion)
		if err != nil {
			return r, err
		}
		r.attachments = append(r.attachments, attachment)
	}
	r.queue, err = r.host.Queue(smallOutstanding)
	return r, err
}

func (r *comparedRegions) self() rdmanet.Peer {
	return rdmanet.Peer{ID: r.host.ID(), Incarnation: r.host.Incarnation()}
}

func (r *comparedRegions) end() (err error) {
	for _, attachment := range r.attachments {
		err = errors.Join(err, attachment.Close())
	}
	for _, region := range r.regions {
		err = errors.Join(err, region.Close())
	}
	if r.queue != nil {
		err = errors.Join(err, r.queue.Close())
	}
	return err
}

// measure adds the measurements of regions to rows.
func (r *comparedRegions) measure(rows map[string]measurement) {
	for _, each := range []struct {
		kind                       rdmanet.OperationKind
		latency, rate, large, huge string
	}{
		{rdmanet.OperationWrite, rowWrite, rowWriteRate, rowWrite64K, rowWrite1M},
		{rdmanet.OperationRead, rowRead, rowReadRate, rowRead64K, rowRead1M},
	} {
		one := rdmanet.Operation{Kind: each.kind, Bytes: r.local[:smallBytes]}
		rows[each.latency] = func(ctx context.Context, slice time.Duration) (float64, error) {
			one.To = r.attachments[0] // another attachment after a revocation
			return medianOf(slice, func() error { return r.do(ctx, one) })
		}
		rows[each.rate] = r.streamOf(each.kind, smallBytes, smallOutstanding, framesPerCall, 1)
		rows[each.large] = r.streamOf(each.kind, largeBytes, writesOutstanding, 1, largeBytes)
		rows[each.huge] = r.streamOf(each.kind, hugeBytes, hugeOutstanding, 1, hugeBytes)
	}
	for targets := 1; targets <= len(r.attachments); targets++ {
		rows[targetsRow(targets, false)] = r.targets(targets, false)
		rows[targetsRow(targets, true)] = r.targets(targets, true)
	}
	rows[rowRevoke], rows[rowRegrant] = r.permission(true), r.permission(false)
}

// do posts operations and waits for all of them.
func (r *comparedRegions) do(ctx context.Context, operations ...rdmanet.Operation) error {
	if err := r.queue.Post(operations...); err != nil {
		return err
	}
	for left := len(operations); left > 0; {
		n, err := r.take(ctx)
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// take waits for completions.
func (r *comparedRegions) take(ctx context.Context) (int, error) {
	n, err := r.queue.Wait(ctx, r.completions)
	if err != nil {
		return 0, err
	}
	for _, completion := range r.completions[:n] {
		if completion.Err != nil {
			return 0, completion.Err
		}
	}
	return n, nil
}

// streamOf keeps the given number of operations outstanding, each at a place of its own, and posts
// together of them in one call. It returns the operations completed in a second, times weight.
func (r *comparedRegions) streamOf(kind rdmanet.OperationKind, size, outstanding, together int,
	weight float64) measurement {
	batch := make([]rdmanet.Operation, together)
	return func(ctx context.Context, slice time.Duration) (float64, error) {
		begun := time.Now()
		done, posted := 0, 0
		for {
			posting := posted == 0 || time.Since(begun) < slice
			if !posting && done == posted {
				return float64(done) * weight / time.Since(begun).Seconds(), nil
			}
			if posting && posted-done+together <= outstanding {
				for i := range batch {
					at := (posted + i) % outstanding * size
					batch[i] = rdmanet.Operation{To: r.attachments[0], Kind: kind, Offset: at,
						Bytes: r.local[at : at+size]}
				}
				if err := r.queue.Post(batch...); err != nil {
					return 0, err
				}
				posted += together
				continue
			}
			n, err := r.take(ctx)
			if err != nil {
				return 0, err
			}
			done += n
		}
	}
}

// targets returns the time until 64 bytes have landed at count owners, awaited one by one or
// together.
func (r *comparedRegions) targets(count int, together bool) measurement {
	batch := make([]rdmanet.Operation, count)
	return func(ctx context.Context, slice time.Duration) (float64, error) {
		for i := range batch {
			batch[i] = rdmanet.Operation{To: r.attachments[i], Kind: rdmanet.OperationWrite,
				Bytes: r.local[:smallBytes]}
		}
		return medianOf(slice, func() error {
			if together {
				return r.do(ctx, batch...)
			}
			for i := range batch {
				if err := r.do(ctx, batch[i:i+1]...); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// permission returns the time to revoke a working attachment, or the time from then on until the
// peer has access again and has written.
func (r *comparedRegions) permission(revoking bool) measurement {
	return func(ctx context.Context, slice time.Duration) (float64, error) {
		var revoke, regrant Histogram
		for begun, first := time.Now(), true; first || time.Since(begun) < slice; first = false {
			before := time.Now()
			if err := r.regions[0].Revoke(r.self()); err != nil {
				return 0, err
			}
			revoked := time.Now()
			if err := r.regions[0].Grant(r.self(), rdmanet.PermissionReadWrite); err != nil {
				return 0, err
			}
			attachment, err := r.host.Attach(ctx, r.owners[0].ID(), comparedRegion)
			if err != nil {
				return 0, err
			}
			old := r.attachments[0]
			r.attachments[0] = attachment
			if err := r.do(ctx, rdmanet.Operation{To: attachment, Kind: rdmanet.OperationWrite,
				Bytes: r.local[:smallBytes]}); err != nil {
				return 0, err
			}
			revoke.Add(revoked.Sub(before))
			regrant.Add(time.Since(revoked))
			if err := old.Close(); err != nil {
				return 0, err
			}
		}
		if revoking {
			return float64(revoke.Quantile(0.50)) / 1e3, nil
		}
		return float64(regrant.Quantile(0.50)) / 1e3, nil
	}
}
