// Judges limits of jobs: how many ran at once, and how many started in a window.
import type { Facts, JobFacts } from './facts.ts';
import { readStarts } from './facts.ts';
import type { Call, HistoryEvent, Limit } from './history.ts';
import { findMade } from './readings.ts';

interface LimitFinding {
  says: string;
  events: readonly HistoryEvent[];
}

interface Run {
  tag: string;
  endpoint: string;
  startedAt: number;
  endedAt: number;
  event: HistoryEvent;
}

/** Jobs that count together: those of the limit, or of a group of it. */
interface Place {
  name: string;
  limit: Limit;
  jobs: JobFacts[];
}

/** Nodes estimate the clock of the database, ms. */
const CLOCK_MS = 25;

/** More jobs than the limit run at once, as their handlers say, and no paused worker has lost a lease meanwhile. */
export function* findOverlaps(facts: Facts, isShared: boolean): Generator<LimitFinding> {
  for (const { jobs, limit, name } of findPlaces(facts)) {
    const { concurrency, endpoints } = limit;
    if (concurrency === null || endpoints.length > 1 !== isShared) continue;
    const runs = jobs.flatMap(findRun).filter((run) => isCalm(facts, run));
    for (const { startedAt: at } of runs) {
      const open = runs.filter(({ endedAt, startedAt }) => startedAt <= at && endedAt > at);
      if (open.length <= concurrency) continue;
      const says = `${open.map(({ tag }) => tag).join(', ')} of ${name} ran at the same time`;
      yield { says, events: open.map(({ event }) => event) };
      break;
    }
  }
}

/** More attempts than the limit start in a window, as the platform says; no handler started before its attempt. */
export function* findBursts(facts: Facts): Generator<LimitFinding> {
  for (const { jobs, limit, name } of findPlaces(facts)) {
    if (limit.rateLimit === null) continue;
    const { max, perMs } = limit.rateLimit;
    const known = jobs.map((job) => ({ job, ...readStarts(job) }));
    const starts = known
      .flatMap(({ call, starts }) => starts.map(({ at }) => ({ at, call })))
      .sort((a, b) => a.at - b.at);
    for (const [index, { at }] of starts.entries()) {
      const within = starts.slice(index).filter((start) => start.at < at + perMs - CLOCK_MS);
      if (within.length <= max) continue;
      const says = `${within.length} attempts of ${name} started within ${perMs} ms`;
      yield { says, events: callsOf(within) };
      break;
    }
    for (const { call, job, starts } of known) {
      const early = findMade(job).find(({ attempt, startedAt }) => {
        const start = starts.findLast((each) => each.attempt === attempt);
        return start && startedAt + CLOCK_MS < start.at;
      });
      if (!early || !call) continue;
      const says = `the handler of ${job.id} ran before its attempt began`;
      yield { says, events: [call, early.event] };
    }
  }
}

function callsOf(starts: readonly { call: Call | undefined }[]): Call[] {
  return [...new Set(starts.flatMap(({ call }) => call ?? []))];
}

function findPlaces({ history, jobs }: Facts): Place[] {
  return history.limits.flatMap((limit) => {
    const { endpoints, key, name } = limit;
    const of = [...jobs.values()].filter(({ endpoint }) => endpoints.includes(endpoint));
    if (key === null) return [{ name, limit, jobs: of }];
    const grouped = of.filter(({ body }) => body.policy?.group !== undefined);
    const groups = Map.groupBy(grouped, ({ body }) => body.policy?.group);
    return [...groups].map(([group, each]) => ({ name: `${name}/${group}`, limit, jobs: each }));
  });
}

function findRun(job: JobFacts): Run[] {
  const made = findMade(job).find(({ endedAt }) => endedAt !== undefined);
  if (made?.endedAt === undefined) return [];
  return [{ ...made, endpoint: job.endpoint, endedAt: made.endedAt }];
}

function isCalm({ faults, history }: Facts, run: Run): boolean {
  return faults.every(
    ({ endpoint, from, to }) =>
      endpoint !== run.endpoint || run.endedAt < from || run.startedAt > to + history.leaseMs,
  );
}
