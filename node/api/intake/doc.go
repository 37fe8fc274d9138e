// Package intake bounds what a request may take before any of it is decoded.
//
// A request passes three gates, in this order:
//
//	budget.Open(base)         // a call is under way; refused at once if the budget is spent
//	body.Read(...)            // each byte reserves what it may take once it is decoded
//	table.CheckWire(...)      // counts and memory, from the encoded form alone; then it is decoded
//
// # What always holds
//
//   - One table bounds each call: its bytes, the elements of each of its lists, and the memory of
//     its decoded form. A request over a bound is refused before it is unmarshalled.
//   - The decoded form takes at most Limits.Growth bytes a byte of the encoded form, plus base. So
//     the bytes that have arrived bound the memory that the request will take, and a body reserves
//     this memory as it arrives.
//   - All requests under way share one Budget. A request that finds it spent is refused at once and
//     may be sent again. No request waits for memory, so none holds some while it waits.
//   - Requests are not decompressed.
//
// The walk of the wire form follows google.golang.org/protobuf's decoder: a message field that
// occurs again merges into the first, so each occurrence counts; an unknown field is kept as bytes.
// The walk of JSON reads more than the decoder where the two differ: it also counts in fields that
// the decoder skips.
package intake
