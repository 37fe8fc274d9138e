package digraph

import "testing"

func TestQuick(t *testing.T) {
	for _, c := range [][3]int{{6, 3, 2}, {8, 3, 2}, {11, 3, 3}, {16, 4, 2}, {22, 4, 3}, {32, 4, 3}, {45, 4, 4}, {64, 5, 4}, {90, 5, 3}, {128, 5, 4}, {256, 7, 4}, {512, 8, 3}, {1024, 11, 4}} {
		d, err := Degree(c[0], Target{})
		g, err2 := GS(c[0], c[1])
		if err2 != nil {
			t.Fatal(err2)
		}
		D, err3 := g.Diameter()
		t.Log(c, d, err, D, err3, g.Connectivity(), MinimalDiameter(c[0], c[1]))
	}
}
