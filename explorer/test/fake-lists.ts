// What a fake node lists: transactions, records, holds and schedules, with the terms of accounts.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import {
  TransactionState,
  type LedgerService,
  type TransactionSummary,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import type { OpenHoldSchema } from "../src/gen/ledgerd/v1/holds_pb";
import type { PolicySchema, TransactionBody } from "../src/gen/ledgerd/v1/transaction_pb";
import { AccountTermsSchema, type AccountTerms } from "../src/gen/ledgerd/v1/terms_pb";
import { hash, summary, type FakeChain } from "./fake-chain";
import { refundable } from "./fake-details";
import { openSchedules } from "./fake-schedules";

type Lists = Pick<
  ServiceImpl<typeof LedgerService>,
  | "listTransactions"
  | "listRecords"
  | "listHolds"
  | "getHold"
  | "listSchedules"
  | "getSchedule"
  | "getRefundable"
  | "getCut"
>;

interface Listed {
  transaction: TransactionSummary;
  timeMs: bigint;
}

/** Terms with everything that terms may have. */
export function fakeTerms(guardian: string): AccountTerms {
  return create(AccountTermsSchema, {
    noCredits: true,
    freeze: "both",
    guardian,
    limits: [
      { asset: "EUR", floor: "100", ceiling: "900000", velocity: "5000", velocitySeconds: 86_400 },
    ],
    metadata: [
      { key: "customer", value: "4711", indexed: true },
      { key: "branch", value: "north", indexed: false },
    ],
  });
}

/** Places three holds, and posts a part of the first one. Returns their ids. */
export function addHolds(chain: FakeChain, account: string, timeMs: number): string[] {
  const [signer = ""] = account.split(":");
  const hold = (amount: string): object => ({
    account,
    asset: "EUR",
    amount,
    to: ["meridian-air:settlement"],
    poster: "meridian-air",
    expiresMs: BigInt(timeMs + 72 * 3_600_000),
  });
  const placed = chain.add(
    ["12000", "700", "9900"].map((amount) => ({ signer, hold: hold(amount) })),
    timeMs,
  );
  const ids = placed.transactions.map(({ status }) => status?.idHex ?? "");
  chain.add(
    [
      {
        signer: "meridian-air",
        holdEnd: { holdHex: ids[0] ?? "", account },
        postings: [
          { account, asset: "EUR", amount: "-8000" },
          { account: "meridian-air:settlement", asset: "EUR", amount: "8000" },
        ],
        note: "two nights",
      },
    ],
    timeMs + 1000,
  );
  return ids;
}

const heightOf = ({ status }: TransactionSummary): number => Number(status?.height ?? 0n);
const isApplied = ({ status }: TransactionSummary): boolean =>
  status?.state !== TransactionState.FAILED && status?.state !== TransactionState.PENDING;

/** The present policy of an organisation: that of its registration, or its last change. */
export function policyOf(chain: FakeChain, name: string): MessageInitShape<typeof PolicySchema> {
  const changed = [...chain.byId.values()].findLast(
    ({ body }) => body?.policy && body.signer === name,
  );
  const publicKey = hash(new TextEncoder().encode(name));
  return changed?.body?.policy ?? { threshold: 1, keys: [{ publicKey, role: "all" }] };
}

export function fakeLists(
  chains: readonly FakeChain[],
  silent: readonly number[],
): Lists {
  const all = (): { listed: Listed; body: TransactionBody | undefined }[] =>
    chains
      .filter(({ shard }) => !silent.includes(shard))
      .flatMap((chain) =>
        chain.blocks.flatMap(({ header, transactions }) =>
          transactions.map((transaction) => ({
            listed: { transaction: summary(transaction), timeMs: header.timeMs },
            body: transaction.body,
          })),
        ),
      )
      .sort(
        ({ listed: a }, { listed: b }) =>
          Number(b.timeMs - a.timeMs) || heightOf(b.transaction) - heightOf(a.transaction),
      );
  const open = (): MessageInitShape<typeof OpenHoldSchema>[] => {
    const rows = all().map(({ listed }) => listed.transaction);
    const ended = new Set(rows.map((transaction) => transaction.holdEnd?.holdHex));
    return rows.flatMap((transaction) =>
      transaction.hold && !ended.has(transaction.status?.idHex)
        ? [{ holdHex: transaction.status?.idHex ?? "", hold: transaction.hold, decimals: 2 }]
        : [],
    );
  };
  return {
    listTransactions: (request) => {
      const found = all()
        .map(({ listed, body }) => ({
          ...listed,
          body,
          value: body?.records.find(({ key }) => key === request.record)?.value ?? new Uint8Array(),
        }))
        .filter(
          ({ transaction, timeMs, value, body }) =>
            transaction.verdict === "" &&
            (request.record === "" || value.length > 0) &&
            (request.kind !== "hold_end" || transaction.holdEnd) &&
            (request.kind !== "hold" || transaction.hold) &&
            (request.kind !== "schedule" || transaction.schedule) &&
            (request.kind !== "schedule_end" || transaction.scheduleEnd) &&
            (request.kind !== "members" || transaction.membershipChange) &&
            (request.kind !== "book" || transaction.book) &&
            (request.kind !== "crossing" || (transaction.status?.destinations.length ?? 0) > 1) &&
            request.kind !== "verdict" &&
            (request.shard === undefined || transaction.status?.shard === request.shard) &&
            (request.status !== "applied" || isApplied(transaction)) &&
            timeMs >= request.fromTimeMs &&
            (request.toTimeMs === 0n || timeMs < request.toTimeMs) &&
            (request.holdHex === "" || transaction.holdEnd?.holdHex === request.holdHex) &&
            transaction.note.includes(request.note) &&
            (request.kind !== "policy" || transaction.policy) &&
            (request.kind !== "registration" || transaction.organisationCount > 0) &&
            (request.organisation === "" ||
              transaction.signer === request.organisation ||
              body?.organisations.some(({ name }) => name === request.organisation)),
        );
      const from = Number(request.pageToken || "0");
      const to = from + (request.pageSize || 50);
      return {
        transactions: found
          .slice(from, to)
          .map(({ transaction, timeMs, value }) => ({ transaction, timeMs, value })),
        nextPageToken: to < found.length ? String(to) : "",
        unansweredShards: [...silent],
        reachedTimeMs: found[Math.min(to, found.length) - 1]?.timeMs ?? 0n,
      };
    },
    listRecords: ({ prefix, pageSize }) => {
      const records = chains.flatMap((chain) =>
        chain.blocks.flatMap(({ header, transactions }) =>
          transactions.flatMap(({ body, status }) =>
            (body?.records ?? []).map((record) => ({
              record,
              height: header.height,
              timeMs: header.timeMs,
              transactionIdHex: status?.idHex ?? "",
              shard: header.shard,
            })),
          ),
        ),
      );
      const found = records
        .filter(({ record }) => record.key.startsWith(prefix))
        .sort((a, b) => (a.record.key < b.record.key ? -1 : 1));
      return { records: found.slice(0, pageSize || 100), unansweredShards: [...silent] };
    },
    listHolds: ({ account, organisation, poster }) => ({
      holds: open().filter(
        ({ hold }) =>
          (account === "" || hold?.account === account) &&
          (organisation === "" || hold?.account?.startsWith(`${organisation}:`)) &&
          (poster === "" || hold?.poster === poster),
      ),
      unansweredShards: [...silent],
    }),
    getHold: ({ holdHex }) => {
      const hold = open().find((each) => each.holdHex === holdHex);
      if (!hold) throw new ConnectError("no such hold is open", Code.NotFound);
      return { hold, height: chains[0]?.head ?? 0n };
    },
    listSchedules: ({ organisation }) => ({
      schedules: openSchedules(chains).filter(
        ({ signer }) => organisation === "" || signer === organisation,
      ),
    }),
    getSchedule: ({ scheduleHex }) => {
      const schedule = openSchedules(chains).find((each) => each.scheduleHex === scheduleHex);
      if (!schedule) throw new ConnectError("it has no occurrences to come", Code.NotFound);
      return { schedule, height: chains[0]?.head ?? 0n };
    },
    getRefundable: ({ entryHex }) => {
      const found = refundable(chains, entryHex);
      if (!found) throw new ConnectError("it cannot be refunded", Code.NotFound);
      return found;
    },
    getCut: () => ({
      places: chains.map((chain) => ({ height: chain.head })),
      timeMs: chains[0]?.blocks.at(-1)?.header.timeMs ?? 0n,
    }),
  };
}
