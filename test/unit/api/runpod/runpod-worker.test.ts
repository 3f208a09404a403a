import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import {
  exchange,
  nextTake,
  type Platform,
  readJson,
  startPlatform,
  submitJob,
  takeJob,
} from '../../../support/api/platform.ts';
import { ask, ping, poll, readRecord, send, take } from '../../../support/api/python-calls.ts';
import { until } from '../../../support/until.ts';
import { PythonWorker, type PythonWorkerOptions } from '../../../support/workers/python-worker.ts';

function environmentOf({ url, worker }: Platform, query = '?'): Record<string, string> {
  const base = `${url}/runpod/v2/demo`;
  return {
    RUNPOD_WEBHOOK_GET_JOB: `${base}/job-take/$ID${query}`,
    RUNPOD_WEBHOOK_POST_OUTPUT: `${base}/job-done/$RUNPOD_POD_ID/$ID${query}`,
    RUNPOD_WEBHOOK_POST_STREAM: `${base}/job-stream/$RUNPOD_POD_ID/$ID${query}`,
    RUNPOD_WEBHOOK_PING: `${base}/ping/$RUNPOD_POD_ID${query}`,
    RUNPOD_PING_INTERVAL: '100',
    RUNPOD_AI_API_KEY: worker,
    RUNPOD_POD_ID: 'pod-py',
  };
}

function startWorker(platform: Platform, options: Partial<PythonWorkerOptions> = {}): PythonWorker {
  const handler = ({ input }: { input: unknown }) => ({ echo: input });
  const worker = new PythonWorker({ environment: environmentOf(platform), handler, ...options });
  onTestFinished(() => worker.die());
  return worker;
}

function untilEnded(platform: Platform, id: string): Promise<Record<string, unknown>> {
  return until(async () => {
    const record = await readRecord(platform, id);
    return !/^IN_/.test(String(record['status'])) && record;
  });
}

describe('a job for a RunPod worker', () => {
  it('is leased with its ID, the attempt, and its unchanged input', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform, { input: { n: 1 } });

    const answer = await ask(platform, 'job-take/pod-1&job_in_progress=0');

    expect(answer.headers.get('content-type')).toMatch(/^application\/json/);
    expect(await readJson(answer)).toEqual({ id: id, input: { n: 1 } });
    expect(await readRecord(platform, id)).toMatchObject({
      status: 'IN_PROGRESS',
      workerId: 'pod-1',
    });
  });

  it('is in an array if the worker asks for several', async () => {
    const platform = await startPlatform();
    const ids = [await submitJob(platform), await submitJob(platform), await submitJob(platform)];

    const answer = await ask(platform, 'job-take-batch/pod-1?&batch_size=2&job_in_progress=0');

    expect(await answer.json()).toEqual(ids.slice(0, 2).map((id) => ({ id: id, input: {} })));
  });

  it('is requeued uncounted if its answer was not received', async () => {
    const platform = await startPlatform();
    const gone = new AbortController();
    const taken = nextTake(platform);
    const poll = ask(platform, 'job-take/pod-1?&job_in_progress=0', { signal: gone.signal });
    await taken;
    gone.abort();
    await expect(poll).rejects.toThrow();
    const id = await submitJob(platform);

    expect(await take(platform)).toMatchObject({ id: id });
  });

  it('is requeued uncounted if the connection broke within its answer', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform, { input: { text: 'x'.repeat(9_000_000) } });
    const head = `host: here\r\nauthorization: ${platform.worker}\r\n\r\n`;
    const path = '/runpod/v2/demo/job-take/pod-1&job_in_progress=0';
    await exchange(platform.port, [`GET ${path} HTTP/1.1\r\n${head}`], () => true);

    expect(await take(platform, '?&job_in_progress=1')).toMatchObject({ id: `${id}-a2` });
  });

  it('is requeued at once if a Millrace worker releases it', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { id: name } = await take(platform);
    const error = JSON.stringify({ error_code: 'released_drain', error_message: 'no' });
    const answer = await send(platform, `job-done/pod-1/${name}?`, JSON.stringify({ error }));

    expect(answer.status).toBe(200);
    expect(await take(platform, '?&job_in_progress=1')).toMatchObject({ id: `${id}-a2` });
  });

  it('is lost and retried if its worker says that it runs none', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { id: name } = await take(platform);
    await ping(platform, [String(name)]);

    expect(await take(platform)).toMatchObject({ id: `${id}-a2` });
  });

  it('stays with a worker that polls for more while it runs', async () => {
    const platform = await startPlatform();
    const first = await submitJob(platform);
    const { id: name } = await take(platform);
    const second = await submitJob(platform);

    expect(await take(platform, '?&job_in_progress=1')).toMatchObject({ id: second });
    await send(platform, `job-done/pod-1/${name}?&isStream=false`, '{"output": 1}');
    expect(await readRecord(platform, first)).toMatchObject({ status: 'COMPLETED', attempt: 1 });
  });

  it('stays with a silent worker for three pings and then goes to another', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    const id = await submitJob(platform);
    const { id: name } = await take(platform);
    await ask(platform, `ping/pod-1?every=10000&job_id=${name}`);

    await clock.advance(29_900);
    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_PROGRESS', attempt: 1 });
    await clock.advance(15_000);

    expect(await take(platform, undefined, 'pod-2')).toMatchObject({ id: `${id}-a2` });
  });

  it('is lost after three pings that do not name it', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { id: name } = await take(platform);
    await ping(platform, [String(name)]);
    await ping(platform, []);
    await ping(platform, []);
    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_PROGRESS' });

    await ping(platform, []);

    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_QUEUE' });
  });

  it('ends with the output that the worker sends, whatever content type it says', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { id: name } = await take(platform);

    const answer = await send(
      platform,
      `job-done/pod-1/${name}&isStream=false`,
      '{"output": {"txt": "héllo ✓"}}',
    );

    expect(answer.status).toBe(200);
    expect(await readRecord(platform, id)).toMatchObject({
      status: 'COMPLETED',
      output: { txt: 'héllo ✓' },
    });
  });

  it('is found by the request ID if the path has no job', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { id: name } = await take(platform);

    await ask(platform, 'job-done/pod-1?gpu=x&isStream=false', {
      method: 'POST',
      body: '{"output": 7}',
      headers: { 'x-request-id': String(name) },
    });

    expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED', output: 7 });
  });

  it('is not changed by reports of an earlier attempt or of none', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    const id = await submitJob(platform);
    const { id: name } = await take(platform);
    await send(platform, `job-done/pod-1/${name}?&isStream=false`, '{"error": "no"}');
    // The longest wait before the next attempt.
    await clock.advance(1_200);
    expect(await take(platform, undefined, 'pod-2')).toMatchObject({ id: `${id}-a2` });

    const late = await send(platform, `job-done/pod-1/${name}?&isStream=false`, '{"output": 1}');
    const strange = await send(platform, 'job-done/pod-1/abc-u1?&isStream=false', '{"output": 1}');

    expect([late.status, strange.status]).toEqual([200, 200]);
    expect(await readJson(late)).toEqual({ answer: 'superseded' });
    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_PROGRESS', attempt: 2 });
  });

  it('excludes leases of a worker with its own link', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const running = await takeJob(platform);

    const answer = await send(platform, `job-done/w1/${id}?&isStream=false`, '{"output": 1}');

    expect(await readJson(answer)).toEqual({ answer: 'superseded' });
    await running.complete('2');
    expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED', output: 2 });
  });

  it.each([
    ['job-done', '{"output": 1}'],
    ['job-done', '{"error": "no"}'],
    ['job-done', '{"status": "IN_PROGRESS", "output": "10%"}'],
    ['job-stream', '{"output": 1}'],
  ])('is not changed by the %s of another worker with %s', async (verb, body) => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { id: name } = await take(platform);

    const answer = await send(platform, `${verb}/pod-2/${name}?&isStream=false`, body);

    expect(await readJson(answer)).toEqual({ answer: 'superseded' });
    expect(await readRecord(platform, id)).not.toHaveProperty('progress');
    await send(platform, `job-done/pod-1/${name}?&isStream=true`, '{"output": []}');
    expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED', output: [] });
  });

  it('ignores a worker with the same ID whose key belongs to no pod, if the key of its own worker does', async () => {
    const platform = await startPlatform();
    const scopes = ['worker:demo'];
    const { key } = await platform.keys.issue({ name: 'pod', scopes, podId: 'pod_1' });
    const id = await submitJob(platform);
    const headers = { authorization: key };
    const { id: name } = await readJson(await ask(platform, 'job-take/pod-1?', { headers }));
    const path = `job-done/pod-1/${name}?&isStream=false`;

    await send(platform, path, '{"output": 1}');

    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_PROGRESS' });
    await ask(platform, path, { method: 'POST', body: '{"output": 2}', headers });
    expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED', output: 2 });
  });

  it('is lost although another worker pings for it, and that worker must stop it', async () => {
    const platform = await startPlatform();
    await submitJob(platform);
    const { id: name } = await take(platform);

    await ping(platform, [String(name)], 'pod-2');

    expect(await readJson(await ask(platform, 'job-stop/pod-2?'))).toEqual({ jobsToStop: [name] });
  });

  it('counts a repeated result once', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { id: name } = await take(platform);
    const path = `job-done/pod-1/${name}?&isStream=false`;

    const answers = await Promise.all([1, 2].map((n) => send(platform, path, `{"output": ${n}}`)));

    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED', output: 1 });
  });

  it('fails with the reason if its result is too large', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { id: name } = await take(platform);
    const body = `{"output": "${'x'.repeat(22 * 1_048_576)}"}`;

    await send(platform, `job-done/pod-1/${name}?&isStream=false`, body).catch(() => {});

    expect(await untilEnded(platform, id)).toMatchObject({
      status: 'FAILED',
      error: { code: 'output_too_large' },
    });
  });

  it('shows reported progress, but no late progress', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { id: name } = await take(platform);
    const path = `job-done/pod-1/${name}?&isStream=false`;
    const progress = '{"status": "IN_PROGRESS", "output": "10%"}';

    await send(platform, path, progress);
    expect(await readRecord(platform, id)).toMatchObject({ progress: '10%' });
    await send(platform, path, '{"output": 1}');
    expect((await send(platform, path, progress)).status).toBe(200);

    const record = await readRecord(platform, id);
    expect(record).toMatchObject({ status: 'COMPLETED', output: 1 });
  });

  it('is ended by its execution timeout, and the worker learns of it', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform, { input: {}, policy: { executionTimeout: 1_000 } });
    const { id: name } = await take(platform);

    const stop = await ask(platform, 'job-stop/pod-1?');

    expect(await stop.json()).toEqual({ jobsToStop: [name] });
    expect(await readRecord(platform, id)).toMatchObject({
      status: 'TIMED_OUT',
      error: { code: 'execution_timeout' },
    });
  });
});

describe('a RunPod worker', () => {
  it('learns at once which jobs to stop, and again while its pings name them', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { id: name } = await take(platform);
    const waiting = ask(platform, 'job-stop/pod-1?');
    await new Promise((resolve) => setTimeout(resolve, 50));

    await platform.post(`/v2/demo/cancel/${id}`, {});
    expect(await (await waiting).json()).toEqual({ jobsToStop: [name] });
    await ping(platform, [String(name)]);

    const again = await ask(platform, 'job-stop/pod-1?');
    expect(await again.json()).toEqual({ jobsToStop: [name] });
  });

  it('holds a job no more after its stop', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    await take(platform);
    await platform.post(`/v2/demo/cancel/${id}`, {});

    await ask(platform, 'job-stop/pod-1?');

    await expect
      .poll(async () => readJson(await platform.call('/v2/demo/health')))
      .toMatchObject({ workers: { idle: 1, running: 0 } });
  });

  it('reconnects with its next request if the queue has forgotten it', async () => {
    const platform = await startPlatform();
    await ping(platform, []);
    const identity = { workerId: 'pod-1', incarnation: 0 };
    await platform.link.bye({ ...identity, reason: 'drained', outbox: [] });
    const id = await submitJob(platform);

    expect(await take(platform)).toMatchObject({ id: id });
  });

  it('gets no more jobs for now if it asks to be replaced, and may exit at once', async () => {
    const platform = await startPlatform();
    await submitJob(platform);
    const { id: name } = await take(platform);
    const stop = ask(platform, 'job-stop/pod-1?');
    const more = ask(platform, 'job-take/pod-1?&job_in_progress=1');
    await new Promise((resolve) => setTimeout(resolve, 50));

    await send(
      platform,
      `job-done/pod-1/${name}?&isStream=false`,
      '{"output": 1, "stopPod": true}',
    );

    expect([(await stop).status, (await more).status]).toEqual([204, 204]);
    const id = await submitJob(platform);
    const again = await poll(platform, 'job-take/pod-1?&job_in_progress=0', String(name));
    expect(again.status).toBe(204);
    expect(await take(platform, '?&job_in_progress=0', 'pod-2')).toMatchObject({ id: id });
  });

  it('is logged if it reports itself unfit', async () => {
    const platform = await startPlatform();

    const answer = await ask(
      platform,
      'ping/pod-1?status=unhealthy&check=_memory_check&reason=RuntimeError%3A+23GB',
    );

    expect(answer.status).toBe(200);
    expect(platform.logged()).toContain('"check":"_memory_check","reason":"RuntimeError: 23GB"');
  });

  it('counts among the workers of its endpoint', async () => {
    const platform = await startPlatform();
    await submitJob(platform);
    await take(platform);
    await ping(platform, [], 'pod-2');

    const health = await readJson(await platform.call('/v2/demo/health'));

    expect(health).toMatchObject({ workers: { idle: 1, running: 1 } });
  });

  it('is refused with a wrong key, or at an unknown endpoint', async () => {
    const platform = await startPlatform();

    const [wrongKey, noEndpoint] = await Promise.all([
      ask(platform, 'job-take/pod-1?', { headers: { authorization: `mr_${'x'.repeat(43)}` } }),
      fetch(`${platform.url}/runpod/v2/nowhere/job-take/p?`, {
        headers: { authorization: platform.worker },
      }),
    ]);

    expect([wrongKey.status, noEndpoint.status]).toEqual([401, 404]);
  });

  it('may share its ID with others without confusing their jobs', async () => {
    const platform = await startPlatform();
    const ids = [await submitJob(platform), await submitJob(platform)];
    const path = 'job-take/$RUNPOD_POD_ID?&job_in_progress=0';

    const jobs = await Promise.all(
      [ask(platform, path), ask(platform, path)].map(async (answer) => readJson(await answer)),
    );
    await ping(platform, [String(ids[0])], 'pod-1');

    expect(jobs.map(({ id }) => id).sort()).toEqual(ids.map((id) => id).sort());
    for (const id of ids) {
      await send(platform, `job-done/pod-1/${id}?&isStream=false`, '{"output": 1}');
      expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED', attempt: 1 });
    }
  });
});

it('serves all jobs with a Python worker that is refreshed after each, one process each', {
  timeout: 30_000,
}, async () => {
  const platform = await startPlatform();
  for (const _life of [1, 2, 3]) {
    // Nothing is between the end of one process and the start of the next.
    const worker = startWorker(platform, {
      concurrency: 2,
      refreshes: true,
      async *handler(job) {
        yield job.id;
        yield 'end';
      },
    });
    const id = await submitJob(platform);
    const record = await untilEnded(platform, id);
    expect(record).toMatchObject({ status: 'COMPLETED', attempt: 1, output: [id, 'end'] });
    await worker.left;
    expect(worker.ran).toEqual([id]);
  }
});

describe.each(['?gpu=A+B', '?', ''])('a Python worker, its templates ending in "%s"', (query) => {
  it('runs jobs one after the other', async () => {
    const platform = await startPlatform();
    const worker = startWorker(platform, { environment: environmentOf(platform, query) });
    const ids = [await submitJob(platform, { input: { n: 1 } }), await submitJob(platform)];

    const records = await Promise.all(ids.map((id) => untilEnded(platform, id)));

    expect(records).toMatchObject([
      { status: 'COMPLETED', output: { echo: { n: 1 } }, workerId: 'pod-py' },
      { status: 'COMPLETED', output: { echo: {} } },
    ]);
    expect(worker.ran).toEqual(ids.map((id) => id));
  });

  it('streams, and splits large chunks into pieces', async () => {
    const platform = await startPlatform();
    startWorker(platform, {
      environment: environmentOf(platform, query),
      async *handler() {
        yield { n: 0 };
        yield 'x'.repeat(1_500_000);
      },
    });
    const id = await submitJob(platform);
    const record = await untilEnded(platform, id);

    expect(record).toMatchObject({
      status: 'COMPLETED',
      output: [{ n: 0 }, 'x'.repeat(1_500_000)],
    });
    const stream = await (await platform.call(`/v2/demo/stream/${id}?after=0`)).json();
    expect(stream).toHaveLength(3);
  });

  it('fails a job with the raised error after its retries', async () => {
    const platform = await startPlatform();
    await platform.endpoints.ensureEndpoint('demo', { maxAttempts: 1 });
    startWorker(platform, {
      environment: environmentOf(platform, query),
      handler() {
        throw new Error('boom');
      },
    });

    const record = await untilEnded(platform, await submitJob(platform));

    expect(record).toMatchObject({
      status: 'FAILED',
      error: { code: 'handler_error', message: 'boom', type: 'RuntimeError' },
    });
  });

  it('stops a cancelled job and continues with the next', async () => {
    const platform = await startPlatform();
    const worker = startWorker(platform, {
      environment: environmentOf(platform, query),
      handler: ({ input }, { signal }) =>
        JSON.stringify(input) === '{}'
          ? 'done'
          : new Promise((resolve) => signal.addEventListener('abort', resolve)),
    });
    const id = await submitJob(platform, { input: { hangs: true } });
    await expect.poll(() => worker.jobIds).toEqual([id]);

    await platform.post(`/v2/demo/cancel/${id}`, {});
    const next = await untilEnded(platform, await submitJob(platform));

    expect(next).toMatchObject({ status: 'COMPLETED', output: 'done' });
    expect(worker.stopped).toEqual([id]);
    expect(await readRecord(platform, id)).toMatchObject({ status: 'CANCELLED' });
  });

  it('runs a job again whose result was dropped', async () => {
    const platform = await startPlatform();
    let lost = 0;
    const worker = startWorker(platform, {
      environment: environmentOf(platform, query),
      losesResult: () => lost++ === 0,
    });

    const id = await submitJob(platform);
    const record = await untilEnded(platform, id);

    expect(record).toMatchObject({ status: 'COMPLETED', attempt: 2 });
    expect(worker.ran).toEqual([id, `${id}-a2`]);
  });
});
