// All rules accept an honest history. Each rule rejects this history once it has one lie.
import { describe, expect, it } from 'vitest';
import type { Call, History, Piece, Posted, Request, Submission } from './history.ts';
import { check, type RuleName } from './rules.ts';

const START = 1_000_000;
/** Endpoints that share a limit. */
const OTHERS = { left: { user: 'owner' }, right: { user: 'owner' } };

/** Writes a history in which each call takes 10 ms. */
class Scribe {
  readonly history: History = {
    ...{ seed: 1, name: 't', leaseMs: 1_000, areWorkersSteady: true, events: [] },
    endpoints: { work: { user: 'owner' }, side: { user: 'guest' }, ...OTHERS },
    limits: [
      { name: 'work', endpoints: ['work'], key: 'group', concurrency: 1, rateLimit: null },
      {
        ...{ name: 'both', endpoints: Object.keys(OTHERS), key: null, concurrency: 1 },
        rateLimit: { max: 2, perMs: 1_000 },
      },
    ],
  };
  at = START;

  call(request: Request, body: unknown, { status = 200, user = 'owner' } = {}): void {
    const times = { sentAt: this.at, answeredAt: this.at + 10 };
    this.at += 20;
    this.history.events.push({ kind: 'call', user, ...times, request, answer: { status, body } });
  }

  run(id: string, more: Partial<Submission> = {}, input: Partial<Submission['input']> = {}): void {
    const body = { input: { tag: `t-${id}`, ms: 1, ...input }, ...more };
    this.call({ do: 'run', endpoint: 'work', body }, { id, status: 'IN_QUEUE' });
  }

  ask(what: 'status' | 'cancel' | 'retry', job: string, body: object, status = 200): void {
    this.call({ do: what, endpoint: 'work', job }, { id: job, ...body }, { status });
  }
}

function complete(id: string, { attempt = 1, chunks = 0, startedAt = START + 100 } = {}): object {
  const made = { tag: `t-${id}`, run: `${id}-${attempt}`, attempt, startedAt };
  return { status: 'COMPLETED', attempt, output: { ...made, chunks, endedAt: startedAt + 10 } };
}

function chunk(n: number, attempt = 1): Piece {
  const made = { tag: 't-stream', run: `stream-${attempt}`, attempt, startedAt: START + 100 };
  return { at: `${attempt}.${n}`, output: { ...made, n } };
}

const FAILED = { status: 'FAILED', attempt: 1, error: { code: 'handler_error' } };
const CANCELLED = { status: 'CANCELLED', attempt: 0 };
const ENDS: Record<string, object> = {
  plain: complete('plain'),
  stream: complete('stream', { chunks: 4 }),
  stopped: CANCELLED,
  again: complete('again', { attempt: 2 }),
  purged: CANCELLED,
  late: complete('late', { startedAt: START + 700 }),
  'group-1': complete('group-1'),
  'group-2': complete('group-2', { startedAt: START + 120 }),
};

/** Of a schedule with a tick each second, of which so many have come. */
function describeSchedule(jobs: number): object {
  const [createdAt, next] = [0, (jobs + 1) * 1_000].map((time) => new Date(time).toISOString());
  return { id: 's', createdAt, every: 1_000, nextTicks: [next], jobs, skipped: { missed: 0 } };
}

function writeHonest(): History {
  const scribe = new Scribe();
  const keyed = { idempotencyKey: 'key' };
  scribe.run('stream', keyed, { chunks: 4 });
  scribe.run('stream', keyed, { chunks: 4 });
  scribe.call(
    { do: 'run', endpoint: 'work', body: { ...keyed, input: { tag: 't-other', ms: 1 } } },
    { code: 'idempotency_conflict' },
    { status: 409 },
  );
  scribe.run('plain', { webhook: 'http://receiver/t-plain' });
  scribe.run('stopped');
  scribe.ask('cancel', 'stopped', { status: 'CANCELLED' });
  scribe.run('again', {}, { failUntil: 1 });
  scribe.run('purged', { policy: { delay: 5_000 } });
  scribe.call({ do: 'purge', endpoint: 'work' }, { removed: 1, status: 'completed' });
  scribe.run('late', { policy: { delay: 500 } });
  const bodies = ['group-1', 'group-2'].map((id) => ({
    ...{ input: { tag: `t-${id}`, ms: 1 }, policy: { group: 'g' } },
  }));
  const jobs = ['group-1', 'group-2'].map((id) => ({ id, status: 'IN_QUEUE' }));
  scribe.call({ do: 'jobs', endpoint: 'work', bodies }, { jobs });
  const read = { do: 'stream', endpoint: 'work', job: 'stream' } as const;
  scribe.call({ ...read, after: '0' }, { pieces: [chunk(0), chunk(1)], end: 'part' });
  scribe.call(
    { ...read, after: '1.1' },
    {
      ...{ pieces: [chunk(2), chunk(3)], end: 'done' },
      record: { id: 'stream', ...ENDS['stream'] },
    },
  );
  scribe.ask('status', 'again', FAILED);
  scribe.ask('retry', 'again', { status: 'IN_QUEUE' });
  scribe.ask('status', 'plain', { status: 'IN_PROGRESS', attempt: 1 });
  const every = { name: 't-tick', every: 1_000, overlap: 'allow' } as const;
  const input = { tag: 't-tick-tick', ms: 1 };
  const request = { do: 'schedule', endpoint: 'work', body: { ...every, input } } as const;
  scribe.call(request, describeSchedule(0), { status: 201 });
  scribe.call({ do: 'pause', endpoint: 'work', schedule: 's' }, describeSchedule(2));
  for (const n of [1, 2]) {
    const of = { input, schedule: { id: 's', tickAt: n * 1_000 } };
    scribe.call(
      { do: 'details', endpoint: 'work', job: `tick-${n}` },
      { id: `tick-${n}`, status: 'IN_QUEUE', ...of },
    );
  }
  scribe.at = START + 9_000;
  const body = JSON.stringify({ id: 'plain', ...ENDS['plain'] });
  for (const at of [scribe.at, scribe.at + 1]) {
    scribe.history.events.push({ kind: 'posted', at, tag: 't-plain', delivery: 'd1', body });
  }
  const foreign = { do: 'status', endpoint: 'work', job: 'plain' } as const;
  scribe.call(foreign, {}, { status: 404, user: 'guest' });
  scribe.at += 20;
  scribe.history.events.push({ kind: 'settled', at: scribe.at++ });
  const listed = Object.entries(ENDS).map(([id, end]) => ({ id, ...end, output: undefined }));
  scribe.call({ do: 'list', endpoint: 'work' }, { jobs: listed });
  for (let read = 0; read < 2; read++) {
    for (const [id, end] of Object.entries(ENDS)) scribe.ask('status', id, end);
  }
  writeFlow(scribe);
  for (const [endpoint, startedAt] of [
    ['left', START + 100],
    ['right', START + 120],
    ['right', START + 1_100],
  ] as const) {
    const id = `${endpoint}-${startedAt - START}`;
    const body = { input: { tag: `t-${id}`, ms: 1 } };
    scribe.call({ do: 'run', endpoint, body }, { id, status: 'IN_QUEUE' });
    const end = { id, ...complete(id, { startedAt }) };
    scribe.call({ do: 'status', endpoint, job: id }, end);
    const timeline = [{ at: startedAt - 2, event: 'started', attempt: 1 }];
    scribe.call({ do: 'details', endpoint, job: id }, { ...end, ...body, timeline });
  }
  return scribe.history;
}

/** Its second part fails, and the third one is skipped. */
function writeFlow(scribe: Scribe): void {
  const endpoint = 'left';
  const part = (name: string, parents: string[], more: object = {}) => {
    const after = parents.map((job) => ({ job, onFailure: 'skip' as const }));
    return { name, endpoint, input: { tag: `t-${name}`, ms: 1, ...more }, after };
  };
  const first = [part('one', []), part('two', ['one'])];
  const jobs = [...first, part('three', ['one'], { failUntil: 1 }), part('four', ['three'])];
  const body = { jobs, idempotencyKey: 'flow' };
  const named = jobs.map(({ name }) => ({ name, endpoint, id: name }));
  scribe.call({ do: 'flow', endpoint, body }, { id: 'f', jobs: named });
  const states = ['COMPLETED', 'COMPLETED', 'FAILED', 'SKIPPED'];
  const none = { open: 0, timedOut: 0, cancelled: 0, removed: 0 };
  const record = {
    ...{ id: 'f', status: 'FAILED', createdAt: 0, endedAt: 1, total: 4 },
    counts: { ...none, completed: 2, failed: 1, skipped: 1 },
    jobs: jobs.map(({ after, name }, index) => {
      return { name, endpoint, id: name, after, state: states[index] };
    }),
  };
  scribe.call({ do: 'flow-record', endpoint, flow: 'f' }, record);
  const [one, two] = [complete('one'), complete('two', { startedAt: START + 150 })];
  for (const [index, end] of [one, two, FAILED, CANCELLED].entries()) {
    const id = jobs[index]?.name ?? '';
    scribe.call({ do: 'status', endpoint, job: id }, { id, ...end });
  }
}

type Body = Record<string, unknown> & {
  pieces: Piece[];
  jobs: { id: string; [name: string]: unknown }[];
};

/** The answers of these calls; tests change them. */
function find(history: History, kind: Request['do'], job?: string): Body[] {
  return history.events.flatMap((event) => {
    if (event.kind !== 'call' || event.request.do !== kind || event.user !== 'owner') return [];
    const tag = event.request.do === 'run' ? event.request.body.input.tag : undefined;
    const name = 'job' in event.request ? event.request.job : tag?.replace('t-', '');
    return job === undefined || name === job ? [event.answer?.body as Body] : [];
  });
}

function findPosted(history: History): Posted[] {
  return history.events.filter((event) => event.kind === 'posted');
}

function findCall(history: History, test: (call: Call) => boolean): Call {
  const call = history.events.find((event) => event.kind === 'call' && test(event));
  if (call?.kind !== 'call') throw new Error('no such call');
  return call;
}

function rewrite(body: object | undefined, values: object): void {
  if (!body) throw new Error('no such answer');
  Object.assign(body, values);
}

/** Changes the end of the job in every read. */
function rewriteEnd(history: History, job: string, end: object): void {
  const listed = find(history, 'list')[0]?.jobs.find(({ id }) => id === job);
  for (const body of [...find(history, 'status', job), listed]) {
    rewrite(body, { output: undefined, ...end });
  }
}

function findInput({ events }: History, job: string): Submission['input'] {
  const inputs = events.flatMap((event) =>
    event.kind === 'call' && event.request.do === 'run' ? [event.request.body.input] : [],
  );
  const input = inputs.find(({ tag }) => tag === `t-${job}`);
  if (!input) throw new Error('no such job');
  return input;
}

/** Adds a second job of the same submission to the list, and reads of it. */
function addTwin(history: History, of: string): void {
  const { sentAt } = findCall(history, ({ request }) => request.do === 'list');
  const seen = { id: 'twin', input: findInput(history, of), ...ENDS[of] };
  find(history, 'list')[0]?.jobs.push(seen);
  const call = {
    kind: 'call',
    user: 'owner',
    sentAt: sentAt + 11,
    answeredAt: sentAt + 12,
  } as const;
  for (const kind of ['details', 'status'] as const) {
    const request = { do: kind, endpoint: 'work', job: 'twin' };
    history.events.push({ ...call, request, answer: { status: 200, body: seen } });
  }
}

function changePieces(history: History, change: (pieces: Piece[]) => void): void {
  const [, second] = find(history, 'stream');
  if (second) change(second.pieces);
}

const LIES: Record<RuleName, (history: History) => void> = {
  forgotten(history) {
    const read = findCall(history, ({ request }) => request.do === 'status');
    read.answer = { status: 404, body: {} };
  },
  'unexpected-status'(history) {
    const read = findCall(history, ({ request }) => request.do === 'list');
    read.answer = { status: 500, body: {} };
  },
  'list-lacks-job': (history) => find(history, 'list')[0]?.jobs.pop(),
  'not-terminal': (history) => rewriteEnd(history, 'late', { status: 'IN_PROGRESS' }),
  'terminal-reopens': (history) =>
    rewrite(find(history, 'status', 'plain')[1], { status: 'IN_PROGRESS', output: undefined }),
  'terminal-changes': (history) =>
    rewrite(find(history, 'status', 'late')[1], complete('late', { startedAt: START + 701 })),
  'outcomes-disagree'(history) {
    for (const posted of findPosted(history)) posted.body = posted.body.replace('110', '111');
  },
  'attempt-lost'(history) {
    const end = complete('stream', { attempt: 2, chunks: 4 });
    rewriteEnd(history, 'stream', end);
    const pieces = [{ reset: true }, ...[0, 1, 2, 3].map((n) => chunk(n, 2))];
    rewrite(find(history, 'stream')[1], { pieces, record: { id: 'stream', ...end } });
  },
  'attempt-goes-back': (history) => rewrite(find(history, 'status', 'plain')[0], { attempt: 2 }),
  'old-attempt-counts': (history) =>
    rewriteEnd(history, 'late', { ...complete('late', { startedAt: START + 700 }), attempt: 2 }),
  'attempt-runs-twice': (history) =>
    changePieces(history, (pieces) => {
      for (const piece of pieces) if ('at' in piece) rewrite(Object(piece.output), { run: 'x' });
    }),
  'not-its-own'(history) {
    for (const posted of findPosted(history)) posted.tag = 't-late';
  },
  'outcome-without-cause': (history) => rewriteEnd(history, 'late', CANCELLED),
  'cancel-lost': (history) => rewriteEnd(history, 'stopped', complete('stopped')),
  'retry-lost': (history) => rewriteEnd(history, 'again', FAILED),
  'purge-lost': (history) =>
    rewriteEnd(history, 'purged', complete('purged', { startedAt: START + 8_000 })),
  'key-has-two-jobs': (history) => addTwin(history, 'stream'),
  'submission-makes-two-jobs': (history) => addTwin(history, 'late'),
  'key-body'(history) {
    const refused = findCall(history, ({ answer }) => answer?.status === 409);
    refused.answer = { status: 200, body: { id: 'stream', status: 'IN_QUEUE' } };
  },
  'stream-gap': (history) => changePieces(history, (pieces) => pieces.shift()),
  'stream-repeats': (history) => changePieces(history, (pieces) => pieces.push(chunk(3))),
  'stream-order': (history) => changePieces(history, (pieces) => pieces.reverse()),
  'stream-resumes-elsewhere': (history) =>
    changePieces(history, (pieces) => pieces.unshift(chunk(0), chunk(1))),
  'stream-incomplete': (history) => changePieces(history, (pieces) => pieces.pop()),
  'delay-cut': (history) =>
    rewriteEnd(history, 'late', complete('late', { startedAt: START + 400 })),
  'group-overlaps': (history) =>
    rewriteEnd(history, 'group-2', complete('group-2', { startedAt: START + 105 })),
  'limit-exceeded': (history) =>
    rewrite(
      find(history, 'status', 'right-120')[0],
      complete('right-120', { startedAt: START + 105 }),
    ),
  'rate-exceeded': (history) =>
    rewrite(find(history, 'details', 'right-1100')[0], {
      timeline: [{ at: START + 1_000, event: 'started', attempt: 1 }],
    }),
  'flow-order': (history) =>
    rewrite(find(history, 'status', 'two')[0], complete('two', { startedAt: START + 50 })),
  'flow-outcome'(history) {
    const { request } = findCall(history, ({ request }) => request.do === 'flow');
    const last = request.do === 'flow' ? request.body.jobs.at(-1) : undefined;
    for (const edge of last?.after ?? []) edge.onFailure = 'fail';
  },
  'flow-miscounts': (history) => rewrite(find(history, 'flow-record')[0], { total: 5 }),
  'foreign-read': (history) =>
    rewrite(findCall(history, ({ user }) => user === 'guest').answer ?? undefined, { status: 200 }),
  'webhook-missing'(history) {
    history.events = history.events.filter(({ kind }) => kind !== 'posted');
  },
  'webhook-repeats': (history) => rewrite(findPosted(history)[1], { delivery: 'd2' }),
  'tick-makes-two-jobs': (history) =>
    rewrite(Object(find(history, 'details', 'tick-1')[0]).schedule, { tickAt: 2_000 }),
  'tick-lost': (history) =>
    rewrite(find(history, 'pause')[0], { nextTicks: [new Date(4_000).toISOString()] }),
};

describe('the checker', () => {
  it('accepts an honest history', () => {
    expect(check(writeHonest())).toEqual([]);
  });

  it.each(Object.entries(LIES))('finds a violation of the rule %s', (rule, lie) => {
    const history = writeHonest();
    lie(history);
    const found = new Set(check(history).map((violation) => violation.rule));
    expect([...found]).toEqual([rule]);
  });

  it('finds an input that was not submitted', () => {
    const history = writeHonest();
    const scribe = new Scribe();
    const input = { ...findInput(history, 'plain') };
    scribe.at += 20_000;
    const details = { id: 'plain', input, ...ENDS['plain'] };
    scribe.call({ do: 'details', endpoint: 'work', job: 'plain' }, details);
    history.events.push(...scribe.history.events);
    expect(check(history)).toEqual([]);
    input.ms++;
    expect(check(history).map(({ rule }) => rule)).toEqual(['not-its-own']);
  });

  it('finds a live job whose cancel was refused with 409', () => {
    const history = writeHonest();
    const cancel = findCall(history, ({ request }) => request.do === 'cancel');
    Object.assign(cancel, {
      answer: { status: 409, body: {} },
      request: { ...cancel.request, job: 'plain' },
    });
    cancel.sentAt = START + 75;
    cancel.answeredAt = START + 76;
    rewriteEnd(history, 'stopped', complete('stopped'));
    expect(check(history).map(({ rule }) => rule)).toEqual(['cancel-lost']);
  });

  it('finds a chunk that the kept cursor delivers twice, unless the platform was killed in between', () => {
    const history = writeHonest();
    const scribe = new Scribe();
    const request = { do: 'stream', endpoint: 'work', job: 'stream', after: null } as const;
    for (let read = 0; read < 2; read++) scribe.call(request, { pieces: [chunk(0)], end: 'part' });
    history.events.push(...scribe.history.events);
    expect(check(history).map(({ rule }) => rule)).toEqual(['stream-repeats']);
    const times = { from: START + 12, to: START + 18 };
    history.events.push({ kind: 'fault', name: 'platform killed', ...times });
    expect(check(history)).toEqual([]);
  });
});
