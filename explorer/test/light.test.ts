import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { verifyAccountProof } from "../src/lib/accountproof";
import { ed25519 } from "../src/lib/ed25519";
import { decodeGenesis, type Genesis } from "../src/lib/genesis";
import { compare, examine, examineAccount, type NodeReport } from "../src/lib/light";
import { isCallable, originOf, type NodeClient } from "../src/lib/peers";
import { LedgerService } from "../src/gen/ledgerd/v1/ledgerd_pb";
import { FakeLiar, type Lie } from "./fake-liar";
import { FakeNode } from "./fake-node";

let node: FakeNode;
let genesis: Genesis;
const account = "northbank:settlement";
const clientOf = (baseUrl: string): NodeClient =>
  createClient(LedgerService, createConnectTransport({ baseUrl, httpVersion: "1.1" }));
const signal = new AbortController().signal;

beforeAll(async () => {
  node = await FakeNode.start({ blocks: 20, servers: 4, ageMs: 60_000 });
  const decoded = await decodeGenesis(node.chain.genesis.canonical);
  if (decoded.problem !== undefined) throw new Error(decoded.problem);
  genesis = decoded.value;
});
afterAll(async () => {
  await node.stop();
});

async function compared(urls: string[]): Promise<Awaited<ReturnType<typeof compare>>> {
  const signatures = await ed25519();
  const reports: NodeReport[] = [];
  for (const url of urls)
    reports.push(await examine(url, clientOf(url), 0, genesis, signatures, signal));
  return await compare(reports, clientOf, 0, genesis, signatures, signal);
}

test("the proof of an account holds, and none of its bytes can be changed", async () => {
  const { encoded } = await clientOf(node.url).getAccountProof({ account });
  const { value } = await verifyAccountProof(encoded, account);
  expect(value?.height).toBe(node.chain.head);
  const shown = (await clientOf(node.url).getAccount({ account })).account;
  expect(value?.balances.map(({ asset, amount }) => [asset, String(amount)])).toEqual(
    [...(shown?.balances ?? [])]
      .map(({ asset, amount }) => [asset, amount])
      .sort((a, b) => ((a[0] ?? "") < (b[0] ?? "") ? -1 : 1)),
  );
  expect(await verifyAccountProof(encoded, "southbank:settlement")).toHaveProperty("problem");
  const header = [2, 207]; // the header is checked by its certificate, but for the state digest
  for (let i = 0; i < encoded.length; i++) {
    if (i >= (header[0] ?? 0) && i < (header[1] ?? 0)) continue;
    const changed = encoded.slice();
    changed[i] = (changed[i] ?? 0) ^ 1;
    expect(await verifyAccountProof(changed, account), `byte ${i}`).toHaveProperty("problem");
  }
});

test("honest nodes agree, one of another ledger differs, one that is away is silent", async () => {
  const other = await FakeNode.start({ blocks: 20, servers: 4, foundedMs: 7 });
  const away = await FakeNode.start({ blocks: 2 });
  await away.stop();
  try {
    const { reports, fork } = await compared([node.url, node.url, other.url, away.url]);
    expect(fork).toBe(false);
    expect(reports.map(({ stand }) => stand)).toEqual(["agrees", "agrees", "differs", "silent"]);
    expect(reports[2]?.problem).toContain("another genesis");
  } finally {
    await other.stop();
  }
});

const lies: readonly (readonly [Lie, NodeReport["stand"], string, string])[] = [
  ["header", "differs", "is not the one that the members certified", "proves"],
  ["balance", "agrees", "", "it shows another balance than it proves"],
  ["proof", "agrees", "", "its proof does not hold"],
];
for (const [lie, stand, problem, ofAccount] of lies)
  test(`a node that lies about the ${lie} is seen`, async () => {
    const liar = await FakeLiar.start(node.url, lie);
    try {
      const { reports } = await compared([node.url, liar.url]);
      expect(reports[1]?.stand).toBe(stand);
      expect(reports[1]?.problem).toContain(problem);
      const report = await examineAccount(
        liar.url,
        clientOf(liar.url),
        0,
        account,
        genesis,
        await ed25519(),
        signal,
      );
      if (ofAccount === "proves") expect(report.stand).toBe("proves");
      else {
        expect(report.stand).toBe("differs");
        expect(report.problem).toContain(ofAccount);
      }
    } finally {
      await liar.stop();
    }
  });

test("a stale node lags, and what it proves still holds", async () => {
  const liar = await FakeLiar.start(node.url, "stale");
  try {
    node.grow(Date.now());
    const { reports, commonHeight } = await compared([node.url, liar.url]);
    expect(reports.map(({ stand }) => stand)).toEqual(["agrees", "lags"]);
    expect(commonHeight).toBe(node.chain.head - 1n);
    expect(reports[0]?.common).toEqual(reports[1]?.common);
  } finally {
    await liar.stop();
  }
});

test("two certified blocks of one height are a fork", async () => {
  // A node whose chain the same members signed with the same keys, from the same genesis.
  const fork = await FakeNode.start({ blocks: Number(node.chain.head), servers: 4, ageMs: 1_000 });
  try {
    const answer = await compared([node.url, fork.url]);
    expect(answer.fork).toBe(true);
    expect(answer.reports.map(({ stand }) => stand)).toEqual(["differs", "differs"]);
  } finally {
    await fork.stop();
  }
});

test("addresses of nodes", () => {
  for (const [typed, origin] of [
    ["node-2.example:8443", "https://node-2.example:8443"],
    [" http://127.0.0.1:8080/ ", "http://127.0.0.1:8080"],
    ["[::1]:8080", "https://[::1]:8080"],
    ["https://a.example/path", undefined],
    ["https://user@a.example", undefined],
    ["ftp://a.example", undefined],
    ["two words", undefined],
    ["", undefined],
  ] as const)
    expect(originOf(typed, "https:"), typed).toBe(origin);
  for (const [address, callable] of [
    ["127.0.0.1:8080", true],
    ["node.example:443", true],
    ["0.0.0.0:8080", false],
    ["[::]:8080", false],
    [":8080", false],
    ["memory:3", true],
    ["", false],
  ] as const)
    expect(isCallable(address), address).toBe(callable);
});
