package main

func Example() {
	main()
	// Output:
	// server 0, round 1: "apples" from server 0
	// server 0, round 1: "cherries" from server 1
	// server 1, round 1: "apples" from server 0
	// server 1, round 1: "cherries" from server 1
	// server 2, round 1: "apples" from server 0
	// server 2, round 1: "cherries" from server 1
	// server 2, round 2: "bread" from server 0
	// server 0, round 2: "bread" from server 0
	// server 1, round 2: "bread" from server 0
}
