package plan

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/sim/network"
)

// ErrQuestion says that a question has no answer; match it with errors.Is.
var ErrQuestion = errors.New("plan: wrong question")

// Deployment is a network to plan for. DeploymentOf gives them; their exported fields may be
// changed for one's own.
type Deployment struct {
	// Name is lan, dc or europe.
	Name string
	// Describe says what is assumed, for people.
	Describe string
	// Tail is the mean of what a heartbeat's delay has beyond the network's latency, distributed
	// exponentially: queues, schedulers, collectors of garbage. It is chosen and not the paper's;
	// measure it.
	Tail time.Duration
	// Overhead is LogP's o.
	Overhead time.Duration
	// Window bounds the bytes of a connection that are not acknowledged; 0 is no bound, as where
	// TCP scales it.
	Window int

	build func(servers int) (site, error)
}

// site is a network with a place for each of our servers.
type site struct {
	model network.Model
	// pod and city are how many of the model's servers are near each other; 0 where there is no
	// such thing.
	pod, city int
	// servers is how many of ours there are.
	servers int
}

// The deployments.
var deployments = []Deployment{
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

// DeploymentOf finds a deployment by its name: lan, dc or europe. The error wraps ErrQuestion.
func DeploymentOf(name string) (Deployment, error) {
	for _, d := range deployments {
		if d.Name == name {
			return d, nil
		}
	}
	return Deployment{}, fmt.Errorf("%w: deployment %q, want lan, dc or europe", ErrQuestion, name)
}

// place is the server of the model that stands for one of ours: within their cities, ours fill the
// pods one by one.
func (s site) place(server int) int {
	if s.city == 0 {
		return server
	}
	cities := len(network.Cities)
	city := server * cities / s.servers
	first := (city*s.servers + cities - 1) / cities
	return city*s.city + server - first
}

// cityOf is the city of one of our servers.
func (s site) cityOf(server int) int {
	if s.city == 0 {
		return 0
	}
	return server * len(network.Cities) / s.servers
}

// classes is how many kinds of ways there are, and class the kind of the way between two of our
// servers: all ways of a kind take equally long.
func (s site) classes() int { return 2 + len(network.Cities)*len(network.Cities) }

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
