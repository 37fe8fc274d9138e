package plan

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/sim/network"
)

// ErrQuestion reports that a question has no answer. Match it with errors.Is.
var ErrQuestion = errors.New("plan: invalid question")

// Deployment is a network to plan for. DeploymentOf returns the known ones. Callers may change the
// exported fields to describe their own network.
type Deployment struct {
	// Name is rack, lan, dc or europe.
	Name string
	// Describe states the assumptions, as text for people.
	Describe string
	// Tail is the mean of the part of a heartbeat's delay that exceeds the network's latency:
	// queues, schedulers, garbage collectors. This part is assumed to be exponentially distributed.
	// The value is an assumption and not from the paper; measure it.
	Tail time.Duration
	// Overhead is LogP's o.
	Overhead time.Duration
	// Distance is a further time that each message takes on its way, between any two servers.
	Distance time.Duration
	// Window bounds the unacknowledged bytes of a connection. 0 means no bound, for example if TCP
	// scales its window.
	Window int

	build func(servers int) (site, error)
	// memory is the model of one-sided accesses by the network's adapters. Nil means that an agent
	// at each server makes them.
	memory *network.RDMA
}

// site is a network with a place for each server of the shard. The model may have more servers.
type site struct {
	model network.Model
	// pod and city are the numbers of the model's servers in a pod and in a city; 0 if the model
	// has none.
	pod, city int
	// servers is the number of servers in the shard.
	servers int
}

// deployments are the known deployments.
var deployments = []Deployment{
	{
		Name: "rack",
		Describe: "one rack, InfiniBand Verbs of 32 Gbit/s, LogP as on the cluster of figure " +
			"5.10 (L = 1.25 us, o = 0.38 us), RDMA as of Table 4.1",
		Tail: time.Millisecond, Overhead: network.InfiniBand.Overhead,
		build: func(servers int) (site, error) {
			rack := network.LogP{Name: "rack", Latency: network.InfiniBand.Latency,
				Rate: network.InfiniBand.Rate}
			return site{model: rack.Model(servers), servers: servers}, nil
		},
		memory: &network.InfiniBandRDMA,
	},
	{
		Name: "lan",
		Describe: "one room, 10 Gbit/s, LogP as TCP had it on the cluster of figure 5.10 (L = " +
			"12 us, o = 1.8 us)",
		Tail: 2 * time.Millisecond, Overhead: network.TCP.Overhead,
		build: func(servers int) (site, error) {
			room := network.LogP{Name: "lan", Latency: network.TCP.Latency,
				Rate: 10 * network.Gigabit}
			return site{model: room.Model(servers), servers: servers}, nil
		},
	},
	{
		Name: "dc",
		Describe: "one datacentre, a fat-tree of 1 Gbit/s with one server a subnet (section " +
			"6.5), o = 1.8 us",
		Tail: 5 * time.Millisecond, Overhead: network.TCP.Overhead,
		build: func(servers int) (site, error) {
			half := 2
			for 2*half*half < servers {
				half++
			}
			model, err := network.SDC(2 * half * half)
			return site{model: model, pod: half, servers: servers}, err
		},
	},
	{
		Name: "europe",
		Describe: "five datacentres, " + strings.Join(network.Cities[:],
			", ") + " (section 6.5), a fifth of the servers in each, o = 1.8 us",
		Tail: 20 * time.Millisecond, Overhead: network.TCP.Overhead,
		build: func(servers int) (site, error) {
			half := 2
			for len(network.Cities)*(2*half-1)*half < servers {
				half++
			}
			city := (2*half - 1) * half
			model, err := network.MDC(len(network.Cities) * city)
			return site{model: model, pod: half, city: city, servers: servers}, err
		},
	},
}

// DeploymentOf returns the deployment with a name: rack, lan, dc or europe. The error wraps
// ErrQuestion.
func DeploymentOf(name string) (Deployment, error) {
	for _, d := range deployments {
		if d.Name == name {
			return d, nil
		}
	}
	return Deployment{}, fmt.Errorf("%w: deployment %q, want rack, lan, dc or europe", ErrQuestion,
		name)
}

// site returns the network of a number of servers, with what the exported fields change in it.
func (d Deployment) site(servers int) (site, error) {
	s, err := d.build(servers)
	s.model.Overhead = d.Overhead
	s.model.HostDelay += d.Distance / 2 // a message passes two hosts' cables
	return s, err
}

// place returns the model's server that stands for a server of the shard. Within each city, the
// shard's servers fill one pod after another.
func (s site) place(server int) int {
	if s.city == 0 {
		return server
	}
	cities := len(network.Cities)
	city := server * cities / s.servers
	first := (city*s.servers + cities - 1) / cities
	return city*s.city + server - first
}

// cityOf returns the city of a server of the shard.
func (s site) cityOf(server int) int {
	if s.city == 0 {
		return 0
	}
	return server * len(network.Cities) / s.servers
}

// classes returns the number of classes of paths. All paths of a class take equally long.
func (s site) classes() int { return 2 + len(network.Cities)*len(network.Cities) }

// class returns the class of the path between two servers of the shard.
func (s site) class(from, to int) int {
	if s.pod == 0 {
		return 0
	}
	a, b := s.cityOf(from), s.cityOf(to)
	if a != b {
		return 2 + a*len(network.Cities) + b
	}
	from, to = s.place(from), s.place(to)
	if s.city > 0 {
		from, to = from%s.city, to%s.city
	}
	if from/s.pod == to/s.pod {
		return 0
	}
	return 1
}
