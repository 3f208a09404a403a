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
      {stack && <Stack stack={stack} />}
      {stuck && <Stuck stuck={stuck} />}
    </section>
  );
}

const FRAME = /^\s+at /;
/** Stack frames of packages, Node.js and the worker. */
const FOREIGN = /node_modules\/|\(?node:|\/dist\/chunks\/|<anonymous>/;

/** The author's frames first; the whole stack on demand. The message stands above. */
function Stack({ stack }: { stack: string }) {
  const frames = stack.split('\n').filter((line) => FRAME.test(line));
  const own = frames.filter((line) => !FOREIGN.test(line));
  if (own.length === 0 || own.length === frames.length) {
    return <Block text={frames.length > 0 ? unindent(frames) : stack} label="Stack" />;
  }
  return (
    <>
      <Block text={unindent(own)} label="Stack" />
      <details>
        <summary>Full stack</summary>
        <Block text={stack} label="Full stack" />
      </details>
    </>
  );
}

function unindent(lines: readonly string[]): string {
  return lines.map((line) => line.trim()).join('\n');
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
