package search

import "slices"

// serverSet is a set of servers, one bit each.
type serverSet uint16

func (s serverSet) has(p int) bool { return s>>p&1 != 0 }

// list lists the servers, ascending.
func (s serverSet) list() []int {
	var all []int
	for p := range ServersMax {
		if s.has(p) {
			all = append(all, p)
		}
	}
	return slices.Clip(all)
}
