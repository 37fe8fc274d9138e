package digraph_test

import (
	"fmt"

	"github.com/ledgerd/ledgerd/digraph"
)

// Sixteen servers, of which any three may fail.
func ExampleGS() {
	g, err := digraph.GS(16, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	diameter, err := g.Diameter()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("server 0 sends to", g.Successors(0))
	fmt.Printf("connectivity %d, diameter %d, at least %d\n", g.Connectivity(), diameter,
		digraph.MinimalDiameter(16, 4))
	fmt.Println("failures tolerated:", digraph.Tolerated(g))
	// Output:
	// server 0 sends to [4 5 6 7]
	// connectivity 4, diameter 2, at least 2
	// failures tolerated: 3
}

// The overlay for a reliability of six nines over 24 hours. Few servers get the complete digraph.
func ExampleReliable() {
	for _, servers := range []int{3, 8, 64, 512} {
		g, err := digraph.Reliable(servers, digraph.Target{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%3d servers: %s of degree %d\n", servers, g.Kind(), g.Degree())
	}
	// Output:
	// 3 servers: complete of degree 2
	//   8 servers: gs of degree 3
	//  64 servers: gs of degree 5
	// 512 servers: gs of degree 8
}

// When servers fail, the paths between the others grow. The bound says how long they can become.
func ExampleDigraph_FaultDiameterBound() {
	g, err := digraph.GS(64, 5)
	if err != nil {
		fmt.Println(err)
		return
	}
	for failures := range 3 {
		steps, err := g.FaultDiameterBound(failures)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d failures: at most %d steps\n", failures, steps)
	}
	// Output:
	// 0 failures: at most 4 steps
	// 1 failures: at most 4 steps
	// 2 failures: at most 5 steps
}

// The tree over which server 2 of six broadcasts in an unreliable round.
func ExampleAppendBinomialChildren() {
	for server := range 6 {
		if children := digraph.AppendBinomialChildren(nil, 6, 2, server); len(children) > 0 {
			fmt.Println("server", server, "sends to", children)
		}
	}
	// Output:
	// server 2 sends to [3 4 0]
	// server 3 sends to [5 1]
}
