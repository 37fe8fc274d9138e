package node

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/report"
)

// register adds the node's metrics to the registry that /metrics shows.
func (n *Node) register(registry *prometheus.Registry) error {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "ledgerd", Name: name,
			Help: help}, value)
	}
	counter := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "ledgerd", Name: name,
			Help: help}, value)
	}
	height := func(of func(report.Heights) uint64) func() float64 {
		return func() float64 {
			heights, _ := n.pipeline.Heights()
			return float64(of(heights))
		}
	}
	n.forgeries.bundles.WithLabelValues(n.home.Name()) // so that the metric is there from the start
	n.refusedForeseen.WithLabelValues(api.ReasonCode(ledger.StaleNonce))
	var errs []error
	for _, c := range append(n.certificationMetrics(),
		n.forgeries.bundles, n.refusedForeseen,
		collectors.NewGoCollector(), collectors.NewProcessCollector(
			collectors.ProcessCollectorOpts{}),
		gauge("mode", "What the node does: 1 starting, 2 ordering, 3 following, 4 halted, 5 "+
			"stopping.", func() float64 {
			return float64(n.life.nodeMode())
		}),
		gauge("height_ordered", "Height of the last block executed here.",
			height(func(h report.Heights) uint64 {
				return uint64(h.Ordered)
			})),
		gauge("height_stored", "Height of the last block on this disk.",
			height(func(h report.Heights) uint64 {
				return uint64(h.Stored)
			})),
		gauge("height_durable", "Height of the last block on the disks of a majority.",
			height(func(h report.Heights) uint64 {
				return uint64(h.Durable)
			})),
		gauge("height_recorded", "Height of the last block whose round was on this disk before "+
			"the block, with log_rounds; 0 for none.",
			height(func(h report.Heights) uint64 {
				return uint64(h.Recorded)
			})),
		gauge("blocks_absent", "Blocks from before the node's snapshot that it has not fetched "+
			"yet.", func() float64 {
			return float64(n.Store().Absent())
		}),
		gauge("pool_transactions", "Transactions that wait for a block.", func() float64 {
			transactions, _ := n.pool.Size()
			return float64(transactions)
		}),
		gauge("pool_bytes", "Bytes of the bundles that wait for a block.", func() float64 {
			_, bytes := n.pool.Size()
			return float64(bytes)
		}),
		counter("shard_contradictions_total", "Statements of members about other shards that "+
			"contradict what this node believes.", func() float64 {
			return float64(n.crossing.Lies())
		}),
		counter("transactions_total", "Transactions in the chain.", func() float64 {
			return float64(n.pipeline.Total())
		}),
		gauge("generation", "Generation of the ordering group.", func() float64 {
			return float64(n.life.engineState().Generation)
		}),
		gauge("epoch", "Epoch of the engine.", func() float64 {
			return float64(n.life.engineState().Epoch)
		}),
		gauge("round", "Round of the engine.", func() float64 {
			return float64(n.life.engineState().Round)
		}),
		gauge("members", "Members of the group that orders.", func() float64 {
			return float64(len(n.life.engineState().Members))
		}),
		gauge("lane_bytes_sent", "Bytes that the engine put on lanes as frames in this "+
			"generation, or wrote into the memory of others.",
			func() float64 {
				return float64(n.life.driver.Status().Traffic.BytesSent)
			}),
		gauge("clock_offset_ms", "How far this node's clock is ahead of the members' median, in "+
			"milliseconds; 0 if fewer than a majority of the clocks are known.", func() float64 {
			view := n.time.View()
			if !view.Known {
				return 0
			}
			return float64(view.Offset)
		}),
		gauge("clock_confirmed", "1 if the clocks of a majority are near this node's, so that it "+
			"proposes the time of blocks.", func() float64 {
			if n.time.View().Time == ledger.NoTime {
				return 0
			}
			return 1
		}),
		counter("disk_flushes_total", "Files and folders that the store flushed to the disk, to "+
			"make blocks durable.", func() float64 {
			return float64(n.Store().Flushes())
		}),
		counter("records_total", "Times that this node synced complete rounds before they were "+
			"ordered, with log_rounds.", func() float64 {
			return float64(n.pipeline.Records())
		}),
		counter("records_left_out_total", "Records of complete rounds that were left out, because "+
			"they were too large or found no space.", func() float64 {
			return float64(n.pipeline.LeftOut())
		}),
		gauge("journal_blocks", "Blocks that the store's database does not have yet. The journal "+
			"has those that are stored.", func() float64 {
			blocks, _ := n.Store().Unwritten()
			return float64(blocks)
		}),
		gauge("journal_bytes", "Bytes of these blocks.", func() float64 {
			_, bytes := n.Store().Unwritten()
			return float64(bytes)
		}),
		gauge("journal_held_bytes", "Size of the journal's segments whose groups are not "+
			"released: blocks, and records of rounds with log_rounds.", func() float64 {
			return float64(n.Store().JournalBytes())
		}),
		gauge("accounts_in_memory", "Accounts that are in memory as a whole. The others are read "+
			"from the disk when transactions need them.", func() float64 {
			return float64(n.Store().AccountsInMemory())
		}),
		gauge("disk_free_bytes", "Free space on the store's disk.", func() float64 {
			return float64(n.disk.bytes())
		}),
		gauge("disk_low", "1 while the disk is nearly full, so that this node takes no writes.",
			func() float64 {
				if n.disk.low() {
					return 1
				}
				return 0
			}),
	) {
		errs = append(errs, registry.Register(c))
	}
	return errors.Join(errs...)
}
