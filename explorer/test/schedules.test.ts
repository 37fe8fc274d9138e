import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { TransactionSummarySchema } from "../src/gen/ledgerd/v1/ledgerd_pb";
import { actions } from "../src/lib/format";
import { periodWords } from "../src/lib/schedules";

test("a period in words", () => {
  expect(periodWords(0, "once")).toBe("once");
  expect(periodWords(1, "months")).toBe("every month");
  expect(periodWords(2, "weeks")).toBe("every 2 weeks");
});

test("what transactions of schedules do", () => {
  const words = (init: Parameters<typeof create<typeof TransactionSummarySchema>>[1]): string =>
    actions(create(TransactionSummarySchema, init));
  expect(words({ schedule: { period: "once" } })).toBe("places a schedule");
  expect(words({ scheduleEnd: { scheduleHex: "07" } })).toBe("ends a schedule");
  expect(words({ occurrence: { number: 3 }, postingCount: 2 })).toBe(
    "occurrence 3 of a schedule, makes 2 postings",
  );
});
