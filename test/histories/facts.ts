// Groups a history by job: its submission, the calls about it, and what each answer says about it.
import { z } from 'zod';
import { isTerminal, JOB_STATUSES, type JobStatus } from '../../src/wire/job/job.ts';
import type { Call, Fault, History, Posted, StreamBody, Submission } from './history.ts';

/** One submission. A batch has several. */
export interface Sent {
  call: Call;
  body: Submission;
  /** Absent: the submission was refused, or its answer was lost. */
  id?: string;
}

/** What an answer or a webhook says about a job. */
export interface Reading {
  by: string;
  event: Call | Posted;
  /** The job had this state at some time between these two. For a webhook `from` is 0. */
  from: number;
  to: number;
  status: JobStatus;
  attempt?: number;
  /** Output and error; absent if this route does not show them. */
  result?: { output: unknown; error: unknown };
}

export interface JobFacts {
  id: string;
  endpoint: string;
  body: Submission;
  /** When the first submission of its tag was sent. */
  sentAt: number;
  /** The first answer with its ID: from then on the job is acknowledged. */
  knownBy: Call;
  /** In the order of the answers. */
  readings: Reading[];
  /** By its owner. */
  calls: Call[];
  posted: Posted[];
}

export interface Facts {
  history: History;
  calls: Call[];
  faults: Fault[];
  settledAt: number;
  sent: Sent[];
  jobs: Map<string, JobFacts>;
}

export type TerminalReading = Reading & Required<Pick<Reading, 'attempt'>>;

/** The handler writes these members into each chunk and output. */
const made = z.object({
  tag: z.string(),
  attempt: z.int(),
  run: z.string(),
  startedAt: z.number(),
});
export const madeChunk = made.extend({ n: z.int() });
export const madeOutput = made.extend({
  chunks: z.int(),
  filler: z.string().exactOptional(),
  endedAt: z.number(),
});

const record = z.looseObject({
  id: z.string(),
  status: z.enum(JOB_STATUSES),
  attempt: z.int().exactOptional(),
  output: z.unknown().optional(),
  error: z.unknown().optional(),
});
const answeredJobs = z.object({
  jobs: z.array(z.union([record, z.object({ error: z.object({ status: z.int() }) })])),
});
const list = z.object({ jobs: z.array(record) });
export const details = z.looseObject({
  id: z.string(),
  input: z.looseObject({ tag: z.string() }),
  schedule: z.object({ id: z.string(), tickAt: z.number() }).exactOptional(),
  timeline: z
    .array(z.looseObject({ at: z.number(), event: z.string(), attempt: z.int().exactOptional() }))
    .exactOptional(),
});

const schedule = z.looseObject({
  id: z.string(),
  createdAt: z.string(),
  every: z.number(),
  nextTicks: z.array(z.string()),
  jobs: z.number(),
  skipped: z.record(z.string(), z.number()),
});
const schedules = z.object({ schedules: z.array(schedule) });

/** What an answer says about a schedule. */
export type ScheduleReading = z.infer<typeof schedule> & { event: Call };

export function readSchedules(calls: readonly Call[]): ScheduleReading[] {
  return calls.filter(isDone).flatMap((event) => {
    const { answer, request } = event;
    if (request.do === 'schedules') {
      return schedules.parse(answer?.body).schedules.map((each) => ({ ...each, event }));
    }
    const isOne = request.do === 'schedule' || request.do === 'pause';
    return isOne ? [{ ...schedule.parse(answer?.body), event }] : [];
  });
}

/** A job that a tick has made, as its details show it. */
export interface TickJob {
  id: string;
  scheduleId: string;
  tickAt: number;
  event: Call;
}

export function readTickJobs(calls: readonly Call[]): TickJob[] {
  const jobs = new Map<string, TickJob>();
  for (const event of calls) {
    if (event.request.do !== 'details' || !isDone(event)) continue;
    const { id, schedule: of } = details.parse(event.answer?.body);
    if (of) jobs.set(id, { id, scheduleId: of.id, tickAt: of.tickAt, event });
  }
  return [...jobs.values()];
}

export function readRecord({ answer }: Call): z.infer<typeof record> {
  return record.parse(answer?.body);
}

/** The starts of attempts that the last details of the job show. */
export function readStarts({ calls }: JobFacts): {
  call: Call | undefined;
  starts: { at: number; attempt: number }[];
} {
  const call = calls.findLast((each) => each.request.do === 'details' && isDone(each));
  const { timeline = [] } = call ? details.parse(call.answer?.body) : {};
  const starts = timeline.filter(({ event }) => event === 'started');
  return { call, starts: starts.map(({ at, attempt = 0 }) => ({ at, attempt })) };
}

const ROUTES_WITH_RESULT = ['status', 'runsync', 'stream', 'webhook'];

export function isDone({ answer }: Call): boolean {
  return answer !== null && answer.status >= 200 && answer.status < 300;
}

/** Whether the request may have taken effect. A platform that stops may answer 503 after the effect. */
export function mayBeDone(call: Call): boolean {
  return call.answer === null || call.answer.status >= 500 || isDone(call);
}

/** The latest time at which the call took effect. */
export function lastEffect(call: Call): number {
  return isDone(call) ? call.answeredAt : Number.POSITIVE_INFINITY;
}

export function findEnds(job: JobFacts): TerminalReading[] {
  return job.readings.filter(
    (reading): reading is TerminalReading => isTerminal(reading.status) && 'attempt' in reading,
  );
}

export function streamOf({ answer }: Call): StreamBody {
  // RecordingClient made the body.
  return answer?.body as StreamBody;
}

export function collectFacts(history: History): Facts {
  const { events, endpoints } = history;
  const calls = events.filter((event) => event.kind === 'call').sort((a, b) => a.sentAt - b.sentAt);
  const posted = events.filter((event) => event.kind === 'posted');
  const settledAt = events.find((event) => event.kind === 'settled')?.at ?? 0;
  const own = calls.filter(({ user, request }) => endpoints[request.endpoint]?.user === user);
  const sent = own.flatMap(findSent);
  const jobs = new Map<string, JobFacts>();
  const add = (id: string, endpoint: string, body: Submission, knownBy: Call) => {
    const { tag } = body.input;
    const sentAt = sent.find((each) => each.body.input.tag === tag)?.call.sentAt ?? 0;
    const known = jobs.get(id);
    if (known && known.knownBy.answeredAt <= knownBy.answeredAt) return;
    jobs.set(id, { id, endpoint, body, sentAt, knownBy, readings: [], calls: [], posted: [] });
  };
  for (const { body, call, id } of sent) {
    if (id !== undefined) add(id, call.request.endpoint, body, call);
  }
  // A submission without an answer may have made a job, which a list shows.
  const byTag = new Map(sent.map(({ body }) => [body.input.tag, body]));
  for (const call of own) {
    if (call.request.do !== 'details' || !isDone(call)) continue;
    const { id, input } = details.parse(call.answer?.body);
    const body = byTag.get(input.tag);
    if (body && !jobs.has(id)) add(id, call.request.endpoint, body, call);
  }
  for (const call of own) {
    if ('job' in call.request) jobs.get(call.request.job)?.calls.push(call);
    for (const reading of read(call)) jobs.get(reading.id)?.readings.push(reading);
  }
  for (const event of posted) {
    const seen = record.parse(JSON.parse(event.body));
    const job = jobs.get(seen.id);
    job?.posted.push(event);
    job?.readings.push(toReading(seen, { by: 'webhook', event, from: 0, to: event.at }));
  }
  for (const { readings } of jobs.values()) readings.sort((a, b) => a.to - b.to);
  const faults = events.filter((event) => event.kind === 'fault');
  return { history, calls, faults, settledAt, sent, jobs };
}

function findSent(call: Call): Sent[] {
  const { answer, request } = call;
  if (request.do === 'run' || request.do === 'runsync') {
    if (!isDone(call)) return [{ call, body: request.body }];
    return [{ call, body: request.body, id: record.parse(answer?.body).id }];
  }
  if (request.do !== 'jobs') return [];
  const answered = isDone(call) ? answeredJobs.parse(answer?.body).jobs : [];
  return request.bodies.map((body, index) => {
    const one = answered[index];
    return { call, body, ...(one && 'id' in one && { id: one.id }) };
  });
}

function read(call: Call): (Reading & { id: string })[] {
  const { request, sentAt: from, answeredAt: to } = call;
  const place = { by: request.do, event: call, from, to };
  return findRecords(call).map((seen) => ({ id: seen.id, ...toReading(seen, place) }));
}

function findRecords(call: Call): z.infer<typeof record>[] {
  if (!isDone(call)) return [];
  const { do: kind } = call.request;
  const body = call.answer?.body;
  if (['purge', 'schedule', 'schedules', 'pause', 'flow', 'flow-record'].includes(kind)) return [];
  if (kind === 'list') return list.parse(body).jobs;
  if (kind === 'jobs') return answeredJobs.parse(body).jobs.filter((job) => 'id' in job);
  if (kind !== 'stream') return [record.parse(body)];
  const { record: last, status } = streamOf(call);
  if (last !== undefined) return [record.parse(last)];
  return status && 'job' in call.request ? [{ id: call.request.job, status }] : [];
}

function toReading(
  { attempt, error, output, status }: z.infer<typeof record>,
  place: Pick<Reading, 'by' | 'event' | 'from' | 'to'>,
): Reading {
  // A page of a stream shows the status only.
  const hasResult = ROUTES_WITH_RESULT.includes(place.by) && attempt !== undefined;
  return {
    ...place,
    status,
    ...(attempt !== undefined && { attempt }),
    ...(hasResult && { result: { output, error } }),
  };
}
