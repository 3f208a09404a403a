// The link against a server that speaks the platform's side of the protocol, over real sockets.
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type Clock, systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import {
  createRunPodLink,
  type RunPodLink,
  type RunPodLinkOptions,
} from '../../../../src/transport/runpod/link.ts';
import { encodeChunk } from '../../../../src/wire/chunk/chunk.ts';
import type {
  Lease,
  LeaseRef,
  Outcome,
  Report,
  ReportReply,
} from '../../../../src/wire/link/worker-link.ts';
import { RunPodServer, type RunPodServerOptions } from '../../../support/runs/runpod-server.ts';

const worker = { workerId: 'pod-abc', incarnation: 5 };
const never = new AbortController().signal;
const closers: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function start(options: RunPodServerOptions = {}): Promise<RunPodServer> {
  const server = await RunPodServer.start(options);
  closers.push(() => server.close());
  return server;
}

function open(server: RunPodServer, changes: Partial<RunPodLinkOptions> = {}): RunPodLink {
  const link = createRunPodLink({
    templates: server.templates,
    podId: 'pod-abc',
    key: 'worker-key',
    hostname: 'host',
    version: '0.0.0',
    log: silentLog,
    pingEveryMs: 1_000,
    ...changes,
  });
  closers.push(() => link.close());
  return link;
}

async function greet(link: RunPodLink, outbox: LeaseRef[] = []) {
  const about = { protocol: 1, version: '0.0.0', slots: 4, devices: [], outbox };
  return link.hello({ ...worker, ...about });
}

async function connect(options: RunPodServerOptions = {}, changes = {}) {
  const server = await start(options);
  const link = open(server, changes);
  await greet(link);
  return { server, link };
}

function take(link: RunPodLink, max = 1, signal = never): Promise<Lease[]> {
  return link.take({ ...worker, takeId: 't', max, waitMs: 90_000, held: [] }, signal);
}

async function takeOne(link: RunPodLink): Promise<Lease> {
  const [lease] = await take(link);
  if (!lease) throw new Error('there is no lease');
  return lease;
}

/** The reports of one attempt, numbered. */
class Reports {
  readonly #link: RunPodLink;
  readonly #lease: LeaseRef;
  #seq = 1;
  #first = 0;

  constructor(link: RunPodLink, { attempt, jobId, token }: LeaseRef) {
    this.#link = link;
    this.#lease = { attempt, jobId, token };
  }

  chunks(...outputs: unknown[]): Report {
    return this.encoded(...outputs.flatMap((output) => encodeChunk(output, {})));
  }

  encoded(...chunks: Buffer[]): Report {
    const body = Buffer.concat(
      chunks.flatMap((chunk, n) => [...(n ? [Buffer.from(',')] : []), chunk]),
    );
    const first = this.#first;
    this.#first += chunks.length;
    const sizes = chunks.map(({ length }) => length);
    return { ...this.#number(), kind: 'chunks', first, sizes, body };
  }

  progress(value: unknown): Report {
    return { ...this.#number(), kind: 'progress', body: Buffer.from(JSON.stringify(value)) };
  }

  outcome(outcome: Outcome, output?: unknown): Extract<Report, { kind: 'outcome' }> {
    const body = Buffer.from(output === undefined ? '' : JSON.stringify(output));
    return { ...this.#number(), kind: 'outcome', outcome, body };
  }

  completed(output: unknown) {
    return this.outcome({ kind: 'completed', executionMs: 1, output: 'value' }, output);
  }

  streamed() {
    return this.outcome({ kind: 'completed', executionMs: 1, output: 'chunks' });
  }

  /** Repeated as a worker would, until it is answered. */
  async send(...reports: Report[]): Promise<ReportReply[]> {
    for (;;) {
      try {
        return await this.#link.report({ ...worker, reports });
      } catch (error) {
        if (!(error instanceof Error && 'code' in error && error.code === 'unavailable'))
          throw error;
      }
    }
  }

  #number() {
    return { ...this.#lease, seq: this.#seq++ };
  }
}

async function begin(options: RunPodServerOptions = {}, changes = {}) {
  const { server, link } = await connect(options, changes);
  server.submit('j1', { a: 1 });
  const lease = await takeOne(link);
  return { server, link, lease, reports: new Reports(link, lease) };
}

describe('a job on RunPod', () => {
  it.each(['query', 'bare', 'question', 'literal'] as const)(
    'is taken, streamed and answered with templates of the kind %s',
    async (templates) => {
      const { server, lease, reports } = await begin({ templates });
      expect(JSON.parse(Buffer.from(lease.input).toString())).toEqual({ a: 1 });
      await reports.send(reports.chunks('a', 'b'), reports.streamed());
      expect(server.job('j1')).toMatchObject({
        stream: [{ output: 'a' }, { output: 'b' }],
        results: [{ output: ['a', 'b'], isStream: 'true' }],
      });
    },
  );

  it('is answered with the headers of the protocol and the bare key', async () => {
    const { server, reports } = await begin();
    await reports.send(reports.completed({ x: 'héllo' }));
    const [done] = server.of('done');
    expect(done).toMatchObject({
      method: 'POST',
      url: '/v2/ep1/job-done/pod-abc/j1?gpu=NVIDIA+L4&isStream=false',
      body: '{"output":{"x":"héllo"}}',
      headers: {
        authorization: 'worker-key',
        'content-type': 'application/x-www-form-urlencoded',
        charset: 'utf-8',
        'x-request-id': 'j1',
      },
    });
  });

  it('reports its error as JSON in a text if it failed', async () => {
    const { server, reports } = await begin();
    const error = {
      code: 'handler_error' as const,
      message: 'no',
      type: 'Error',
      stack: 'Error: no',
    };
    await reports.send(
      reports.outcome({ kind: 'failed', executionMs: 1, error, retry: 'default' }),
    );
    const { error: text } = await server.result('j1');
    expect(JSON.parse(String(text))).toMatchObject({
      error_type: 'Error',
      error_message: 'no',
      error_traceback: 'Error: no',
      worker_id: 'pod-abc',
      hostname: 'host',
    });
  });

  it('reports its progress before its result, and its metrics beside the output', async () => {
    const { server, reports } = await begin();
    const chunk = encodeChunk('a', { tokens: 3 });
    await reports.send(reports.progress(50), reports.encoded(...chunk), reports.streamed());
    expect(server.of('done').map(({ body }) => body)).toEqual([
      '{"status":"IN_PROGRESS","output":50}',
      '{"output":["a"]}',
    ]);
    expect(server.job('j1').stream).toEqual([{ output: 'a', metrics: { tokens: 3 } }]);
  });

  it('sends a large value in pieces of at most 1 MB, and complete in its result', async () => {
    const { server, reports } = await begin();
    const text = 'é'.repeat(1_200_000);
    await reports.send(reports.chunks(text), reports.streamed());
    const sizes = server.of('stream').map(({ body }) => Buffer.byteLength(body));
    expect(Math.max(...sizes)).toBeLessThanOrEqual(1_000_000);
    expect(sizes.length).toBeGreaterThan(2);
    expect((await server.result('j1')).output).toEqual([text]);
  });

  it('asks for a new pod if its handler does', async () => {
    const { server, reports } = await begin();
    await reports.send({ ...reports.completed(1), recycle: true });
    expect(await server.result('j1')).toMatchObject({ output: 1, stopPod: true });
  });

  it('joins waiting texts if the option is set, and nothing else', async () => {
    const { server, reports } = await begin({}, { joinsText: true });
    await reports.send(reports.chunks('a"', '\n', 'ü', { n: 1 }, 'c'), reports.streamed());
    expect(server.job('j1').stream).toEqual([
      { output: 'a"\nü' },
      { output: { n: 1 } },
      { output: 'c' },
    ]);
    expect((await server.result('j1')).output).toEqual(['a"', '\n', 'ü', { n: 1 }, 'c']);
  });
});

describe('a take on RunPod', () => {
  it('returns several jobs for free slots, and rejects invalid ones one by one', async () => {
    const { server, link } = await connect();
    for (const element of [
      { id: 'a', input: null },
      { id: 'b' },
      7,
      { input: {} },
      { id: 'c', input: 1 },
    ]) {
      server.offer(element);
    }
    const leases = await take(link, 4);
    leases.push(...(await take(link, 4)));
    expect(leases.map(({ jobId }) => jobId)).toEqual(['a', 'c']);
    const { error } = await server.result('b');
    expect(String(error)).toContain('no input');
    expect(server.of('take')[0]?.url).toContain(
      '/job-take-batch/pod-abc?gpu=NVIDIA+L4&batch_size=4',
    );
  });

  it('carries the client’s S3 configuration', async () => {
    const { server, link } = await connect();
    const s3Config = { accessId: 'a', bucketName: 'b' };
    server.offer({ id: 'a', input: {}, s3Config });
    server.offer({ id: 'b', input: {}, s3Config: null });
    const leases = [await takeOne(link), await takeOne(link)];
    expect(leases.map((lease) => lease.s3Config)).toEqual([JSON.stringify(s3Config), undefined]);
  });

  it('reports whether jobs are running', async () => {
    const { server, link } = await begin();
    server.submit('j2', {});
    await takeOne(link);
    const takes = server.of('take').map(({ url }) => url.slice(-1));
    expect(takes).toEqual(['0', '1']);
  });

  it('ignores a job that it already has', async () => {
    const { server, link } = await begin();
    server.submit('j1', {});
    server.submit('j2', {});
    expect((await take(link, 1)).map(({ jobId }) => jobId)).toEqual(['j2']);
  });

  it('treats 400 and 204 as no job, with growing pauses', async () => {
    const pauses: number[] = [];
    const clock: Clock = {
      now: systemClock.now,
      after(ms, act) {
        const isPause = ms < 1_000;
        if (isPause) pauses.push(ms);
        return systemClock.after(isPause ? 0 : ms, act);
      },
    };
    const { server, link } = await connect(
      { fault: (route) => (route === 'take' ? { kind: 'status', status: 400 } : undefined) },
      { clock, pingEveryMs: 60_000 },
    );
    const taken = take(link);
    await server.until(() => server.of('take').length >= 5);
    expect(pauses.slice(0, 4)).toEqual([50, 100, 200, 400]);
    server.fault = undefined;
    server.submit('j', {});
    expect(await taken).toHaveLength(1);
  });

  it('is unauthorized with a wrong key, otherwise unavailable', async () => {
    const { server, link } = await connect({}, { key: 'wrong' });
    await expect(take(link)).rejects.toMatchObject({ code: 'unauthorized' });
    server.fault = undefined;
    const other = await connect({
      fault: () => ({ kind: 'status', status: 429, headers: { 'retry-after': '7' } }),
    });
    await expect(take(other.link)).rejects.toMatchObject({
      code: 'unavailable',
      retryAfterMs: 7_000,
    });
    other.server.fault = () => ({ kind: 'reset', when: 'before' });
    await expect(take(other.link)).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('delivers the job that is on its way, also if it is cancelled', async () => {
    const { server, link } = await connect({ holdMs: 5_000 });
    const leaving = new AbortController();
    const taken = take(link, 1, leaving.signal);
    await server.until(() => server.of('take').length === 1);
    leaving.abort();
    server.submit('late', {});
    expect(await taken).toMatchObject([{ jobId: 'late' }]);
  });

  it('repeats a job that was released without blame, alone if it is a suspect', async () => {
    const { link, reports, server } = await begin({ holdMs: 5_000 });
    const taken = take(link);
    await server.until(() => server.of('take').length === 2);
    await reports.send(reports.outcome({ kind: 'released', reason: 'suspect' }));
    // Without the poll, which is still open, having been answered.
    expect(await taken).toMatchObject([{ jobId: 'j1', attempt: 2, solo: true }]);
    server.submit('j2', {});
    expect(await take(link)).toMatchObject([{ jobId: 'j2' }]);
    expect(server.of('take')).toHaveLength(2);
  });

  it('fails a job whose output was read, instead of restarting it', async () => {
    const { reports, server } = await begin();
    await reports.send(
      reports.chunks('a'),
      reports.outcome({ kind: 'released', reason: 'neighbour' }),
    );
    expect(String((await server.result('j1')).error)).toContain('released_neighbour');
  });
});

describe('a stop on RunPod', () => {
  it('ends the lease, and posts nothing more for the job', async () => {
    const { lease, link, reports, server } = await begin();
    const { jobId, token } = lease;
    const leases = [{ jobId, token, stopping: false }];
    const renewed = link.renew({ ...worker, waitMs: 10_000, leases }, never);
    server.stop('j1', 'another');
    expect(await renewed).toEqual({
      ended: [{ jobId, token, verdict: 'cancelled' }],
      drain: false,
    });
    expect(await reports.send(reports.chunks('a'))).toEqual([{ answer: 'superseded' }]);
    await reports.send(reports.outcome({ kind: 'cancelled', executionMs: 1, stopped: 'signal' }));
    expect([...server.of('done'), ...server.of('stream')]).toEqual([]);
  });

  it('prevents the run of its job if it arrives first', async () => {
    const { link, server } = await connect({ holdMs: 5_000 });
    const taken = take(link);
    await server.until(() => server.of('take').length === 1 && server.of('stop').length === 1);
    server.stop('j1');
    await server.until(() => server.of('stop').length === 2);
    server.submit('j1', {});
    await server.until(() => server.of('take').length === 2);
    server.submit('j2', {});
    expect(await taken).toMatchObject([{ jobId: 'j2' }]);
  });

  it('changes nothing if it arrives late', async () => {
    const { link, reports, server } = await begin();
    await reports.send(reports.completed(1));
    server.stop('j1');
    await server.until(() => server.of('stop').length > 1);
    server.submit('j1', {});
    const again = await takeOne(link);
    const more = new Reports(link, again);
    await more.send(more.completed(2));
    expect(server.job('j1').results).toHaveLength(2);
  });

  it.each([
    { status: 404, what: 'does not exist' },
    { status: 410, what: 'was removed' },
    { status: 501, what: 'is not implemented' },
  ])('may have a channel that $what: $status', async ({ status }) => {
    const { link, server } = await connect({
      fault: (route) => (route === 'stop' ? { kind: 'status', status } : undefined),
    });
    await server.until(() => server.of('stop').length > 0);
    expect(await link.renew({ ...worker, waitMs: 300, leases: [] }, never)).toEqual({
      ended: [],
      drain: false,
    });
  });

  it('is polled again soon after a 400, which means that no job stops', async () => {
    const { lease, link, server } = await begin({
      fault: (route) => (route === 'stop' ? { kind: 'status', status: 400 } : undefined),
    });
    await server.until(() => server.of('stop').length > 0);
    server.fault = undefined;
    server.stop('j1');
    const { jobId, token } = lease;
    const leases = [{ jobId, token, stopping: false }];
    const { ended } = await link.renew({ ...worker, waitMs: 90_000, leases }, never);
    expect(ended).toEqual([{ jobId, token, verdict: 'cancelled' }]);
  });

  it('is noticed if it cannot be fetched, and leases are not renewed', async () => {
    const { link, server } = await connect({
      fault: (route) => (route === 'stop' ? { kind: 'status', status: 502 } : undefined),
    });
    await server.until(() => server.of('stop').length > 1);
    const renewed = link.renew({ ...worker, waitMs: 0, leases: [] }, never);
    await expect(renewed).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('does not prevent the run if it is requested while the job is redelivered', async () => {
    const { link, server } = await begin();
    server.stop('j1');
    const renewed = () => link.renew({ ...worker, waitMs: 100, leases: [] }, never);
    await server.until(() => server.of('stop').length > 1);
    await renewed();
    server.submit('j1', {});
    expect(await take(link)).toHaveLength(1);
  });
});

describe('a report on RunPod', () => {
  it.each([
    ['resets before the server reads it', 8, { kind: 'reset', when: 'before' }],
    ['resets after the server has read it', 8, { kind: 'reset', when: 'after' }],
    ['429', 8, { kind: 'status', status: 429 }],
    ['502', 8, { kind: 'status', status: 502 }],
    ['a temporarily refused key', 8, { kind: 'status', status: 401 }],
    ['404 twice', 2, { kind: 'status', status: 404 }],
  ] as const)('outlives %s', async (_, times, fault) => {
    let left = times;
    const { reports, server } = await begin({
      fault: (route) =>
        (route === 'stream' || route === 'done') && left-- > 0 ? fault : undefined,
    });
    await reports.send(reports.chunks('a', 'b'));
    if (times > 2) left = times;
    await reports.send(reports.streamed());
    const { results, stream } = server.job('j1');
    expect(results[0]).toMatchObject({ output: ['a', 'b'] });
    expect(new Set(stream.map(({ output }) => output))).toEqual(new Set(['a', 'b']));
  });

  it('continues with the rejected chunk, not from the start', async () => {
    let posts = 0;
    const { reports, server } = await begin({
      fault: (route) => {
        if (route !== 'stream') return undefined;
        posts += 1;
        return posts === 3 ? { kind: 'status', status: 500 } : undefined;
      },
    });
    await reports.send(reports.chunks('a', 'b', 'c', 'd'));
    expect(server.job('j1').stream.map(({ output }) => output)).toEqual(['a', 'b', 'c', 'd']);
  });

  it('counts once if it is repeated', async () => {
    const { reports, server } = await begin();
    const chunks = reports.chunks('a');
    expect(await reports.send(chunks)).toEqual([{ answer: 'applied' }]);
    expect(await reports.send(chunks)).toEqual([{ answer: 'duplicate' }]);
    expect(server.job('j1').stream).toHaveLength(1);
  });

  it('is invalid if it is rejected, or gone if the job is unknown', async () => {
    const answers = { done: 413 };
    const { link, reports, server } = await begin({
      fault: (route) => (route === 'done' ? { kind: 'status', status: answers.done } : undefined),
    });
    await expect(reports.send(reports.completed('x'))).rejects.toMatchObject({ code: 'invalid' });
    answers.done = 404;
    server.submit('j2', {});
    const other = new Reports(link, await takeOne(link));
    expect(await other.send(other.completed(1))).toEqual([{ answer: 'gone' }]);
  });

  it('has the whole output if the stream is rejected', async () => {
    const { reports, server } = await begin({
      fault: (route) => (route === 'stream' ? { kind: 'status', status: 404 } : undefined),
    });
    await reports.send(reports.chunks('a', 'b'), reports.streamed());
    expect((await server.result('j1')).output).toEqual(['a', 'b']);
    expect(server.of('stream')).toHaveLength(3);
  });

  it.each([
    ['an accepted stream', 2, { stream: 1 }],
    ['a rejected stream', 3, { stream: 0 }],
  ])('has three attempts of its own after %s', async (_, streamRefusals, streamed) => {
    const left = { stream: streamRefusals, done: 2 };
    const { reports, server } = await begin({
      fault: (route) => {
        if (route !== 'stream' && route !== 'done') return undefined;
        return left[route]-- > 0 ? { kind: 'status', status: 404 } : undefined;
      },
    });
    await reports.send(reports.chunks('a'));
    expect(await reports.send(reports.streamed())).toEqual([{ answer: 'applied' }]);
    expect(server.job('j1').results[0]).toMatchObject({ output: ['a'] });
    expect(server.job('j1').stream).toHaveLength(streamed.stream);
  });

  it('is named if it is missing, so that the worker sends it', async () => {
    const { reports } = await begin();
    const [first, second, third] = [reports.chunks('a'), reports.chunks('b'), reports.chunks('c')];
    await reports.send(first);
    expect(await reports.send(third)).toEqual([{ answer: 'gap', expected: 2 }]);
    expect(await reports.send(second, third)).toEqual([
      { answer: 'applied' },
      { answer: 'applied' },
    ]);
  });

  it('is delivered from an earlier process', async () => {
    const server = await start();
    const link = open(server);
    const left = { jobId: 'old', attempt: 1, token: 'before' };
    await greet(link, [left]);
    const reports = new Reports(link, left);
    await reports.send(reports.completed('kept'));
    expect((await server.result('old')).output).toBe('kept');
  });

  it('has no output from an earlier process if that process sent part of the stream', async () => {
    const server = await start();
    const link = open(server);
    const left = { jobId: 'old', attempt: 1, token: 'before' };
    await greet(link, [left]);
    const reports = new Reports(link, left);
    reports.chunks('sent', 'by it');
    await reports.send(reports.chunks('sent', 'now'), reports.streamed());
    expect(server.job('old').stream.map(({ output }) => output)).toEqual(['sent', 'now']);
    expect(await server.result('old')).toMatchObject({ output: [], isStream: 'true' });
  });

  it('is sent for a job whose ID is not valid in a header', async () => {
    const { link, server } = await connect();
    server.submit('é\n✓', {});
    const lease = await takeOne(link);
    const reports = new Reports(link, lease);
    await reports.send(reports.completed(1));
    expect((await server.result('é\n✓')).output).toBe(1);
  });
});

describe('pings on RunPod', () => {
  it('name the running jobs from the start', async () => {
    const { server } = await begin();
    await server.until(() => server.of('ping').some(({ url }) => url.includes('job_id=j1')));
    expect(server.of('ping')[0]?.url).toMatch(
      /^\/v2\/ep1\/ping\/pod-abc\?gpu=NVIDIA\+L4&runpod_version=/,
    );
  });

  it('report once why the worker is unfit', async () => {
    const server = await start();
    await open(server).reportUnfit('weights', 'none there');
    expect(server.of('ping').map(({ url }) => url)).toEqual([
      expect.stringContaining('status=unhealthy&check=weights&reason=none%20there'),
    ]);
  });
});

describe('the end of a worker on RunPod', () => {
  it('reports its remaining jobs', async () => {
    const { link, server } = await begin();
    await link.bye({ ...worker, reason: 'drained', outbox: [] });
    expect(String((await server.result('j1')).error)).toContain('the worker shut down');
  });

  it('reports the unfinished jobs of a dead process', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-ledger-'));
    closers.push(() => rm(folder, { recursive: true }));
    const { link, server } = await begin({}, { ledgerFolder: folder });
    server.submit('j2', {});
    server.submit('j3', {});
    const finished = await takeOne(link);
    const settled = await takeOne(link);
    const reports = new Reports(link, settled);
    await reports.send(reports.completed(3));
    // Its process dies: nothing of the link is left but its file.
    await link.close();
    const { attempt, jobId, token } = finished;
    const bye = { ...worker, reason: 'crashed' as const, detail: 'by SIGKILL' };
    await open(server, { ledgerFolder: folder }).bye({
      ...bye,
      outbox: [{ attempt, jobId, token }],
    });
    expect(String((await server.result('j1')).error)).toContain('by SIGKILL');
    expect(server.job('j2').results).toEqual([]);
    expect(server.job('j3').results).toMatchObject([{ output: 3 }]);
    expect(await readdir(folder)).toEqual([]);
  });

  it('does not affect the jobs of its successor', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-ledger-'));
    closers.push(() => rm(folder, { recursive: true }));
    const { reports, server } = await begin({}, { ledgerFolder: folder });
    const late = { ...worker, incarnation: 4, reason: 'crashed' as const, outbox: [] };
    await open(server, { ledgerFolder: folder }).bye(late);
    await reports.send(reports.completed('well'));
    expect(server.job('j1').results).toMatchObject([{ output: 'well' }]);
  });

  it('is reported by the next process if it was not reported', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-ledger-'));
    closers.push(() => rm(folder, { recursive: true }));
    const { link, server } = await begin({}, { ledgerFolder: folder });
    await link.close();
    const next = open(server, { ledgerFolder: folder });
    const about = { protocol: 1, version: '0.0.0', slots: 1, devices: [], outbox: [] };
    await next.hello({ ...worker, incarnation: 6, ...about });
    expect(String((await server.result('j1')).error)).toContain('died');
  });

  it('is posted for each job, even if one of the posts fails', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-ledger-'));
    closers.push(() => rm(folder, { recursive: true }));
    const { link, server } = await begin({}, { ledgerFolder: folder });
    server.submit('j2', {});
    await takeOne(link);
    const isLater = { kind: 'status', status: 503, headers: { 'retry-after': '3600' } } as const;
    server.fault = (route, jobId) => (route === 'done' && jobId === 'j1' ? isLater : undefined);
    const bye = { ...worker, reason: 'drained' as const, outbox: [] };
    await expect(link.bye(bye)).rejects.toMatchObject({ code: 'unavailable' });
    await server.result('j2');
    await link.close();
    // The next process asks no sooner than it was told, and dies.
    const about = { protocol: 1, version: '0.0.0', slots: 1, devices: [], outbox: [] };
    const second = open(server, { ledgerFolder: folder });
    await second.hello({ ...worker, incarnation: 6, ...about });
    const isAsked = () => server.of('done').filter(({ jobId }) => jobId === 'j1').length;
    await server.until(() => isAsked() === 2);
    const pings = server.of('ping').length;
    await server.until(() => server.of('ping').length > pings + 2);
    expect(isAsked()).toBe(2);
    await second.close();
    // The one after it still knows.
    server.fault = undefined;
    const third = open(server, { ledgerFolder: folder });
    await third.hello({ ...worker, incarnation: 7, ...about });
    expect(String((await server.result('j1')).error)).toContain('died');
    expect(server.job('j2').results).toHaveLength(1);
  });
});
