// Composes the line of history of a job that has ended: its record, and its input and output within a bound.
import type { Reader, StoredEndpoint, StoredJob } from '../../store/store.ts';
import { isTerminal } from '../../wire/job/job.ts';
import type { HistoryPolicy } from '../../wire/resources/fields.ts';
import { joinChunks } from '../payloads/outputs.ts';
import { addMembers, describeDetails, hasOutput } from '../records.ts';

interface LineOptions {
  /** Unique to the line. */
  recordId: string;
  endpoint: Pick<StoredEndpoint, 'id' | 'userId'>;
  now: number;
  policy: Exclude<HistoryPolicy, 'OFF'>;
  payloadBytes: number;
}

/** JSON without a line break. */
export function composeLine(tx: Reader, job: StoredJob, options: LineOptions): string {
  const { endpoint, now, policy, recordId } = options;
  const payloads = policy === 'FULL' ? readPayloads(tx, job, options) : { head: {}, members: {} };
  const head = {
    recordId,
    endpointId: endpoint.id,
    userId: endpoint.userId,
    ...describeDetails(job, now),
    // Its time to live was over, or a caller has removed it.
    ...(!isTerminal(job.status) && { removedAt: now }),
    ...(job.error && { error: job.error }),
    ...(job.usage && { usage: job.usage }),
    ...payloads.head,
  };
  // JSON has line breaks only between its tokens.
  const json = Buffer.concat(addMembers(head, payloads.members)).toString();
  return json.includes('\n') || json.includes('\r') ? json.replaceAll(/[\n\r]+/g, ' ') : json;
}

/** Payloads beyond the bound have only their size. */
function readPayloads(tx: Reader, job: StoredJob, { payloadBytes }: LineOptions) {
  const head: Record<string, number> = {};
  const members: Record<string, Uint8Array> = {};
  const [input, output] = tx.each([readInput, readOutput], (read) => read(tx, job, payloadBytes));
  for (const [name, payload] of Object.entries({ input, output })) {
    if (typeof payload === 'number') head[`${name}Bytes`] = payload;
    else if (payload && payload.length > payloadBytes) head[`${name}Bytes`] = payload.length;
    else if (payload) members[name] = payload;
  }
  return { head, members };
}

type ReadPayload = (tx: Reader, job: StoredJob, max: number) => Uint8Array | number | undefined;

const readInput: ReadPayload = (tx, job, max) => tx.payloadUpTo('input', job, max);

const readOutput: ReadPayload = (tx, job, max) => {
  if (!hasOutput(job)) return undefined;
  if (job.outputKind === 'value') return tx.payloadUpTo('output', job, max);
  return joinChunks(tx, job, max) ?? job.chunkBytes;
};
