// Looks through the transactions of a list, page after page. A node does a bounded work for a page,
// and a look covers a bounded number of pages.
import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  ListTransactionsRequestSchema,
  ListedTransaction,
} from "../gen/ledgerd/v1/ledgerd_pb";
import { api, callTimeoutMs } from "./api";

type Request = MessageInitShape<typeof ListTransactionsRequestSchema>;

export const mostPages = 40;

/**
 * Returns the first transaction of a list that is the one wanted. complete says that it was found,
 * or that all of the list was looked at.
 */
export async function findListed(
  request: Request,
  isWanted: (listed: ListedTransaction) => boolean,
  signal: AbortSignal,
): Promise<{ listed: ListedTransaction | undefined; complete: boolean }> {
  let listed: ListedTransaction | undefined;
  const complete = await lookThrough(request, signal, (page) => {
    listed = page.find(isWanted);
    return listed !== undefined;
  });
  return { listed, complete };
}

/** Returns the transactions of a list. complete says that these are all. */
export async function gatherListed(
  request: Request,
  signal: AbortSignal,
): Promise<{ listed: ListedTransaction[]; complete: boolean }> {
  const listed: ListedTransaction[] = [];
  const complete = await lookThrough({ pageSize: 1000, ...request }, signal, (page) => {
    listed.push(...page);
    return false;
  });
  return { listed, complete };
}

/** Hands on the pages of a list until `take` has enough, and says whether it had what there is. */
export async function lookThrough(
  request: Request,
  signal: AbortSignal,
  take: (page: ListedTransaction[]) => boolean,
): Promise<boolean> {
  let pageToken = "";
  let all = true;
  for (let turn = 0; turn < mostPages; turn++) {
    const page = await api.listTransactions(
      { ...request, pageToken },
      { signal, timeoutMs: callTimeoutMs },
    );
    if (take(page.transactions)) return true;
    all &&= page.unansweredShards.length === 0;
    pageToken = page.nextPageToken;
    if (pageToken === "") return all;
  }
  return false;
}
