// Package protected is what engines over one-sided memory are made of: memory that only the process
// with the permission writes. Its machines are polled. They have no goroutine, no clock and do not
// wait.
//
// # Ways
//
// A process reads and writes regions of others. Ways is its connection to the fabric, and each Way
// leads to one region of one incarnation. A way has lives: Attach begins one, with a Want that the
// driver answers, and Detach ends it. Completions of an earlier life are dropped, so an owner hears
// only of what it posted since it last took the way up.
//
// Operations are collected and posted to all targets together by one Flush [TRAM, section 3]. Each
// post has the kind and the number that its owner gave it. Words up to rdmanet.InlineMax are copied
// when they are posted. The bytes of longer writes stay where they are until the write completes,
// even if the way was given up meanwhile, so each such place has a counter (lent).
//
// # Search
//
// A machine can be copied, and its state appended to bytes, so that sim/multicast's search visits
// every schedule: Copy, Redirect, Reads, Awaits, AppendOperation and Facts.
package protected
