#include "textflag.h"

// The constants of SHA-256 (FIPS 180-4, 4.2.2), one for each round.
DATA constants<>+0(SB)/8, $0x71374491428a2f98
DATA constants<>+8(SB)/8, $0xe9b5dba5b5c0fbcf
DATA constants<>+16(SB)/8, $0x59f111f13956c25b
DATA constants<>+24(SB)/8, $0xab1c5ed5923f82a4
DATA constants<>+32(SB)/8, $0x12835b01d807aa98
DATA constants<>+40(SB)/8, $0x550c7dc3243185be
DATA constants<>+48(SB)/8, $0x80deb1fe72be5d74
DATA constants<>+56(SB)/8, $0xc19bf1749bdc06a7
DATA constants<>+64(SB)/8, $0xefbe4786e49b69c1
DATA constants<>+72(SB)/8, $0x240ca1cc0fc19dc6
DATA constants<>+80(SB)/8, $0x4a7484aa2de92c6f
DATA constants<>+88(SB)/8, $0x76f988da5cb0a9dc
DATA constants<>+96(SB)/8, $0xa831c66d983e5152
DATA constants<>+104(SB)/8, $0xbf597fc7b00327c8
DATA constants<>+112(SB)/8, $0xd5a79147c6e00bf3
DATA constants<>+120(SB)/8, $0x1429296706ca6351
DATA constants<>+128(SB)/8, $0x2e1b213827b70a85
DATA constants<>+136(SB)/8, $0x53380d134d2c6dfc
DATA constants<>+144(SB)/8, $0x766a0abb650a7354
DATA constants<>+152(SB)/8, $0x92722c8581c2c92e
DATA constants<>+160(SB)/8, $0xa81a664ba2bfe8a1
DATA constants<>+168(SB)/8, $0xc76c51a3c24b8b70
DATA constants<>+176(SB)/8, $0xd6990624d192e819
DATA constants<>+184(SB)/8, $0x106aa070f40e3585
DATA constants<>+192(SB)/8, $0x1e376c0819a4c116
DATA constants<>+200(SB)/8, $0x34b0bcb52748774c
DATA constants<>+208(SB)/8, $0x4ed8aa4a391c0cb3
DATA constants<>+216(SB)/8, $0x682e6ff35b9cca4f
DATA constants<>+224(SB)/8, $0x78a5636f748f82ee
DATA constants<>+232(SB)/8, $0x8cc7020884c87814
DATA constants<>+240(SB)/8, $0xa4506ceb90befffa
DATA constants<>+248(SB)/8, $0xc67178f2bef9a3f7
GLOBL constants<>(SB), RODATA|NOPTR, $256

// The hash before the first block (5.3.3), in the order in which the instructions have it: F, E, B,
// A, and H, G, D, C.
DATA begin<>+0(SB)/8, $0x510e527f9b05688c
DATA begin<>+8(SB)/8, $0x6a09e667bb67ae85
DATA begin<>+16(SB)/8, $0x1f83d9ab5be0cd19
DATA begin<>+24(SB)/8, $0x3c6ef372a54ff53a
GLOBL begin<>(SB), RODATA|NOPTR, $32

// The places of the bytes of four words in the other order.
DATA flip<>+0(SB)/8, $0x0405060700010203
DATA flip<>+8(SB)/8, $0x0c0d0e0f08090a0b
GLOBL flip<>(SB), RODATA|NOPTR, $16

// func identify(leaf uint32) (eax, ebx, ecx uint32)
TEXT ·identify(SB), NOSPLIT, $0-20
	MOVL leaf+0(FP), AX
	XORL CX, CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL BX, ebx+12(FP)
	MOVL CX, ecx+16(FP)
	RET

// LOAD reads a block as 16 words.
#define LOAD(from, m0, m1, m2, m3) \
	MOVOU  0(from), m0  \
	MOVOU  16(from), m1 \
	MOVOU  32(from), m2 \
	MOVOU  48(from), m3 \
	PSHUFB X14, m0      \
	PSHUFB X14, m1      \
	PSHUFB X14, m2      \
	PSHUFB X14, m3

// FIRST does two rounds with the first two of the four words in now, and LAST two with the others.
#define FIRST(number, s0, s1, now) \
	MOVO        now, X0            \
	PADDD       (16*number)(AX), X0 \
	SHA256RNDS2 X0, s0, s1

#define LAST(s0, s1) \
	PSHUFD      $0x0e, X0, X0 \
	SHA256RNDS2 X0, s1, s0

// NEXT completes the four words of the message schedule that come after those in now. MORE begins
// with those that take the place of the ones in last.
#define NEXT(last, now, next) \
	MOVO       now, X13      \
	PALIGNR    $4, last, X13 \
	PADDD      X13, next     \
	SHA256MSG2 now, next

#define MORE(last, now) \
	SHA256MSG1 now, last

// FOUR does four rounds. The first ones have no words to compute, and the last ones need no more.
#define FOUR(number, s0, s1, last, now, next) \
	FIRST(number, s0, s1, now) \
	LAST(s0, s1)

#define FOURMORE(number, s0, s1, last, now, next) \
	FIRST(number, s0, s1, now) \
	LAST(s0, s1)               \
	MORE(last, now)

#define FOURBOTH(number, s0, s1, last, now, next) \
	FIRST(number, s0, s1, now) \
	NEXT(last, now, next)      \
	LAST(s0, s1)               \
	MORE(last, now)

#define FOURNEXT(number, s0, s1, last, now, next) \
	FIRST(number, s0, s1, now) \
	NEXT(last, now, next)      \
	LAST(s0, s1)

// STORE writes a hash.
#define STORE(s0, s1, to) \
	PSHUFD  $0x1b, s0, X13 \
	PSHUFD  $0xb1, s1, s1  \
	MOVO    X13, s0        \
	PBLENDW $0xf0, s1, s0  \
	PALIGNR $8, X13, s1    \
	PSHUFB  X14, s0        \
	PSHUFB  X14, s1        \
	MOVOU   s0, (to)(DI)   \
	MOVOU   s1, (16+to)(DI)

// The hash of a is in X1 and X2, that of b in X7 and X8. Their words are in X3 to X6 and X9 to X12.
//
// func hashPair(hashes *[2][32]byte, a, b *byte, blocks int)
TEXT ·hashPair(SB), NOSPLIT, $64-32
	MOVQ  hashes+0(FP), DI
	MOVQ  a+8(FP), SI
	MOVQ  b+16(FP), DX
	MOVQ  blocks+24(FP), CX
	LEAQ  constants<>(SB), AX
	MOVOU flip<>(SB), X14
	MOVOU begin<>+0(SB), X1
	MOVOU begin<>+16(SB), X2
	MOVO  X1, X7
	MOVO  X2, X8

block:
	MOVOU X1, state-64(SP)
	MOVOU X2, state-48(SP)
	MOVOU X7, state-32(SP)
	MOVOU X8, state-16(SP)
	LOAD(SI, X3, X4, X5, X6)
	LOAD(DX, X9, X10, X11, X12)

	FOUR(0, X1, X2, X6, X3, X4)
	FOUR(0, X7, X8, X12, X9, X10)
	FOURMORE(1, X1, X2, X3, X4, X5)
	FOURMORE(1, X7, X8, X9, X10, X11)
	FOURMORE(2, X1, X2, X4, X5, X6)
	FOURMORE(2, X7, X8, X10, X11, X12)
	FOURBOTH(3, X1, X2, X5, X6, X3)
	FOURBOTH(3, X7, X8, X11, X12, X9)
	FOURBOTH(4, X1, X2, X6, X3, X4)
	FOURBOTH(4, X7, X8, X12, X9, X10)
	FOURBOTH(5, X1, X2, X3, X4, X5)
	FOURBOTH(5, X7, X8, X9, X10, X11)
	FOURBOTH(6, X1, X2, X4, X5, X6)
	FOURBOTH(6, X7, X8, X10, X11, X12)
	FOURBOTH(7, X1, X2, X5, X6, X3)
	FOURBOTH(7, X7, X8, X11, X12, X9)
	FOURBOTH(8, X1, X2, X6, X3, X4)
	FOURBOTH(8, X7, X8, X12, X9, X10)
	FOURBOTH(9, X1, X2, X3, X4, X5)
	FOURBOTH(9, X7, X8, X9, X10, X11)
	FOURBOTH(10, X1, X2, X4, X5, X6)
	FOURBOTH(10, X7, X8, X10, X11, X12)
	FOURBOTH(11, X1, X2, X5, X6, X3)
	FOURBOTH(11, X7, X8, X11, X12, X9)
	FOURBOTH(12, X1, X2, X6, X3, X4)
	FOURBOTH(12, X7, X8, X12, X9, X10)
	FOURNEXT(13, X1, X2, X3, X4, X5)
	FOURNEXT(13, X7, X8, X9, X10, X11)
	FOURNEXT(14, X1, X2, X4, X5, X6)
	FOURNEXT(14, X7, X8, X10, X11, X12)
	FOUR(15, X1, X2, X5, X6, X3)
	FOUR(15, X7, X8, X11, X12, X9)

	MOVOU state-64(SP), X13
	PADDD X13, X1
	MOVOU state-48(SP), X13
	PADDD X13, X2
	MOVOU state-32(SP), X13
	PADDD X13, X7
	MOVOU state-16(SP), X13
	PADDD X13, X8
	ADDQ  $64, SI
	ADDQ  $64, DX
	DECQ  CX
	JNZ   block
	STORE(X1, X2, 0)
	STORE(X7, X8, 32)
	RET
