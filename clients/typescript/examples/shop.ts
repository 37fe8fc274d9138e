// Shows the TypeScript client of a running ledger.
//
// It registers an organisation, opens two accounts, issues money from one to the other, waits until
// that is durable, reads the balance and the history, and verifies with the genesis alone that a
// transfer is final and what the account has. Start a ledger, then run it:
//
//     go run ./cmd/ledgerd testnet --dir net --nodes 4 --run
//     cd clients/typescript && npm ci && npm run build
//     node dist/examples/shop.js ../../net/node-0/genesis.json

import { readFileSync } from "node:fs";
import * as ledgerd from "../src/index.js";

const [genesisFile, ...named] = process.argv.slice(2);
if (!genesisFile) throw new Error("name a genesis file");
const addresses = named.length ? named : ["http://127.0.0.1:26600", "http://127.0.0.1:26602"];

// Take the genesis from a source that you trust. Nothing else is believed unverified.
const genesis = ledgerd.Genesis.parse(readFileSync(genesisFile, "utf8"));
// Each run is a new organisation. Keep real keys in a file: see parseKeyFile.
const key = ledgerd.PrivateKey.generate();
// A proof needs the genesis of the organisation's shard: the name decides which one that is.
let [name, tries] = ["", 0];
do name = `shop-${ledgerd.hex(key.public.subarray(0, 4))}-${tries++}`;
while (genesis.shards.length && ledgerd.home(name, genesis.shards.length) !== genesis.shard);
const [mint, till] = [`${name}:mint`, `${name}:till`];
const client = new ledgerd.Client(addresses);
const sender = new ledgerd.Sender(client, genesis.book(), name, key);

// One of several shards takes a registration alone.
const registration = await sender.transaction({
  registrations: [{ organisation: name, keys: [key.public] }],
});
ledgerd.require(await sender.post(registration), "durable");
// An issuer may go below zero: its debt is the money that it issued.
const opening = await sender.transaction({
  openings: [{ account: mint, issuer: true }, { account: till }],
});
ledgerd.require(await sender.post(opening), "durable");
console.log(`${name} is registered, with the accounts ${mint} and ${till}`);

// A transfer is a set of postings that add up to zero. The three are signed once.
const transfers: ledgerd.Transaction[] = [];
for (const value of [100n, 200n, 300n]) {
  const postings = [
    { account: mint, amount: -value },
    { account: till, amount: value },
  ];
  transfers.push(await sender.transaction({ postings, note: `the first ${value}` }));
}
const statuses = await sender.post(transfers);
ledgerd.require(statuses, "durable");
console.log(`three transfers are durable, the last one in block ${statuses.at(-1)?.height}`);

console.log(`${till} holds ${ledgerd.balance(await client.account(till))} unit`);
for await (const entry of client.history(till)) {
  console.log(`  block ${entry.height}: ${entry.changes[0]?.amount} (${entry.note})`);
}

const { proof, auditor } = await client.certifiedProof(transfers[0]!.id(), genesis);
const signers = auditor.signers(proof.finality!.certificate);
const { note } = proof.proof.transaction();
console.log(`${note} is final: ${signers.length} of ${auditor.members.size} members certified it`);

const { account } = (await client.provenAccount(till, genesis)).verify(genesis);
console.log(`${till} is proven to hold ${account.balances[0]?.amount} unit`);
