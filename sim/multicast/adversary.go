package multicast

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
)

// drawFaults draws the faults, within what each group tolerates. Crashes and permanent hangs count
// against it.
func (p *plan) drawFaults(options Options) {
	if engine, err := engineOf(options.Engine, ""); err != nil || !engine.Changes {
		options.Faults &^= faultsOfChange
	}
	if options.Faults == 0 {
		return
	}
	random := stream(options.Seed, faultStream)
	window := p.end + between(random, 50*time.Microsecond, time.Millisecond)
	gone := make([]int, p.deployment.Groups())
	taken := map[order.Replica]bool{}
	// Some runs have a theme: all faults hit one group, or are of one kind.
	theme, target := Faults(0), -1
	if random.IntN(3) == 0 {
		target = random.IntN(p.deployment.Groups())
	}
	if random.IntN(3) == 0 {
		theme = drawKind(random, options.Faults)
	}
	for range random.IntN(faultsMax + 1) {
		var f fault
		f.at = between(random, 0, window)
		if random.IntN(2) == 0 {
			f.after = 1 + random.IntN(30)
			if f.delivers = random.IntN(3) == 0; f.delivers {
				f.after = 1 + random.IntN(6)
			}
			f.at /= 2
		}
		group := order.GroupID(random.IntN(p.deployment.Groups()))
		if target >= 0 {
			group = order.GroupID(target)
		}
		f.victim = order.Replica{Group: group,
			Server: order.ServerID(random.IntN(p.deployment.Sizes[group]))}
		kind := theme
		if kind == 0 {
			kind = drawKind(random, options.Faults)
		}
		if !p.drawFault(random, &f, kind, gone, taken) {
			continue
		}
		f.kind = kind
		p.faults = append(p.faults, f)
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
	for i, f := range p.faults {
		p.faults[i].number = i + 1
		p.end = max(p.end, f.at+f.span)
	}
}

// faultWeights are the relative frequencies of the kinds of fault, in the order of the bits.
var faultWeights = []int{12, 4, 9, 6, 5, 3, 1, 12, 8}

// drawKind draws one of the allowed kinds of fault.
func drawKind(random *rand.Rand, allowed Faults) Faults {
	sum := 0
	for bit, weight := range faultWeights {
		if allowed&(1<<bit) != 0 {
			sum += weight
		}
	}
	draw := random.IntN(sum)
	for bit, weight := range faultWeights {
		if allowed&(1<<bit) == 0 {
			continue
		}
		if draw < weight {
			return 1 << bit
		}
		draw -= weight
	}
	panic(fmt.Sprintf("multicast: no kind of fault to draw from %b", allowed))
}

// drawFault draws the rest of a fault of a kind. It returns false if there is no room for it.
func (p *plan) drawFault(random *rand.Rand, f *fault, kind Faults, gone []int,
	taken map[order.Replica]bool) bool {
	group := f.victim.Group
	members := p.deployment.Members(group)
	spare := gone[group] < p.deployment.Tolerated(group)
	switch kind {
	case FaultCrash:
		if !spare || taken[f.victim] {
			return false
		}
		gone[group]++
		if f.leads = random.IntN(2) == 0; !f.leads {
			taken[f.victim] = true
		}
	case FaultClient:
		f.victim, f.delivers = p.drawClient(random), false
	case FaultSuspect:
		if len(members) == 1 {
			return false
		}
		f.victim.Server = 0 // the group's oracle
		f.other = order.ServerID(random.IntN(len(members)))
		if random.IntN(2) == 0 {
			f.span = between(random, 20*time.Microsecond, 2*time.Millisecond)
		}
		allOfThem := random.IntN(3) == 0
		holds := random.IntN(2) == 0
		if holds {
			f.held = between(random, 20*time.Microsecond, operationTimeout/2)
		}
		if random.IntN(3) == 0 {
			f.turns = 1 + random.IntN(4)
		}
		for _, member := range members {
			if allOfThem || random.IntN(2) == 0 || member.Server == f.other {
				f.told = append(f.told, member)
				f.late = append(f.late, between(random, 0, 200*time.Microsecond))
			}
			if holds && random.IntN(2) == 0 {
				f.others = append(f.others, member)
			}
		}
	case FaultSlow, FaultPartition:
		f.others = p.drawOthers(random, f.victim)
		f.span = between(random, 20*time.Microsecond, operationTimeout/2)
		if kind == FaultPartition {
			f.span = between(random, operationTimeout, 2*operationTimeout)
		}
		return len(f.others) > 0
	case FaultHang:
		if random.IntN(5) == 0 {
			f.victim = p.drawClient(random)
			f.delivers = false
		}
		f.leads = f.victim.Group != order.Clients && random.IntN(2) == 0
		f.span = between(random, 50*time.Microsecond, 4*time.Millisecond)
		if forGood := random.IntN(3) == 0; forGood && f.victim.Group != order.Clients && spare &&
			!taken[f.victim] {
			gone[group]++
			taken[f.victim] = !f.leads
			f.span = 0
		}
	case FaultOverwhelm:
		return len(members) > 1
	case FaultRestart, FaultReconfigure:
		if !spare || taken[f.victim] {
			return false
		}
		gone[group]++
		f.span = between(random, 20*time.Microsecond, 3*time.Millisecond)
		switch {
		case kind == FaultReconfigure: // the victim is the last one
			if random.IntN(3) == 0 {
				f.span = 0
			}
		case random.IntN(2) == 0:
			f.leads = true
		default:
			taken[f.victim] = true
		}
	}
	return true
}

func (p *plan) drawClient(random *rand.Rand) order.Replica {
	return order.Replica{Group: order.Clients,
		Server: order.ServerID(random.IntN(p.deployment.Clients))}
}

// drawOthers draws the other ends of wires: one process that the victim communicates with, or all
// of them.
func (p *plan) drawOthers(random *rand.Rand, victim order.Replica) []order.Replica {
	near := slices.Clone(p.deployment.Members(victim.Group))
	if parent, has := p.deployment.Tree.Parent(victim.Group); has {
		near = append(near, p.deployment.Members(parent)...)
	}
	for _, child := range p.deployment.Tree.Children(victim.Group) {
		near = append(near, p.deployment.Members(child)...)
	}
	for client := range p.deployment.Clients {
		near = append(near, order.Replica{Group: order.Clients, Server: order.ServerID(client)})
	}
	near = slices.DeleteFunc(near, func(r order.Replica) bool { return r == victim })
	if random.IntN(4) == 0 {
		return near
	}
	return near[random.IntN(len(near)):][:1]
}

// String describes the fault.
func (f fault) String() string {
	who := f.victim.String()
	if f.leads {
		who = fmt.Sprintf("the leader of group %d", f.victim.Group)
	}
	span := "for good"
	if f.span > 0 {
		span = "for " + f.span.String()
	}
	when := fmt.Sprintf("at %v", f.at)
	switch {
	case f.after > 0 && f.delivers:
		when = fmt.Sprintf("after %d deliveries past %v", f.after, f.at)
	case f.after > 0:
		when = fmt.Sprintf("after %d steps past %v", f.after, f.at)
	}
	var what string
	switch f.kind {
	case FaultCrash, FaultClient:
		what = who + " crashes"
	case FaultSuspect:
		if f.span == 0 {
			span = "until told otherwise"
		}
		what = fmt.Sprintf("oracles of %v name %d as leader of group %d %s", f.told, f.other,
			f.victim.Group, span)
		if f.turns > 0 {
			what += fmt.Sprintf(", and waver %d times", f.turns)
		}
		if len(f.others) > 0 {
			what += fmt.Sprintf(", while wires of the leader before to %v hold everything for %v,",
				f.others, f.held)
		}
	case FaultSlow:
		what = fmt.Sprintf("wires of %s to %v are slow %s", who, f.others, span)
	case FaultPartition:
		what = fmt.Sprintf("wires of %s to %v are cut %s", who, f.others, span)
	case FaultHang:
		what = fmt.Sprintf("%s hangs %s", who, span)
	case FaultOverwhelm:
		what = fmt.Sprintf("most of group %d crashes", f.victim.Group)
	case FaultRestart:
		what = fmt.Sprintf("%s is down %s, and forgets everything,", who, span)
	case FaultReconfigure:
		what = fmt.Sprintf("the last of group %d leaves it %s", f.victim.Group, span)
	}
	return fmt.Sprintf("fault %d: %s %s", f.number, what, when)
}
