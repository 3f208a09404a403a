// Judges what a client read of a job's stream: the chunks of one attempt in order, each once, to the end.
import { findEnds, isDone, type JobFacts, madeChunk, madeOutput, streamOf } from './facts.ts';
import type { Call, Fault } from './history.ts';

export type StreamRule = 'gap' | 'repeats' | 'order' | 'resumes-elsewhere' | 'incomplete';

interface StreamFinding {
  rule: StreamRule;
  says: string;
  events: readonly Call[];
}

interface Position {
  attempt: number;
  n: number;
}

/** Chunks between two resets. */
interface Segment {
  /** Position before the first chunk, if the request or a reset gives it. */
  after: Position | undefined;
  chunks: (Position & { output: unknown })[];
}

export function* judgeStream(job: JobFacts, faults: readonly Fault[]): Generator<StreamFinding> {
  const streams = job.calls.filter((call) => call.request.do === 'stream' && isDone(call));
  for (const call of streams) {
    const segments = split(call);
    for (const segment of segments) {
      const finding = judge(segment);
      if (finding) yield { ...finding, says: `${job.id}: ${finding.says}`, events: [call] };
    }
    const last = segments.at(-1);
    const missing = streamOf(call).end === 'done' && last ? findMissing(job, last) : undefined;
    if (missing) yield { rule: 'incomplete', says: `${job.id}: ${missing}`, events: [call] };
  }
  yield* judgeKeptCursor(job, streams, faults);
}

function split(call: Call): Segment[] {
  const after = call.request.do === 'stream' ? call.request.after : null;
  let segment: Segment = { after: after === null ? undefined : parse(after), chunks: [] };
  const segments = [segment];
  for (const piece of streamOf(call).pieces) {
    if ('reset' in piece) {
      segment = { after: { attempt: 0, n: -1 }, chunks: [] };
      segments.push(segment);
    } else {
      segment.chunks.push({ ...parse(piece.at), output: piece.output });
    }
  }
  return segments;
}

function judge({ after, chunks }: Segment): Pick<StreamFinding, 'rule' | 'says'> | undefined {
  const [first] = chunks;
  if (!first) return undefined;
  const ns = chunks.map(({ n }) => n);
  const shown = ns.join(' ');
  const start = Math.min(...ns);
  const isOther = after && after.n >= 0 && after.attempt !== first.attempt;
  if (chunks.some(({ attempt }) => attempt !== first.attempt) || isOther) {
    return { rule: 'resumes-elsewhere', says: `another attempt without a reset: ${shown}` };
  }
  if (new Set(ns).size < ns.length) return { rule: 'repeats', says: `chunks ${shown}` };
  if (after && start !== after.n + 1) {
    const rule = start <= after.n ? 'resumes-elsewhere' : 'gap';
    return { rule, says: `chunks ${shown} after ${after.n}` };
  }
  if (Math.max(...ns) - start >= ns.length) return { rule: 'gap', says: `chunks ${shown}` };
  const wrong = chunks.find(({ attempt, n, output }, index) => {
    const made = madeChunk.safeParse(output).data;
    return n !== start + index || made?.n !== n || made.attempt !== attempt;
  });
  return wrong && { rule: 'order', says: `chunks ${shown}: ${JSON.stringify(wrong)}` };
}

/** Compares a stream that has ended with the number of chunks in the output of a COMPLETED job. */
function findMissing(job: JobFacts, { after, chunks }: Segment): string | undefined {
  const last = chunks.toSorted((a, b) => a.n - b.n).at(-1) ?? after;
  const completed = findEnds(job).find(({ status }) => status === 'COMPLETED');
  const output = madeOutput.safeParse(completed?.result?.output).data;
  if (!last || !output || last.n === output.chunks - 1) return undefined;
  return `the stream ended after chunk ${last.n} of ${output.chunks}`;
}

/**
 * Reads without a position get each chunk once, unless the platform fails before it has stored the moved cursor. If all
 * answers have arrived, no chunk is missing.
 */
function* judgeKeptCursor(
  job: JobFacts,
  streams: readonly Call[],
  faults: readonly Fault[],
): Generator<StreamFinding> {
  const kept = streams.filter(({ request }) => request.do === 'stream' && request.after === null);
  const seen = new Map<string, Call>();
  for (const call of kept) {
    for (const piece of streamOf(call).pieces) {
      if (!('at' in piece)) continue;
      const earlier = seen.get(piece.at);
      seen.set(piece.at, call);
      const mayForget = faults.some(
        ({ from, name, to }) =>
          !name.startsWith('worker') && earlier && from < call.sentAt && to > earlier.sentAt,
      );
      if (!earlier || earlier === call || mayForget) continue;
      const says = `${job.id}: chunk ${piece.at} was delivered twice`;
      yield { rule: 'repeats', says, events: [earlier, call] };
    }
  }
  const isWhole = job.calls.every(
    ({ answer, request }) => request.do !== 'stream' || request.after !== null || answer !== null,
  );
  const all = [...seen.keys()].map(parse).sort((a, b) => a.attempt - b.attempt || a.n - b.n);
  const gap = all.find(({ attempt, n }, index) => {
    const before = all[index - 1];
    return before?.attempt === attempt && before.n + 1 !== n;
  });
  if (isWhole && gap) {
    const says = `${job.id}: a chunk before ${gap.attempt}.${gap.n} was not delivered`;
    yield { rule: 'gap', says, events: kept };
  }
}

/** `0` is the position before the first chunk of any attempt. */
function parse(position: string): Position {
  const [attempt = 0, n = -1] = position.split('.').map(Number);
  return position === '0' ? { attempt: 0, n: -1 } : { attempt, n };
}
