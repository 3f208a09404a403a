// Why a job failed: code, message, stack, and where a handler was that did not stop.
import type { JobRecord } from '../../../../src/client.ts';
import { Block } from '../block.tsx';
import { sayDuration } from '../time.tsx';

type ErrorOfJob = NonNullable<JobRecord['error']>;

export function JobError({ error }: { error: ErrorOfJob }) {
  const { code, message, stack, stuck, type } = error;
  return (
    <section class="problem">
      <p>
        <strong>{type ?? code}</strong> {type && <code>{code}</code>}
      </p>
      <pre>{message}</pre>
      {stack && (
        <details>
          <summary>Stack</summary>
          <Block text={stack} label="Stack" />
        </details>
      )}
      {stuck && <Stuck stuck={stuck} />}
    </section>
  );
}

const STATES = {
  running: 'The handler was running JavaScript.',
  waiting: 'The handler was waiting for a promise.',
  unreachable: 'The thread did not answer: native code, garbage collection, or no processor time.',
} as const;

function Stuck({ stuck }: { stuck: NonNullable<ErrorOfJob['stuck']> }) {
  const { chunks, lastChunkMs, stack, state } = stuck;
  const last = lastChunkMs === undefined ? '' : `, the last one ${sayDuration(lastChunkMs)} before`;
  return (
    <>
      <p>
        {STATES[state]} It had yielded {chunks.toLocaleString()} chunks{last}.
      </p>
      {stack && <Block text={stack} label="Stack" />}
    </>
  );
}
