// Schedules of a made-up chain, with canonical bytes, so that the ids of their occurrences follow.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { OpenScheduleSchema } from "../src/gen/ledgerd/v1/schedules_pb";
import {
  ScheduleSchema,
  TransactionBodySchema,
  type Schedule,
} from "../src/gen/ledgerd/v1/transaction_pb";
import { concatBytes } from "../src/lib/bytes";
import { occurrenceBody, occurrencesOf, timeOf } from "../src/lib/occurrences";
import { list, sized, uvarint } from "./fake-certificates";
import type { FakeChain } from "./fake-chain";

type Body = MessageInitShape<typeof TransactionBodySchema>;
type ScheduleInit = MessageInitShape<typeof ScheduleSchema>;
const dayMs = 86_400_000;
const periods = ["once", "minutes", "days", "weeks", "months"];
/** The canonical bytes of the transactions that placed the schedules of all fakes, by their ids. */
const placedBy = new Map<string, Uint8Array>();

function amountOf(text: string): Uint8Array {
  const digits = text.replace("-", "");
  const hex = BigInt(digits).toString(16);
  const magnitude = Buffer.from(hex.padStart(hex.length + (hex.length % 2), "0"), "hex");
  return concatBytes(new Uint8Array([magnitude.length | (digits === text ? 0 : 0x80)]), magnitude);
}

/** The bytes of a transaction that places a schedule. */
export function scheduleBody(ledger: Uint8Array, body: Body, schedule: Schedule): Uint8Array {
  const numbers = [body.nonce?.stream, body.nonce?.sequence, body.lastValid, body.deadline];
  const { shard, firstMs, period, every, count, untilMs, postings } = schedule;
  return concatBytes(
    new Uint8Array([18]),
    ledger,
    sized(body.signer ?? ""),
    ...[...numbers, shard, firstMs].map((each) => uvarint(Number(each ?? 0))),
    new Uint8Array([periods.indexOf(period)]),
    ...[every, count, untilMs].map((each) => uvarint(Number(each))),
    list(
      postings.map((posting) =>
        concatBytes(sized(posting.account), sized(posting.asset), amountOf(posting.amount)),
      ),
    ),
    sized(body.note ?? ""),
  );
}

/** The bytes of a transaction that places a schedule, or is an occurrence of one. */
export function scheduledBody(ledger: Uint8Array, body: Body): Uint8Array | undefined {
  if (body.schedule) return scheduleBody(ledger, body, create(ScheduleSchema, body.schedule));
  if (!body.occurrence) return undefined;
  const { scheduleHex = "", number = 0 } = body.occurrence;
  return occurrenceBody(placedBy.get(scheduleHex) ?? new Uint8Array(), scheduleHex, number);
}

/**
 * Places three schedules that take from an account. Months of the first one have passed: its second
 * occurrence failed. The second one was ended, and the third one had its only occurrence.
 */
export function addSchedules(
  chain: FakeChain,
  from: string,
  to: string,
  timeMs: number,
): string[] {
  const [signer = ""] = from.split(":");
  const schedule = (amount: number, more: Omit<ScheduleInit, "$typeName">): Schedule =>
    create(ScheduleSchema, {
      shard: chain.shard,
      postings: [
        { account: from, asset: "EUR", amount: String(-amount) },
        { account: to, asset: "EUR", amount: String(amount) },
      ],
      ...more,
    });
  const monthsAgo = (months: number): bigint => {
    const at = new Date(timeMs);
    return BigInt(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() - months, 1, 8));
  };
  const schedules = [
    schedule(90_000, { firstMs: monthsAgo(13), period: "months", every: 1, count: 48 }),
    schedule(1_250, {
      firstMs: BigInt(timeMs - 60 * dayMs),
      period: "weeks",
      every: 2,
      untilMs: BigInt(timeMs + 300 * dayMs),
    }),
    schedule(7, { firstMs: BigInt(timeMs - 2 * dayMs), period: "once", count: 1 }),
  ];
  const notes = ["rent of the hangar", "", "once"];
  const { transactions } = chain.add(
    schedules.map((each, i) => ({ signer, schedule: each, note: notes[i] ?? "" })),
    timeMs,
  );
  const ids = transactions.map(({ status }) => status?.idHex ?? "");
  for (const [i, { canonical }] of transactions.entries()) placedBy.set(ids[i] ?? "", canonical);
  const occur = (which: number, number: number): Body => ({
    signer,
    postings: schedules[which]?.postings ?? [],
    note: notes[which] ?? "",
    occurrence: {
      scheduleHex: ids[which] ?? "",
      number,
      timeMs: BigInt(timeOf(schedules[which] as Schedule, number)),
    },
  });
  for (let number = 1; number <= 14; number++)
    chain.add([occur(0, number), ...(number <= 3 ? [occur(1, number)] : [])], timeMs + number);
  chain.add(
    [{ signer, scheduleEnd: { shard: chain.shard, scheduleHex: ids[1] ?? "" }, note: "moved out" }],
    timeMs + 20,
  );
  chain.add([occur(2, 1)], timeMs + 21);
  return ids;
}

/** The schedules with occurrences to come. */
export function openSchedules(
  chains: readonly FakeChain[],
): MessageInitShape<typeof OpenScheduleSchema>[] {
  const all = chains.flatMap((chain) => chain.blocks.flatMap(({ transactions }) => transactions));
  const ended = new Set(all.map(({ body }) => body?.scheduleEnd?.scheduleHex));
  return all.flatMap(({ body, status }) => {
    const [schedule, scheduleHex] = [body?.schedule, status?.idHex ?? ""];
    if (!schedule || ended.has(scheduleHex)) return [];
    const issued = all.filter((each) => each.body?.occurrence?.scheduleHex === scheduleHex).length;
    const occurrences = occurrencesOf(schedule);
    const nextMs = BigInt(timeOf(schedule, issued + 1));
    return issued < occurrences
      ? [
          {
            scheduleHex,
            signer: body?.signer ?? "",
            schedule,
            note: body?.note ?? "",
            issued,
            occurrences,
            nextMs,
          },
        ]
      : [];
  });
}
