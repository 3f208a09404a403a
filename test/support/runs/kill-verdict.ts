// Checks the end of a job whose threads, processes and platform were killed.
import { isDeepStrictEqual } from 'node:util';
import type { Peril } from '../handlers/perilous.ts';
import type { JobKey, SeenJob } from './peril-clients.ts';

export interface EndedJob extends JobKey {
  asked: Peril;
  seen: SeenJob;
}

/** Returns undefined if the job ended correctly. */
export function describeFlaw({ id, asked, seen }: EndedJob): string | undefined {
  const isRight = judge(asked, seen);
  return isRight ? undefined : `${id} ${JSON.stringify(asked)}: ${JSON.stringify(seen)}`;
}

function judge(asked: Peril, { record, chunks }: SeenJob): boolean {
  switch (asked.do) {
    case 'count': {
      const output = expectOutput(asked, record.attempt);
      const isStream = asked.count.yields !== undefined;
      // A job whose handler does not yield has its output as its only chunk.
      const expected = isStream ? output : [output];
      return (
        record.status === 'COMPLETED' &&
        isDeepStrictEqual(record.output, output) &&
        isDeepStrictEqual(chunks, expected)
      );
    }
    case 'exit': {
      const codes = record.error?.attempts.map(({ code }) => code) ?? [];
      return record.status === 'FAILED' && codes.includes('handler_exited') && codes.length === 3;
    }
    case 'spin':
      return record.status === 'CANCELLED';
  }
}

function expectOutput({ count: { n, yields } }: Peril, attempt: number): unknown {
  if (yields === undefined) return { n, square: n * n };
  return Array.from({ length: yields }, (_, index) => ({ n, index, attempt }));
}
