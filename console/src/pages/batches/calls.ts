// What the pages of batches ask the platform for.
import { connectBatches } from '../../../../src/client/jobs/batches.ts';
import type { BatchRecord } from '../../../../src/client.ts';
import { fillPath } from '../../../../src/wire/routes/route.ts';
import { BATCH_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { caller } from '../../platform/calls.ts';
import { may } from '../../platform/session.ts';
import { pathOf } from '../endpoint/frame.tsx';
import { loadOverview } from '../endpoint/overview-rows.ts';
import { type FailedLines, readFailedLines } from './failed-lines.ts';

export interface BatchKey {
  endpoint: string;
  id: string;
}

export interface ListedBatch extends BatchRecord {
  endpoint: { id: string; name: string };
}

/** Endpoints that the list of all batches asks, in the order of the overview, and batches of each. */
export const ASKED = { endpoints: 50, atOnce: 8, batches: 20 } as const;
/** Bytes of failed lines that a page reads. */
const FAILED_BYTES = 65_536;

export const batchesOf = (endpoint: string) => connectBatches(caller, endpoint);

/** The newest batches of the endpoints whose jobs the key may read. `isPart`: there are others. */
export async function listNewest(
  ended: boolean | undefined,
  signal: AbortSignal,
): Promise<{ batches: ListedBatch[]; isPart: boolean }> {
  const all = (await loadOverview(signal)).filter(
    ({ activity, id }) => activity?.type === 'QUEUE' && may('jobs:read', id),
  );
  const asked = all.slice(0, ASKED.endpoints);
  const batches: ListedBatch[] = [];
  let isPart = asked.length < all.length;
  for (let start = 0; start < asked.length; start += ASKED.atOnce) {
    const some = asked.slice(start, start + ASKED.atOnce);
    const listing = { limit: ASKED.batches, signal, ...(ended !== undefined && { ended }) };
    const pages = await Promise.all(some.map(({ id }) => batchesOf(id).list(listing)));
    for (const [index, page] of pages.entries()) {
      const { id = '', name = '' } = some[index] ?? {};
      isPart ||= page.cursor !== undefined;
      batches.push(...page.batches.map((batch) => ({ ...batch, endpoint: { id, name } })));
    }
  }
  return { batches: batches.sort((a, b) => b.createdAt - a.createdAt), isPart };
}

/** The first failed lines of a batch that has ended. */
export async function loadFailedLines(
  { endpoint, id }: BatchKey,
  signal: AbortSignal,
): Promise<FailedLines> {
  const reader = (await batchesOf(endpoint).results(id, { failed: true, signal })).getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (let bytes = 0; bytes < FAILED_BYTES; ) {
    const { done, value } = await reader.read();
    if (done) return readFailedLines(text, { isWhole: true });
    bytes += value.length;
    text += decoder.decode(value, { stream: true });
  }
  await reader.cancel();
  return readFailedLines(text, { isWhole: false });
}

/** The browser saves the file by itself. */
export function urlOfResults({ endpoint, id }: BatchKey, failed: boolean): string {
  const path = fillPath(BATCH_ROUTES.getBatchResults, { endpoint, batch: id });
  return `${path}?failed=${failed}`;
}

export function pathOfBatch({ endpoint, id }: BatchKey): string {
  return `${pathOf(endpoint)}/batches/${encodeURIComponent(id)}`;
}
