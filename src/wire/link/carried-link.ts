// The five verbs over any carrier. A carrier moves JSON content and bodies of bytes; here is what it moves for each verb, and
// the check of each answer. http-form.ts and worker-stream.ts have the forms of content and bodies on HTTP and gRPC.
import type { WorkerVerb } from '../routes/routes.ts';
import { type Field, FieldFault } from './fields.ts';
import {
  LinkError,
  leaseHeaders,
  type ReportHeader,
  renewReply,
  reportReplies,
  type WorkerIdentity,
  type WorkerLink,
  workerWelcome,
} from './worker-link.ts';

/** A call of a worker. */
export type LinkCall = {
  /** Wait requested by the call itself, ms. Default 0. */
  waitMs?: number;
  signal?: AbortSignal;
} & (
  | { verb: Exclude<WorkerVerb, 'report'>; content: object }
  | {
      verb: 'report';
      content: WorkerIdentity & { reports: ReportHeader[] };
      /** One for each report. */
      bodies: readonly Uint8Array[];
    }
);

export interface LinkAnswer {
  /** Headers of the leases for `take`, replies to the reports for `report`. */
  content: unknown;
  /** Inputs of the leases. */
  bodies: readonly Uint8Array[];
}

/** Makes the call; `read` throws LinkError if the answer is none. */
type Carry = <T>(call: LinkCall, read: (answer: LinkAnswer) => T) => Promise<T>;

const NO_BYTES = new Uint8Array(0);

export function carryLink(carry: Carry): WorkerLink {
  return {
    hello: (content) =>
      carry({ verb: 'hello', content }, (answer) => readContent(answer, workerWelcome)),
    take: (content, signal) =>
      carry({ verb: 'take', content, signal, waitMs: content.waitMs }, (answer) =>
        readContent(answer, leaseHeaders).map((header, index) => ({
          ...header,
          input: answer.bodies[index] ?? NO_BYTES,
        })),
      ),
    renew: (content, signal) =>
      carry({ verb: 'renew', content, signal, waitMs: content.waitMs }, (answer) =>
        readContent(answer, renewReply),
      ),
    report: ({ reports, ...caller }) => {
      const headers = reports.map(({ body: _, ...header }) => header);
      const bodies = reports.map(({ body }) => body);
      const content = { ...caller, reports: headers };
      return carry({ verb: 'report', content, bodies }, (answer) => {
        const replies = readContent(answer, reportReplies);
        if (replies.length === reports.length) return replies;
        throw refuseAnswer(`${replies.length} answers to ${reports.length} reports`);
      });
    },
    bye: (content) => carry({ verb: 'bye', content }, () => undefined),
  };
}

/** @throws LinkError */
function readContent<T>({ content }: LinkAnswer, message: Field<T>): T {
  try {
    return message.read(content);
  } catch (error) {
    throw error instanceof FieldFault ? refuseAnswer(error.describe('answer'), error) : error;
  }
}

/** The answer was cut off, or comes from an intermediary or a newer platform: a retry may succeed. */
export function refuseAnswer(why: string, cause?: unknown): LinkError {
  return new LinkError('unavailable', `the platform's response cannot be read: ${why}`, { cause });
}
