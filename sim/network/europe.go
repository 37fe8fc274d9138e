package network

import (
	"fmt"
	"time"
)

// Cities are the places of the five datacentres [Poke19, section 6.5].
var Cities = [...]string{"Dublin", "London", "Paris", "Frankfurt", "Stockholm"}

const (
	cities = len(Cities)
	// fibreRate is the available rate of a fibre between two datacentres. fibreDelay is its delay
	// per kilometre. A fibre is 1.1 times as long as the distance.
	fibreRate  = 10 * Gigabit
	fibreDelay = 5 * time.Microsecond
)

// distances are the distances between the cities, in kilometres.
var distances = [cities][cities]int{
	{0, 464, 779, 1088, 1627},
	{464, 0, 344, 638, 1433},
	{779, 344, 0, 478, 1543},
	{1088, 638, 478, 0, 1186},
	{1627, 1433, 1543, 1186, 0},
}

// FibreDelay returns the delay of the fibre between two datacentres.
func FibreDelay(a, b int) time.Duration {
	return time.Duration(distances[a][b]) * fibreDelay * 11 / 10
}

// europe is five fat-trees of k-1 pods. The remaining port of each core switch leads to the
// datacentre's gateway. A fibre leads from there to each other gateway.
type europe struct {
	trees [cities]fatTree
	// fibres and gateways are the numbers of the first port between two gateways, and of the first
	// port between core switches and gateways.
	fibres, gateways PortID
}

func newEurope(k int) *europe {
	e := &europe{}
	first := PortID(0)
	for city := range e.trees {
		e.trees[city] = fatTree{half: k / 2, pods: k - 1, first: first}
		first += PortID(len(e.trees[city].ports()))
	}
	e.fibres = first
	e.gateways = first + PortID(cities*cities)
	return e
}

// Ports lists the ports of the trees, of the fibres, and for each city those from the core switches
// to the gateway and back.
func (e *europe) Ports() []Port {
	var ports []Port
	for _, tree := range e.trees {
		ports = append(ports, tree.ports()...)
	}
	for a := range cities {
		for b := range cities {
			ports = append(ports, Port{Rate: fibreRate, Delay: FibreDelay(a, b)})
		}
	}
	for range 2 * cities * e.trees[0].half * e.trees[0].half {
		ports = append(ports, Port{Rate: ethernetRate, Delay: switchCableDelay})
	}
	return ports
}

// gateway returns the number of the port between a core switch and its city's gateway, upwards (0)
// or downwards (1).
func (e *europe) gateway(city, direction, aggregation, core int) PortID {
	half := e.trees[0].half
	return e.gateways + PortID(((city*2+direction)*half+aggregation)*half+core)
}

// AppendRoute leads within a datacentre, or up to the gateway, over the fibre and down again.
func (e *europe) AppendRoute(route []PortID, from, to int) []PortID {
	size := e.trees[0].servers()
	a, b := from/size, to/size
	from, to = from%size, to%size
	if a == b {
		return e.trees[a].within(route, from, to)
	}
	aggregation, core := e.trees[a].spread(from, to)
	route = append(e.trees[a].up(route, from, aggregation, core),
		e.gateway(a, 0, aggregation, core), e.fibres+PortID(a*cities+b),
		e.gateway(b, 1, aggregation, core))
	return e.trees[b].down(route, to, aggregation, core)
}

// MDC returns the five datacentres of [Poke19, section 6.5] for n = 5(k-1)k/2 servers with an even
// k >= 4, a fifth of them in each, in the order of Cities. The error wraps ErrModel.
func MDC(servers int) (Model, error) {
	for k := 4; cities*(k-1)*k/2 <= servers; k += 2 {
		if cities*(k-1)*k/2 == servers {
			return ethernet(fmt.Sprintf("five datacentres, fat-trees of %d-port switches", k),
				servers, newEurope(k)), nil
		}
	}
	return Model{}, fmt.Errorf("%w: %d servers do not fill five fat-trees with one server a "+
		"subnet; use 5(k-1)k/2 servers for an even k: 30, 75, 140, 225, 330, 455 and so on",
		ErrModel, servers)
}
