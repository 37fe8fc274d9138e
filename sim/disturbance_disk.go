package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// crashes plans that servers crash and come back, again and again, also all at once.
func (d *disturber) crashes() {
	if d.options.Crashes > (d.options.Servers-1)/2 {
		return // crashed servers stay away
	}
	for range d.random.IntN(5) {
		d.addTo(FaultCrash, d.some(), "crash")
	}
}

// powerCuts plans that one, some or all servers lose their power.
func (d *disturber) powerCuts() {
	for range 1 + d.random.IntN(4) {
		d.addTo(FaultPower, d.some(), "without power")
	}
}

// disks plans faults of disks.
func (d *disturber) disks() {
	if d.random.IntN(2) == 0 {
		d.oldDisks()
	}
	for range 1 + d.random.IntN(4) {
		server := d.server()
		fault := diskFault(d.random.IntN(int(diskFaultsEnd)))
		if d.options.group.Plant == PlantCopyUnrecognised && fault == diskCopied {
			fault = diskRolledBack
		}
		d.add(FaultDisk, server, nil, fmt.Sprintf("%d %v", server, fault))
		d.plan[len(d.plan)-1].disk = fault
	}
}

// oldDisks plans that servers get new disks, one after the other, and that old ones come back later
// for a while, of one server or of several at once.
func (d *disturber) oldDisks() {
	at := between(0, d.span/2)(d.random)
	for range 1 + d.random.IntN(d.options.Servers) {
		server := d.server()
		r := d.wait(FaultDisk, fmt.Sprintf("%d %v", server, diskReplaced))
		r.server, r.disk, r.at, r.patience, r.while = server, diskReplaced, at, at+10*second,
			drawDuration(d.random)
		at += between(10*millisecond, 4*second)(d.random)
	}
	for range 1 + d.random.IntN(4) {
		servers := d.some()
		r := d.wait(FaultDisk, fmt.Sprintf("%v %v", servers, diskReturned))
		r.servers, r.disk, r.while = servers, diskReturned, drawDuration(d.random)
		r.at = between(0, at+3*second)(d.random)
		r.patience = r.at + 12*second
	}
}

// some draws one server, several, or all.
func (d *disturber) some() []order.ServerID {
	var some []order.ServerID
	share := d.random.IntN(4)
	for _, server := range d.all() {
		if share == 0 || d.random.IntN(4) < share {
			some = append(some, server)
		}
	}
	if len(some) == 0 {
		some = []order.ServerID{d.server()}
	}
	return some
}

// addTo plans a disturbance of several servers.
func (d *disturber) addTo(kind Faults, servers []order.ServerID, text string) {
	d.add(kind, servers[0], nil, fmt.Sprintf("%v %s", servers, text))
	d.plan[len(d.plan)-1].servers = servers
}
