// Entries of a made-up chain that say more than their postings.
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { GetRefundableResponseSchema } from "../src/gen/ledgerd/v1/details_pb";
import type { FakeChain } from "./fake-chain";

const dayMs = 86_400_000;

/**
 * Posts an entry that can be refunded, with an effective date and a key as long as one can be, and
 * then a refund of a part of it. Returns their ids.
 */
export function addDetails(chain: FakeChain, from: string, to: string, timeMs: number): string[] {
  const postings = (payer: string, receiver: string, amount: number) => [
    { account: payer, asset: "EUR", amount: String(-amount) },
    { account: receiver, asset: "EUR", amount: String(amount) },
  ];
  const [signer = "", shop = ""] = [from, to].map((account) => account.split(":")[0]);
  const entry = chain.add(
    [
      {
        signer,
        postings: postings(from, to, 12_345),
        note: "order 4711",
        details: {
          effectiveMs: BigInt(timeMs - 3 * dayMs),
          idempotencyKey: "K".repeat(64),
          refundableUntilMs: BigInt(timeMs + 300 * dayMs),
        },
      },
    ],
    timeMs,
  ).transactions[0]?.status?.idHex;
  const refund = chain.add(
    [
      {
        signer: shop,
        postings: postings(to, from, 345),
        details: { refund: { entryHex: entry ?? "", organisation: signer } },
      },
    ],
    timeMs + 1,
  ).transactions[0]?.status?.idHex;
  return [entry ?? "", refund ?? ""];
}

/** What is left of an entry that can be refunded, if there is one with this id. */
export function refundable(
  chains: readonly FakeChain[],
  entryHex: string,
): MessageInitShape<typeof GetRefundableResponseSchema> | undefined {
  const all = chains.flatMap((chain) => chain.blocks.flatMap(({ transactions }) => transactions));
  const entry = all.find(({ status }) => status?.idHex === entryHex)?.body;
  if (!entry?.details?.refundableUntilMs) return undefined;
  const given = (account: string, asset: string): bigint =>
    all
      .filter(({ body }) => body?.details?.refund?.entryHex === entryHex)
      .flatMap(({ body }) => body?.postings ?? [])
      .filter((posting) => posting.account === account && posting.asset === asset)
      .reduce((sum, { amount }) => sum + BigInt(amount), 0n);
  return {
    untilMs: entry.details.refundableUntilMs,
    left: entry.postings.map(({ account, asset, amount }) => ({
      account,
      asset,
      amount: String(BigInt(amount) + given(account, asset)),
    })),
    waitsHex: "",
  };
}
