// With an assembler file in the package, the compiler accepts declarations of functions without a
// body, as in compactors.go.
