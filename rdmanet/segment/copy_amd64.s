#include "textflag.h"

// Every access to the segment is aligned to its size, 8 or 16 bytes. The accesses are in program
// order: see the package comment.

// func storePairs(to, from unsafe.Pointer, words int)
TEXT ·storePairs(SB), NOSPLIT, $0-24
	MOVQ to+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ words+16(FP), CX
	TESTQ $8, DI
	JZ   aligned
	MOVQ (SI), AX
	MOVQ AX, (DI)
	ADDQ $8, SI
	ADDQ $8, DI
	DECQ CX

aligned:
	SUBQ $8, CX
	JLT  few

eight:
	MOVUPS (SI), X0
	MOVUPS 16(SI), X1
	MOVUPS 32(SI), X2
	MOVUPS 48(SI), X3
	MOVAPS X0, (DI)
	MOVAPS X1, 16(DI)
	MOVAPS X2, 32(DI)
	MOVAPS X3, 48(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $8, CX
	JGE  eight

few:
	ADDQ $6, CX // words left, minus 2
	JLT  last

two:
	MOVUPS (SI), X0
	MOVAPS X0, (DI)
	ADDQ $16, SI
	ADDQ $16, DI
	SUBQ $2, CX
	JGE  two

last:
	TESTQ $1, CX
	JZ   done
	MOVQ (SI), AX
	MOVQ AX, (DI)

done:
	RET

// func loadPairs(to, from unsafe.Pointer, words int)
TEXT ·loadPairs(SB), NOSPLIT, $0-24
	MOVQ to+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ words+16(FP), CX
	LEAQ (DI)(CX*8), DI // both point past the last word
	LEAQ (SI)(CX*8), SI
	TESTQ $8, SI
	JZ   aligned
	MOVQ -8(SI), AX
	MOVQ AX, -8(DI)
	SUBQ $8, SI
	SUBQ $8, DI
	DECQ CX

aligned:
	SUBQ $8, CX
	JLT  few

eight:
	MOVAPS -16(SI), X0
	MOVAPS -32(SI), X1
	MOVAPS -48(SI), X2
	MOVAPS -64(SI), X3
	MOVUPS X0, -16(DI)
	MOVUPS X1, -32(DI)
	MOVUPS X2, -48(DI)
	MOVUPS X3, -64(DI)
	SUBQ $64, SI
	SUBQ $64, DI
	SUBQ $8, CX
	JGE  eight

few:
	ADDQ $6, CX // words left, minus 2
	JLT  last

two:
	MOVAPS -16(SI), X0
	MOVUPS X0, -16(DI)
	SUBQ $16, SI
	SUBQ $16, DI
	SUBQ $2, CX
	JGE  two

last:
	TESTQ $1, CX
	JZ   done
	MOVQ -8(SI), AX
	MOVQ AX, -8(DI)

done:
	RET
