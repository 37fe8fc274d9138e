// Package iso20022 writes a chain as a message of banks: camt.053.001.08, BankToCustomerStatement,
// with a statement of each account and asset.
//
//	err := iso20022.ExportFile(ctx, "chain.xml", source, journal.Options{To: head})
//
// A statement has all entries of one account, and a chain has those of all accounts mixed. So the
// entries are sorted first, in temporary files (spool.go). Memory is bounded.
//
// # What the message can say
//
// A statement begins at zero before block 1 and ends with the last block that was asked for. Its
// entries are those that changed the account, once they took effect. Notes are the remittance
// information; ids, places and signers are beside them. The message has no place for failed
// entries, signatures and proofs.
//
// An amount has up to 18 digits there. ExportFile refuses what is larger (ErrAmount), because a
// statement must not be wrong. A currency has three capitals. Any other asset has the code XXX,
// which stands for no currency, and its name is in the statement's additional information.
package iso20022
