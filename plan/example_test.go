package plan_test

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/plan"
)

// What to expect of 72 servers in one datacentre [Poke19, section 6.5].
func ExampleMake() {
	deployment, err := plan.DeploymentOf("dc")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := plan.Make(plan.Question{Servers: 72, Deployment: deployment, Batch: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("degree %d, diameter %d, survives %d failures\n", p.Degree, p.Diameter, p.Tolerated)
	show := func(engine string, mode plan.Mode) {
		fmt.Printf("%s: %v a round, %.0f thousand transactions a second\n", engine,
			mode.Duration.Round(10*time.Microsecond), mode.Throughput/1000)
	}
	show("AllConcur+", p.Unreliable)
	show("AllConcur", p.Eventual)
	// Output:
	// degree 5, diameter 4, survives 4 failures
	// AllConcur+: 690µs a round, 417 thousand transactions a second
	// AllConcur: 3.79ms a round, 76 thousand transactions a second
}
