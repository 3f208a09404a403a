// Judges flows: the order of their parts, what a failure makes of the children, and the counts of their records.
import { type FlowRecord, flowRecord, flowReference } from '../../src/wire/job/flow-records.ts';
import { type Facts, isDone, madeOutput, readRecord } from './facts.ts';
import type { Call, HistoryEvent, NewFlow } from './history.ts';

interface FlowFinding {
  says: string;
  events: readonly HistoryEvent[];
}

interface Part {
  id: string;
  about: NewFlow['jobs'][number];
  /** Its last status that a client has read, and when its handler ran. */
  seen?: { status: string; call: Call; startedAt?: number; endedAt?: number };
}

interface Flow {
  id: string;
  made: Call;
  parts: Part[];
  /** After all jobs have ended. */
  last?: { record: FlowRecord; call: Call };
}

type State = FlowRecord['jobs'][number]['state'];

const CLOCK_MS = 25;

/** A part starts after the parents that have run. */
export function* findEarlyParts(facts: Facts): Generator<FlowFinding> {
  for (const { id, parts } of findFlows(facts)) {
    for (const { about, seen } of parts) {
      const early = parts.find(
        (parent) =>
          about.after.some(({ job }) => job === parent.about.name) &&
          (seen?.startedAt ?? Number.POSITIVE_INFINITY) + CLOCK_MS < (parent.seen?.endedAt ?? 0),
      );
      if (!early?.seen || !seen) continue;
      const says = `${about.name} of ${id} ran before the end of ${early.about.name}`;
      yield { says, events: [early.seen.call, seen.call] };
      break;
    }
  }
}

/** Each part ends as its handler and its edges say, unless a purge of its endpoint has cancelled it. */
export function* findWrongParts(facts: Facts): Generator<FlowFinding> {
  for (const { id, last, made, parts } of findFlows(facts)) {
    if (!last) continue;
    const purged = new Set(
      facts.calls
        .filter(({ answeredAt, request }) => request.do === 'purge' && answeredAt >= made.sentAt)
        .map(({ request }) => request.endpoint),
    );
    const cancelled = last.record.jobs
      .filter(({ endpoint, state }) => state === 'CANCELLED' && purged.has(endpoint))
      .map(({ name }) => name);
    const expected = expectStates(parts, cancelled);
    const wrong = last.record.jobs.find(({ name, state }) => expected.get(name) !== state);
    if (!wrong) continue;
    const says = `${wrong.name} of ${id} is ${wrong.state}, not ${expected.get(wrong.name)}`;
    yield { says, events: [made, last.call] };
  }
}

/** A record counts what its parts are, by its own list and by their own records. */
export function* findMiscounts(facts: Facts): Generator<FlowFinding> {
  for (const { id, last, parts } of findFlows(facts)) {
    if (!last) continue;
    const { counts, jobs, total } = last.record;
    const count = (state: State) => jobs.filter((job) => job.state === state).length;
    const isCounted =
      total === parts.length &&
      counts.open === 0 &&
      counts.completed === count('COMPLETED') &&
      counts.failed === count('FAILED') &&
      counts.cancelled === count('CANCELLED') &&
      counts.skipped === count('SKIPPED');
    const other = parts.find(({ about, seen }) => {
      const state = jobs.find(({ name }) => name === about.name)?.state;
      return seen && seen.status !== (state === 'SKIPPED' ? 'CANCELLED' : state);
    });
    if (isCounted && !other) continue;
    const says = other
      ? `the record of ${id} and ${other.about.name} disagree`
      : `the counts of ${id} are not those of its parts`;
    yield { says, events: [last.call, ...(other?.seen ? [other.seen.call] : [])] };
  }
}

function findFlows({ calls, settledAt }: Facts): Flow[] {
  return calls.flatMap((made) => {
    const { request } = made;
    if (request.do !== 'flow' || !isDone(made)) return [];
    const { id, jobs } = flowReference.parse(made.answer?.body);
    const call = calls.findLast(
      (each) =>
        each.request.do === 'flow-record' &&
        each.request.flow === id &&
        each.sentAt > settledAt &&
        isDone(each),
    );
    const parts = request.body.jobs.map((about): Part => {
      const part = jobs.find(({ name }) => name === about.name);
      const read = calls.findLast(
        (each) =>
          each.request.do === 'status' &&
          each.request.job === part?.id &&
          each.sentAt > settledAt &&
          isDone(each),
      );
      if (!read) return { id: part?.id ?? '', about };
      const { output, status } = readRecord(read);
      const { endedAt, startedAt } = madeOutput.safeParse(output).data ?? {};
      const ran = startedAt !== undefined && endedAt !== undefined && { startedAt, endedAt };
      return { id: part?.id ?? '', about, seen: { status, call: read, ...ran } };
    });
    const last = call && { record: flowRecord.parse(call.answer?.body), call };
    return [{ id, made, parts, ...(last && { last }) }];
  });
}

/** Parents come before their children. The first parent that fails decides; stories have one edge that can fail at most. */
function expectStates(parts: readonly Part[], cancelled: readonly string[]): Map<string, State> {
  const states = new Map<string, State>();
  for (const { about } of parts) {
    const failed = about.after.find(
      ({ job, onFailure }) => states.get(job) !== 'COMPLETED' && onFailure !== 'run',
    );
    // A skipped job skips its children, whatever their edge says but `run`.
    const isSkipped =
      failed?.onFailure === 'skip' || (failed && states.get(failed.job) === 'SKIPPED');
    const own = about.input.failUntil === undefined ? 'COMPLETED' : 'FAILED';
    const end = isSkipped ? 'SKIPPED' : failed ? 'FAILED' : own;
    states.set(about.name, cancelled.includes(about.name) ? 'CANCELLED' : end);
  }
  return states;
}
