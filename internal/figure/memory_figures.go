package figure

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/plan"
	"github.com/ledgerd/ledgerd/sim/network"
)

// Figures 4.x are models alone: nothing is run.

// remoteAccesses makes figure 4.6.
func remoteAccesses(ctx context.Context, f *Figure, _ Options) error {
	f.panel(Panel{Name: "rdma-latency", Title: "(a) Accesses of remote memory", X: "bytes",
		Y: "time [us]", Unit: "us", LogX: true, LogY: true})
	f.panel(Panel{Name: "ud-latency", Title: "(b) Unreliable datagrams", X: "bytes",
		Y: "time [us]", Unit: "us", LogX: true, LogY: true})
	model := network.InfiniBandRDMA
	for bytes := 1; bytes <= 1<<16; bytes *= 2 {
		x := float64(bytes)
		f.add("rdma-latency", "read", x, microseconds(model.ReadTime(bytes)))
		f.add("rdma-latency", "write", x, microseconds(model.WriteTime(bytes)))
		if bytes <= model.Write.MTU { // a datagram is one packet
			f.add("ud-latency", "datagram", x, microseconds(model.DatagramTime(bytes)))
		}
	}
	f.note("The LogGP models of equations 4.1 and 4.2 with the parameters of table 4.1. The "+
		"dissertation's measurements fit them with coefficients of determination above 0.99. "+
		"Up to %d bytes go inline.", model.InlineMax)
	gigabytes := func(gap time.Duration) float64 { return 1024 / float64(gap) }
	f.note("Long transfers: %.3g GB/s read and %.3g written.", gigabytes(model.Read.GapLater),
		gigabytes(model.Write.GapLater))
	return ctx.Err()
}

// memoryReliability makes figure 4.7.
func memoryReliability(ctx context.Context, f *Figure, _ Options) error {
	const epoch = 24 * time.Hour
	f.panel(Panel{Name: "reliability", Title: "Reliability over 24 hours", X: "servers",
		Y: "nines", Unit: "nines"})
	components := []plan.Component{plan.Memory, plan.Server}
	before := 0.0
	drops, steps := 0, 0
	for servers := 3; servers <= 13; servers++ {
		for _, c := range components {
			lost, err := plan.MemoryUnreliability(servers, epoch, c.MTTF)
			if err != nil {
				return err
			}
			f.add("reliability", c.Name, float64(servers), plan.Nines(lost))
			if c != plan.Memory {
				continue
			}
			if servers == 6 || servers == 10 {
				f.note("%d servers: entries get lost with probability %.2g (the dissertation: "+
					"less than on disks with %s).", servers, lost, map[int]string{6: "RAID-5",
					10: "RAID-6"}[servers])
			}
			if servers%2 == 1 && servers > 3 {
				steps++
				if lost > before {
					drops++
				}
			}
			before = lost
		}
	}
	f.note("From an even number of servers to the next odd one reliability drops in %d of %d "+
		"cases (the dissertation: it does), since the majority stays the same.", drops, steps)
	f.note("The line %q is for systems in which a failure of any part of a server takes its "+
		"memory away. The lines of disks are missing: the text does not give their failure rates.",
		plan.Server.Name)
	f.note("%.0f %% of failures leave a zombie, whose memory still works (the dissertation: "+
		"roughly half).", 100*plan.Zombies())
	for _, c := range []plan.Component{plan.Network, plan.NIC, plan.Memory, plan.CPU, plan.Server} {
		f.note("Table 4.2: %s, annual rate %s %%, MTTF %s h, %d nines over 24 hours.", c.Name,
			number(significant(100*c.AnnualFailures, 3)), number(c.MTTF.Hours()),
			int(plan.Nines(c.Fails(epoch))))
	}
	return ctx.Err()
}

// leaderLatency makes figure 4.8, as far as it is the model's.
func leaderLatency(ctx context.Context, f *Figure, _ Options) error {
	const group, request = 5, 64
	f.panel(Panel{Name: "bytes-latency", Title: fmt.Sprintf("%d servers", group), X: "bytes",
		Y: "latency [us]", Unit: "us", LogX: true})
	f.panel(Panel{Name: "servers-latency", Title: fmt.Sprintf("Requests of %d bytes", request),
		X: "servers", Y: "latency [us]", Unit: "us"})
	add := func(panel string, x, servers, bytes int) error {
		bound, err := plan.DAREOf(network.InfiniBandRDMA, servers, bytes)
		if err != nil {
			return err
		}
		f.add(panel, "read", float64(x), microseconds(bound.ReadLatency()))
		f.add(panel, "write", float64(x), microseconds(bound.WriteLatency()))
		return nil
	}
	for bytes := 8; bytes <= 2048; bytes *= 2 {
		if err := add("bytes-latency", bytes, group, bytes); err != nil {
			return err
		}
	}
	for servers := 3; servers <= 11; servers += 2 {
		if err := add("servers-latency", servers, servers, request); err != nil {
			return err
		}
	}
	f.note("The lower bounds of section 4.5.2 alone. With %d servers the dissertation measured "+
		"less than 8 us for reads and 15 us for writes.", group)
	return ctx.Err()
}
