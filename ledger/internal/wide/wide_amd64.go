package wide

import "golang.org/x/sys/cpu"

// End clears the upper parts of the wide registers, where the processor has any. Call it after code
// that uses them and does not do so itself.
func End() {
	if cpu.X86.HasAVX {
		zeroUpper()
	}
}

// zeroUpper executes the instruction VZEROUPPER.
func zeroUpper()
