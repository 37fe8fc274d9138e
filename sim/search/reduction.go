package search

import "math/bits"

// persistent returns the servers whose steps the search takes in a state. These steps are a
// persistent set [Godefroid 1996, chapter 4]. It is empty if nothing is left to do.
func (x *explorer) persistent(state []uint32) serverSet {
	var ready, all serverSet
	for p := range x.n {
		s := &x.servers[state[p]]
		if s.stopped {
			continue
		}
		all |= 1 << p
		if len(s.inputs) > 0 {
			ready |= 1 << p
		}
		for _, source := range x.sources[p] {
			if state[x.channels[source*x.n+p]] != 0 {
				ready |= 1 << p
			}
		}
	}
	if x.options.Unreduced || ready&(ready-1) == 0 {
		return ready
	}
	best := ready
	for p := range x.n {
		if !ready.has(p) {
			continue
		}
		if set := x.dependants(state, all, p) & ready; bits.OnesCount16(uint16(set)) <
			bits.OnesCount16(uint16(best)) {
			best = set
		}
	}
	return best
}

// dependants closes {p} under "waits for": a server waits for each working server that may send to
// it and has nothing under way to it.
func (x *explorer) dependants(state []uint32, all serverSet, p int) serverSet {
	set := serverSet(1) << p
	for todo := set; todo != 0; {
		q := bits.TrailingZeros16(uint16(todo))
		todo &^= 1 << q
		for _, source := range x.sources[q] {
			if all.has(source) && !set.has(source) && state[x.channels[source*x.n+q]] == 0 {
				set |= 1 << source
				todo |= 1 << source
			}
		}
	}
	return set
}

// symmetries lists the renamings of servers that change nothing but the names. These are the ones
// that map the model's digraphs to themselves, if its engines treat names alike.
func (x *explorer) symmetries() [][]int {
	if !x.model.nameless {
		return nil
	}
	var all [][]int
	names := make([]int, 0, x.n)
	var used serverSet
	var name func()
	name = func() {
		if len(names) == x.n {
			if x.keeps(names) {
				all = append(all, append([]int(nil), names...))
			}
			return
		}
		for p := range x.n {
			if !used.has(p) {
				used |= 1 << p
				names = append(names, p)
				name()
				names = names[:len(names)-1]
				used &^= 1 << p
			}
		}
	}
	name()
	return all
}

func (x *explorer) keeps(names []int) bool {
	for p := range x.n {
		for q := range x.n {
			if x.model.watch.HasEdge(p, q) != x.model.watch.HasEdge(names[p], names[q]) ||
				p != q && x.model.sends(p, q) != x.model.sends(names[p], names[q]) {
				return false
			}
		}
	}
	return true
}
