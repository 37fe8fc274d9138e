// Package certification makes the certificates of a node's blocks: it signs what the node stored,
// hears what other members signed, and joins the statements of a majority.
//
//	disk, peers ──Progressed──> due ──sign──> Send to the members
//	other members ──Heard──> collector ──majority──> store.PutCertificate
//	                             └──two blocks of one height──> store.PutEvidence, Alarm
//
// A certificate follows the acknowledgement and is not on the way to it. One goroutine does
// everything, beside the node's rounds.
//
// # What a member signs
//
// Members sync groups of blocks as their disks allow, so they rarely stop at the same block. A
// certificate needs one block that a majority signed. So members sign agreed blocks only: each
// block whose height is a multiple of CheckpointEvery, each block in which a member joined or left,
// and the head as soon as the chain rests. The other blocks are final by the hash chain to the next
// certified block.
//
// # What always holds
//
//   - A member states a block only if its own disk holds it and a majority of the members' disks
//     do, as far as it knows. Members never set such a block aside. So a correct member does not
//     sign two blocks of one height, unless an operator recovered the shard from the loss of a
//     majority (`ledgerd recover`).
//   - Every statement is verified before it counts, and every certificate before it is kept
//     (store.PutCertificate), from whichever node it comes.
//   - A member counts once for a block, and only if it was a member before the block.
//   - What a member may cost is bounded: the statements that are verified for it in a second, and
//     those that are held.
//   - A member that signs two blocks of one height, or another block than a durable one of this
//     chain, leaves evidence. If a majority did so, this node or that majority is on a fork: the
//     alarm stops the node.
//
// # Catching up
//
// Statements are datagrams and may be lost. While a certificate is missing, members repeat their
// last statements, and ask each other for the certificates that they lack. A question is asked
// beside the goroutine, so a peer that does not answer holds up nothing.
//
// A proof has at most ledger.MaxFinalityHeaders headers. Nodes look for certificates that are
// farther apart, and ask for those in between. If nobody has any, as in a chain that is older than
// certificates, the members state some of these blocks, the newest first.
//
// Changes of the members may stay without a certificate for ever: their members may be gone. Nodes
// state the first and the last of them only, and ask for them in turn with what is missing at the
// end.
package certification
