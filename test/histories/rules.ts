// What the platform promises, as rules over a history. Each rule yields the events that contradict each other.
import { isDeepStrictEqual } from 'node:util';
import { isTerminal, type JobStatus } from '../../src/wire/job/job.ts';
import {
  collectFacts,
  details,
  type Facts,
  isDone,
  type JobFacts,
  lastEffect,
  madeOutput,
  mayBeDone,
  readSchedules,
  readTickJobs,
} from './facts.ts';
import { findEarlyParts, findMiscounts, findWrongParts } from './flow-rules.ts';
import type { Call, History, HistoryEvent } from './history.ts';
import { findBursts, findOverlaps } from './limit-rules.ts';
import {
  areInOrder,
  findMade,
  findReads,
  findRetries,
  isSame,
  isSameEnd,
  pairsInOrder,
} from './readings.ts';
import { judgeStream, type StreamRule } from './stream-rules.ts';

export interface Finding {
  says: string;
  events: readonly HistoryEvent[];
}

export type RuleName = keyof typeof RULES;

export interface Violation extends Finding {
  rule: RuleName;
}

/** Tolerance: handlers and clients read the clock of the machine, nodes estimate that of the database. */
const CLOCK_MS = 25;

export function check(history: History): Violation[] {
  const facts = collectFacts(history);
  const names = Object.keys(RULES).filter((name): name is RuleName => name in RULES);
  return names.flatMap((rule) => [...RULES[rule](facts)].map((finding) => ({ ...finding, rule })));
}

const RULES = {
  /** An acknowledged job is found until its `ttl` is over. */
  forgotten: eachJob(function* (job) {
    const { ttl = Number.POSITIVE_INFINITY, delay = 0 } = job.body.policy ?? {};
    const lost = job.calls.find(
      ({ answer, answeredAt, sentAt }) =>
        answer?.status === 404 &&
        sentAt > job.knownBy.answeredAt &&
        answeredAt < job.sentAt + delay + ttl,
    );
    if (lost) yield { says: `${job.id} is not found`, events: [job.knownBy, lost] };
  }),

  /** A valid request of the owner succeeds, gets 404 or 409 because of its job, or 503 while the platform does not run. */
  'unexpected-status': function* ({ calls, history }) {
    for (const call of calls) {
      const { answer, request, user } = call;
      if (history.endpoints[request.endpoint]?.user !== user || answer === null) continue;
      const isChange = ['cancel', 'retry', 'run'].includes(request.do);
      const expected = [
        200,
        201,
        503,
        ...('job' in request ? [404] : []),
        ...(isChange ? [409] : []),
      ];
      if (expected.includes(answer.status)) continue;
      yield { says: `${request.do} gets ${answer.status}`, events: [call] };
    }
  },

  /** A list has every job that was acknowledged before the call. */
  'list-lacks-job': function* ({ calls, history, jobs }) {
    for (const call of calls.filter(({ request }) => request.do === 'list')) {
      const { endpoint } = call.request;
      if (!isDone(call) || history.endpoints[endpoint]?.user !== call.user) continue;
      for (const job of jobs.values()) {
        const isOf = job.endpoint === endpoint && !job.body.policy?.ttl;
        if (!isOf || job.knownBy.answeredAt > call.sentAt) continue;
        if (job.readings.some(({ event }) => event === call)) continue;
        yield { says: `${job.id} is not in the list`, events: [job.knownBy, call] };
      }
    }
  },

  /** An attempt whose chunk a client has got is the last one, unless its worker fails or a client retries the job. */
  'attempt-lost': eachJob(function* (job, { history }) {
    if (!history.areWorkersSteady || findRetries(job).length > 0) return;
    for (const { attempt, event } of findMade(job)) {
      const after = job.readings.find((reading) => (reading.attempt ?? attempt) > attempt);
      if (event.kind !== 'call' || event.request.do !== 'stream' || !after) continue;
      const says = `${job.id}: attempt ${after.attempt}, though attempt ${attempt} ran`;
      yield { says, events: [event, after.event] };
    }
  }),

  /** Only the last attempt counts: the output of a worker that has lost its lease is refused. */
  'old-attempt-counts': eachJob(function* (job) {
    for (const { attempt, event, result } of job.readings) {
      const output = madeOutput.safeParse(result?.output).data;
      if (!output || output.attempt === attempt) continue;
      const says = `${job.id}: output of attempt ${output.attempt} in attempt ${attempt}`;
      yield { says, events: [event] };
    }
  }),

  /** A later read never shows an earlier attempt. */
  'attempt-goes-back': eachJob(function* (job) {
    for (const after of job.readings) {
      const before = job.readings.find(
        ({ attempt = 0, to }) => to < after.from && attempt > (after.attempt ?? attempt),
      );
      if (!before) continue;
      const says = `${job.id}: attempt ${before.attempt}, then ${after.attempt}`;
      yield { says, events: [before.event, after.event] };
    }
  }),

  /** A job stays in its terminal state, unless the client retries it. */
  'terminal-reopens': eachJob(function* (job) {
    for (const [before, after] of pairsInOrder(job)) {
      if (isTerminal(after.status)) continue;
      yield {
        says: `${job.id} is ${after.status} after ${before.status}`,
        events: [before.event, after.event],
      };
    }
  }),

  /** Status, output and error of an ended job do not change. */
  'terminal-changes': eachJob(function* (job) {
    for (const [before, after] of pairsInOrder(job)) {
      if (!isTerminal(after.status) || isSame(before, after)) continue;
      yield {
        says: `${job.id} ended twice: ${before.status}, then ${after.status}`,
        events: [before.event, after.event],
      };
    }
  }),

  /** All routes and webhooks show the same outcome. */
  'outcomes-disagree': eachJob(function* (job) {
    const terminal = findReads(job).filter(({ status }) => isTerminal(status));
    const isRetried = findRetries(job).length > 0;
    for (const [index, one] of terminal.entries()) {
      for (const other of terminal.slice(index + 1)) {
        if (isSame(one, other) || (areInOrder(one, other) && other.by !== 'webhook')) continue;
        const isOneRun = one.attempt === other.attempt && one.status === other.status;
        if (isRetried && !isOneRun) continue;
        const says = `${job.id} is ${one.status} by ${one.by}, ${other.status} by ${other.by}`;
        yield { says, events: [one.event, other.event] };
      }
    }
  }),

  /** One attempt runs once: one run of the handler made all its chunks and its output. */
  'attempt-runs-twice': eachJob(function* (job) {
    const runs = new Map<number, { run: string; event: HistoryEvent }>();
    for (const { attempt, event, run } of findMade(job)) {
      const first = runs.get(attempt) ?? { run, event };
      runs.set(attempt, first);
      if (first.run === run) continue;
      const says = `attempt ${attempt} of ${job.id} has run twice`;
      yield { says, events: [first.event, event] };
    }
  }),

  /** A client gets only the job's own input, chunks and output, and its webhooks go to its receiver. */
  'not-its-own': eachJob(function* (job) {
    const { filler, tag } = job.body.input;
    for (const call of job.calls.filter(({ request }) => request.do === 'details').filter(isDone)) {
      if (isDeepStrictEqual(details.parse(call.answer?.body).input, job.body.input)) continue;
      yield { says: `${job.id} (${tag}) has another input`, events: [job.knownBy, call] };
    }
    for (const seen of findMade(job)) {
      if (seen.tag === tag) continue;
      yield { says: `${job.id} (${tag}) has output of ${seen.tag}`, events: [seen.event] };
    }
    for (const event of job.posted) {
      if (event.tag === tag) continue;
      yield { says: `the webhook of ${job.id} (${tag}) went to ${event.tag}`, events: [event] };
    }
    for (const { event, result, status } of job.readings) {
      if (status !== 'COMPLETED' || !result) continue;
      const output = madeOutput.safeParse(result.output).data;
      if (output && output.filler === filler) continue;
      yield { says: `${job.id} is COMPLETED without its output`, events: [event] };
    }
  }),

  /** A job is cancelled only by a client; it fails or times out only because of its handler. */
  'outcome-without-cause': eachJob(function* (job, { calls }) {
    const { endpoint, readings } = job;
    const { input, policy } = job.body;
    const isCause = ({ request }: Call) =>
      (request.do === 'cancel' && request.job === job.id) ||
      (request.do === 'purge' && request.endpoint === endpoint);
    const ends = calls.filter(
      (call) => isCause(call) && mayBeDone(call) && lastEffect(call) > job.sentAt,
    );
    for (const { event, status, to } of readings) {
      const hasCause = {
        ...{ IN_QUEUE: true, IN_PROGRESS: true, COMPLETED: true },
        CANCELLED: ends.some(({ sentAt }) => sentAt < to),
        FAILED: input.failUntil !== undefined,
        TIMED_OUT: policy?.executionTimeout !== undefined,
      };
      if (hasCause[status]) continue;
      yield { says: `${job.id} is ${status} without a cause`, events: [job.knownBy, event] };
      return;
    }
  }),

  /** If a cancel gets 200, the job is CANCELLED. If it gets 409, the job has already ended. */
  'cancel-lost': eachJob(function* (job) {
    const isRetried = findRetries(job).length > 0;
    for (const cancel of job.calls.filter((call) => call.request.do === 'cancel')) {
      const isRefused = cancel.answer?.status === 409 && !isRetried;
      if (!isDone(cancel) && !isRefused) continue;
      const isWrong = (status: JobStatus) =>
        isRefused ? !isTerminal(status) : status !== 'CANCELLED';
      const after = findReads(job).find(
        ({ from, status }) => from > cancel.answeredAt && isWrong(status),
      );
      if (!after) continue;
      const says = `${job.id} is ${after.status} after ${cancel.answer?.status} for its cancel`;
      yield { says, events: [cancel, after.event] };
    }
  }),

  /** If a retry gets 200, the job runs again. */
  'retry-lost': eachJob(function* (job) {
    for (const retry of job.calls) {
      if (retry.request.do !== 'retry' || !isDone(retry)) continue;
      const before = job.readings.findLast(
        ({ to, status }) => to < retry.sentAt && isTerminal(status),
      );
      const after = job.readings.find(
        ({ attempt = Number.POSITIVE_INFINITY, by, from, status }) =>
          from > retry.answeredAt &&
          by !== 'retry' &&
          isTerminal(status) &&
          status !== 'CANCELLED' &&
          attempt <= (before?.attempt ?? 0),
      );
      if (!before || !after) continue;
      const says = `${job.id} has not run again after its retry`;
      yield { says, events: [before.event, retry, after.event] };
    }
  }),

  /** A purge cancels the jobs that are queued when it begins. */
  'purge-lost': eachJob(function* (job, { calls }) {
    const { delay = 0 } = job.body.policy ?? {};
    for (const purge of calls) {
      const { answeredAt, request, sentAt } = purge;
      const isOf = request.do === 'purge' && request.endpoint === job.endpoint && isDone(purge);
      if (!isOf || job.knownBy.answeredAt > sentAt) continue;
      const hasWaited = answeredAt < job.sentAt + delay;
      const after = job.readings.find(
        ({ attempt, by, from, status }) =>
          from > answeredAt &&
          by !== 'jobs' &&
          (hasWaited ? status !== 'CANCELLED' : status === 'IN_QUEUE' && attempt === 0),
      );
      if (!after) continue;
      const says = `${job.id} is ${after.status} after the purge`;
      yield { says, events: [job.knownBy, purge, after.event] };
    }
  }),

  /** An idempotency key has one job. */
  'key-has-two-jobs': (facts) => findExtraJobs(facts, true),

  /** A submission without a key makes one job at most. */
  'submission-makes-two-jobs': (facts) => findExtraJobs(facts, false),

  /** A second submission with a key is accepted if its body is the same, and refused if it differs. */
  'key-body': function* ({ sent }) {
    const keyed = sent.filter(({ body }) => body.idempotencyKey !== undefined);
    const byKey = Map.groupBy(keyed, ({ call: { request }, body }) =>
      JSON.stringify([request.endpoint, body.idempotencyKey]),
    );
    for (const each of byKey.values()) {
      const [accepted] = each.filter(({ id }) => id !== undefined);
      for (const other of each) {
        if (!accepted || other.call.request.do === 'jobs') continue;
        const isEqual = isDeepStrictEqual(other.body, accepted.body);
        const { status } = other.call.answer ?? {};
        if (isEqual ? status !== 409 : other.id === undefined) continue;
        const says = `${isEqual ? 'the same' : 'another'} body with the same key gets ${status}`;
        yield { says, events: [accepted.call, other.call] };
      }
    }
  },

  /** A stream leaves out no chunk before the last one that it delivers. */
  'stream-gap': streamRule('gap'),

  /** A stream delivers each chunk of an attempt once; so does the cursor that the platform keeps. */
  'stream-repeats': streamRule('repeats'),

  /** A stream delivers chunks in the order in which the handler wrote them. */
  'stream-order': streamRule('order'),

  /** A stream goes on right after the given position; a reset precedes the chunks of another attempt. */
  'stream-resumes-elsewhere': streamRule('resumes-elsewhere'),

  /** A stream that ends has delivered all chunks of a COMPLETED job. */
  'stream-incomplete': streamRule('incomplete'),

  /** A delayed job does not start before its time. */
  'delay-cut': eachJob(function* (job) {
    const { delay } = job.body.policy ?? {};
    if (delay === undefined) return;
    const due = job.sentAt + delay;
    const early =
      findMade(job).find(({ startedAt }) => startedAt + CLOCK_MS < due) ??
      job.readings.find(
        ({ status, to }) => to < due && !['IN_QUEUE', 'CANCELLED'].includes(status),
      );
    if (!early) return;
    const says = `${job.id} has started before its delay of ${delay} ms`;
    yield { says, events: [job.knownBy, early.event] };
  }),

  /** No more jobs of a group run at once than its endpoint lets them. */
  'group-overlaps': (facts) => findOverlaps(facts, false),

  /** A shared limit starts no more jobs in any window, over all of its endpoints. */
  'rate-exceeded': findBursts,

  /** A shared limit runs no more jobs at once, over all of its endpoints. */
  'limit-exceeded': (facts) => findOverlaps(facts, true),

  /** A part of a flow starts after its parents. */
  'flow-order': findEarlyParts,

  /** Each part of a flow ends as its handler and its edges say. */
  'flow-outcome': findWrongParts,

  /** A flow counts each of its parts once. */
  'flow-miscounts': findMiscounts,

  /** Other users get 404, as if the job did not exist. */
  'foreign-read': function* ({ calls, history }) {
    for (const call of calls) {
      const { answer, request, user } = call;
      if (history.endpoints[request.endpoint]?.user === user || answer === null) continue;
      if (answer.status === 404 || answer.status === 429 || answer.status >= 500) continue;
      yield { says: `${user} gets ${answer.status} at another user's endpoint`, events: [call] };
    }
  },

  /** The platform posts each outcome. */
  'webhook-missing': eachJob(function* (job) {
    if (job.body.webhook === undefined) return;
    const posted = job.readings.filter(({ by }) => by === 'webhook');
    const missing = job.readings.find(
      (one) => isTerminal(one.status) && !posted.some((other) => isSameEnd(one, other)),
    );
    if (!missing) return;
    const says = `no webhook for ${job.id}, which is ${missing.status}`;
    yield { says, events: [missing.event, ...job.posted] };
  }),

  /** Each outcome has one delivery, whose body is always the same. */
  'webhook-repeats': eachJob(function* (job) {
    const posted = job.readings.flatMap((reading) =>
      reading.event.kind === 'posted' ? [{ reading, event: reading.event }] : [],
    );
    for (const [index, { event: one, reading }] of posted.entries()) {
      for (const { event: other, reading: later } of posted.slice(index + 1)) {
        const isOneDelivery = one.delivery === other.delivery;
        if (isOneDelivery ? one.body === other.body : !isSameEnd(reading, later)) continue;
        const says = isOneDelivery
          ? `${one.delivery} of ${job.id} has two bodies`
          : `${job.id} has two deliveries of one outcome`;
        yield { says, events: [one, other] };
      }
    }
  }),

  /** At the end of the run, each job is in a terminal state, or its `ttl` is over. */
  'not-terminal': eachJob(function* (job, { settledAt }) {
    const isRead = ({ request, sentAt }: Call) => request.do === 'status' && sentAt > settledAt;
    const reads = job.calls.filter((call) => isRead(call) && call.answer !== null);
    const last = job.readings.findLast(({ event }) => event.kind === 'call' && isRead(event));
    const isGone = job.body.policy?.ttl !== undefined && reads.at(-1)?.answer?.status === 404;
    if (isGone || (last && isTerminal(last.status))) return;
    yield {
      says: `${job.id} is ${last?.status ?? 'unread'} at the end`,
      events: [job.knownBy, ...reads.slice(-1)],
    };
  }),

  /** No two jobs have the same tick of a schedule. */
  'tick-makes-two-jobs': function* ({ calls }) {
    const byTick = Map.groupBy(
      readTickJobs(calls),
      ({ scheduleId, tickAt }) => `${scheduleId} at ${tickAt}`,
    );
    for (const [tick, jobs] of byTick) {
      if (jobs.length === 1) continue;
      const says = `${tick} has made ${jobs.map(({ id }) => id).join(', ')}`;
      yield { says, events: jobs.map(({ event }) => event) };
    }
  },

  /** Each tick before the next one has made a job, or is counted as skipped. */
  'tick-lost': function* ({ calls, settledAt }) {
    const readings = readSchedules(calls);
    const jobs = readTickJobs(calls);
    for (const { createdAt, event, every, id, nextTicks, skipped, ...reading } of readings) {
      const [next] = nextTicks;
      const counted = Object.values(skipped).reduce((sum, each) => sum + each, reading.jobs);
      const numberOf = (time: number) => Math.floor(time / every);
      const due = next && numberOf(Date.parse(next) - 1) - numberOf(Date.parse(createdAt));
      if (due !== undefined && due !== counted) {
        yield { says: `${id} had ${due} ticks and counts ${counted}`, events: [event] };
      }
      const made = jobs.filter(({ scheduleId }) => scheduleId === id);
      const isPaused = event.request.do === 'pause' && settledAt > 0;
      if (!isPaused || made.length === reading.jobs) continue;
      const says = `${id} counts ${reading.jobs} jobs, and ${made.length} are there`;
      yield { says, events: [event, ...made.map((job) => job.event)] };
    }
  },
} satisfies Record<string, (facts: Facts) => Iterable<Finding>>;

/** The first finding of each job. */
function eachJob(judge: (job: JobFacts, facts: Facts) => Iterable<Finding>) {
  return (facts: Facts): Iterable<Finding> =>
    facts.jobs.values().flatMap((job) => Iterator.from(judge(job, facts)).take(1));
}

function streamRule(rule: StreamRule) {
  return eachJob(function* (job, { faults }) {
    for (const finding of judgeStream(job, faults)) if (finding.rule === rule) yield finding;
  });
}

function* findExtraJobs({ jobs, sent }: Facts, isKeyed: boolean): Generator<Finding> {
  const byTag = Map.groupBy(jobs.values(), ({ body }) => body.input.tag);
  for (const [tag, made] of byTag) {
    const asked = sent.filter(({ body, call }) => body.input.tag === tag && mayBeDone(call));
    const hasKey = made.every(({ body }) => body.idempotencyKey !== undefined);
    if (hasKey !== isKeyed || made.length <= (hasKey ? 1 : asked.length)) continue;
    const says = `${made.length} jobs of ${tag}: ${made.map(({ id }) => id).join(', ')}`;
    yield { says, events: made.map(({ knownBy }) => knownBy) };
  }
}
