package sim

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

// Schedules that once lost acknowledged blocks. Users submit from 6 s to about 12 s.

// down leaves servers without a process from one second to another.
func down(from, to Instant, servers ...order.ServerID) disturbance {
	return disturbance{kind: FaultCrash, at: from * second, until: to * second, server: servers[0],
		servers: servers, text: "down"}
}

// home applies a fault to a server's home. A copy is made at from, and inserted at to. Any other
// fault happens at from, and the server comes back at to.
func home(server order.ServerID, from, to Instant, fault diskFault) disturbance {
	return disturbance{kind: FaultDisk, at: from * second, until: to * second, server: server,
		disk: fault, text: fault.String()}
}

// beyond makes a disturbance happen whatever the other disks forgot.
func beyond(d disturbance) disturbance {
	d.beyond = true
	return d
}

// scenario is a schedule, and the effect of a planted bug on it.
type scenario struct {
	name    string
	servers int
	script  []disturbance
	// plant is a bug that breaks one of the properties with some seed.
	plant      Plant
	properties []order.Property
}

var scenarios = []scenario{
	{
		// 0 loses its data after 0 and 1 made blocks durable. It starts with 2, which was down. 1
		// comes later, with the only copy.
		name: "data lost, and started with the one that was behind", servers: 3,
		script: []disturbance{down(5, 22, 2), down(20, 40, 1), home(0, 20, 22, diskDataLost)},
		plant:  PlantIdentityBeside, properties: []order.Property{Durable, Ordered},
	},
	{
		name: "data lost among five", servers: 5,
		script: []disturbance{down(5, 22, 3, 4), down(20, 40, 1, 2), home(0, 20, 22, diskDataLost)},
		plant:  PlantIdentityBeside, properties: []order.Property{Durable, Ordered},
	},
	{
		name: "an older copy of a home", servers: 3,
		script: []disturbance{down(5, 22, 2), down(20, 40, 1), home(0, 4, 20, diskCopied)},
	},
	{
		name: "an older copy of a home that nobody recognises", servers: 3,
		script: []disturbance{down(5, 22, 2), down(20, 40, 1), home(0, 4, 20, diskCopied)},
		plant:  PlantCopyUnrecognised, properties: []order.Property{Durable, Ordered},
	},
	{
		name: "promises lost while the others work", servers: 5,
		script: []disturbance{home(0, 8, 9, diskPromisesLost)},
	},
	{
		name: "promises lost, and started alone", servers: 3,
		script: []disturbance{down(15, 40, 1, 2), home(0, 15, 17, diskPromisesLost)},
	},
	{
		name: "the old disk comes back when the new one counts", servers: 3,
		script: []disturbance{home(1, 7, 25, diskExchanged)},
	},
	{
		name: "everything lost beside a home that never took part", servers: 3,
		script: []disturbance{down(0, 22, 2), down(20, 40, 1), home(0, 20, 22, diskBothLost)},
	},
	{
		// The disks of 0 and 2 go back to before the blocks that all three know to be durable. They
		// go on; 1 does not follow them.
		name: "a majority is rolled back", servers: 3,
		script: []disturbance{
			down(20, 40, 1), beyond(home(0, 5, 21, diskRolledBack)),
			beyond(home(2, 5, 21, diskRolledBack)),
		},
		plant: PlantDurableNotPersisted, properties: []order.Property{Durable},
	},
}

// TestScenarios runs every schedule with the networks and users of some seeds, and then with a bug.
func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, c := range scenarios {
		for _, engine := range engines {
			t.Run(c.name+" in "+engine, func(t *testing.T) {
				t.Parallel()
				options := Group{Engine: engine, Servers: c.servers}.options(t)
				options.script = c.script
				for i := range options.script {
					options.Faults |= options.script[i].kind
				}
				options.Crashes = 0
				passSeeds(t, options, 1, 30)
				if c.plant == PlantNone {
					return
				}
				options.script = slices.Clone(c.script)
				for i := range options.script {
					if c.plant == PlantCopyUnrecognised && options.script[i].disk == diskCopied {
						options.script[i].disk = diskRolledBack
					}
				}
				options.group.Plant = c.plant
				mustBreakWith(t, options, 30, c.properties)
			})
		}
	}
}

// TestRestartsForkNothing crashes servers again and again, which once made a generation forget
// A-delivered rounds.
func TestRestartsForkNothing(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{3, 5} {
		passSeeds(t, Group{Engine: allconcur.EngineAllConcurPlus, Servers: servers,
			Faults: FaultCrash | FaultPower}.options(t), 1, share(500))
	}
}

// TestLostVotersAreUnknown loses disks under partitions and crashes: a server that lost its disk
// must not count as one that did not vote.
func TestLostVotersAreUnknown(t *testing.T) {
	t.Parallel()
	passSeeds(t, Group{Engine: allconcur.EngineAllConcurPlus, Servers: 5,
		Faults: FaultCrash | FaultPartition | FaultDisk}.options(t), 1, share(500))
}
