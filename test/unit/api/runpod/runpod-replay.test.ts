// Requests as the public programs put them on the wire, written to sockets as they are: the worker's as
// captured of runpod-python 1.12.0; those of its client and of the Go one with the methods, paths and
// members that are known of them, and the headers of their HTTP libraries.
import { describe, expect, it } from 'vitest';
import {
  exchange,
  type Platform,
  readJson,
  startPlatform,
  submitJob,
  takeJob,
} from '../../../support/api/platform.ts';

const CAPTURED_QUERY = '?gpu=NVIDIA+GeForce+RTX+4090&';
const AGENT = 'RunPod-Python-SDK/1.12.0 (Linux 6.18.44-fc-v657; x86_64) Language/Python 3.11.2';

interface Reply {
  status: number;
  head: string;
  body: string;
}

/** Sends the lines, and behind an empty one the body; reads one whole answer. */
async function replay({ port }: Platform, lines: readonly string[], body = ''): Promise<Reply> {
  const request = [...lines, '', ''].join('\r\n');
  const isWhole = (answer: string) => {
    const [head = '', received] = answer.split('\r\n\r\n', 2);
    const length = Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? 0);
    return received !== undefined && received.length >= length;
  };
  const answer = await exchange(port, [request, Buffer.from(body)], isWhole);
  const [head = '', received = ''] = answer.split('\r\n\r\n', 2);
  const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(head)?.[1]);
  return { status, head, body: Buffer.from(received, 'latin1').toString() };
}

const hostOf = ({ port }: Platform) => `Host: 127.0.0.1:${port}`;
const lengthOf = (body: string) => `Content-Length: ${Buffer.byteLength(body)}`;

/** As its aiohttp session asks. `path` from the verb on, as it ends up on the wire. */
const poll = (platform: Platform, path: string) =>
  replay(platform, [
    `GET /runpod/v2/demo/${path} HTTP/1.1`,
    hostOf(platform),
    'Content-Type: application/json',
    `Authorization: ${platform.worker}`,
    `User-Agent: ${AGENT}`,
    'Accept-Encoding: gzip, deflate',
    'Accept: */*',
  ]);

/** As its ping process asks. */
const ping = (platform: Platform, path: string) =>
  replay(platform, [
    `GET /runpod/v2/demo/${path} HTTP/1.1`,
    hostOf(platform),
    'User-Agent: python-requests/2.28.1',
    'Accept-Encoding: gzip, deflate, br',
    'Accept: */*',
    'Connection: keep-alive',
    `Authorization: ${platform.worker}`,
  ]);

const post = (platform: Platform, path: string, name: string, body: string) =>
  replay(
    platform,
    [
      `POST /runpod/v2/demo/${path} HTTP/1.1`,
      hostOf(platform),
      'Content-Type: application/x-www-form-urlencoded',
      `Authorization: ${platform.worker}`,
      `User-Agent: ${AGENT}`,
      'Accept-Encoding: gzip, deflate',
      `X-Request-ID: ${name}`,
      'charset: utf-8',
      'Accept: */*',
      lengthOf(body),
    ],
    body,
  );

const parse = ({ body }: Reply): Record<string, unknown> => JSON.parse(body);

const readRecord = async (platform: Platform, id: string) =>
  readJson(await platform.call(`/v2/demo/status/${id}`));

const RAISED = {
  error_type: "<class 'RuntimeError'>",
  error_message: "boom: {'x': 1}",
  error_traceback: 'Traceback (most recent call last):\n  File "handlers/failing.py", line 5\n',
  hostname: 'pod-abc-host',
  worker_id: 'pod-abc',
  runpod_version: '1.12.0',
};

describe.each([
  ['with a query in its templates', CAPTURED_QUERY],
  ['without one', '&'],
])('a captured worker %s', (_name, glue) => {
  const bare = glue.slice(0, -1);

  async function takeOne(platform: Platform): Promise<{ id: string; name: string }> {
    const id = await submitJob(platform, { input: { a: 1 } });
    const answer = await poll(platform, `job-take/pod-abc${glue}job_in_progress=0`);
    expect(answer.status).toBe(200);
    expect(answer.head).toMatch(/^content-type: application\/json/im);
    expect(parse(answer)).toEqual({ id: id, input: { a: 1 } });
    return { id, name: id };
  }

  it.each([
    ['{"output": {"echo": {"a": 1, "txt": "héllo"}}}', { echo: { a: 1, txt: 'héllo' } }],
    ['{"output": "héllo ✓"}', 'héllo ✓'],
    ['{"output": null}', null],
    ['{}', {}],
    ['{"output": {"echo": {"refresh": 1}}, "stopPod": true}', { echo: { refresh: 1 } }],
  ])('takes a job and ends it with %s', async (body, output) => {
    const platform = await startPlatform();
    const { id, name } = await takeOne(platform);

    const path = `job-done/pod-abc/${name}${glue}isStream=false`;
    expect(await post(platform, path, name, body)).toMatchObject({ status: 200 });

    expect(await readRecord(platform, id)).toMatchObject({
      ...{ status: 'COMPLETED', attempt: 1, workerId: 'pod-abc' },
      output,
    });
  });

  it('streams a yield, and its empty result leaves the chunks as the output', async () => {
    const platform = await startPlatform();
    const { id, name } = await takeOne(platform);
    const chunk = '{"output": {"index": 0, "text": "xxxx"}}';

    const stream = `job-stream/pod-abc/${name}${glue}isStream=false`;
    expect(await post(platform, stream, name, chunk)).toMatchObject({ status: 200 });
    const done = `job-done/pod-abc/${name}${glue}isStream=true`;
    expect(await post(platform, done, name, '{"output": []}')).toMatchObject({ status: 200 });

    expect(await readRecord(platform, id)).toMatchObject({
      status: 'COMPLETED',
      output: [{ index: 0, text: 'xxxx' }],
    });
  });

  it('reports its progress and the raised error', async () => {
    const platform = await startPlatform();
    await platform.endpoints.ensureEndpoint('demo', { maxAttempts: 1 });
    const { id, name } = await takeOne(platform);
    const path = `job-done/pod-abc/${name}${glue}isStream=false`;

    await post(platform, path, name, '{"status": "IN_PROGRESS", "output": "10%"}');
    expect(await readRecord(platform, id)).toMatchObject({ progress: '10%' });
    const failure = `{"error": ${JSON.stringify(JSON.stringify(RAISED))}}`;
    expect(await post(platform, path, name, failure)).toMatchObject({ status: 200 });

    expect(await readRecord(platform, id)).toMatchObject({
      status: 'FAILED',
      error: { code: 'handler_error', type: 'RuntimeError', message: "boom: {'x': 1}" },
    });
  });

  it('takes several jobs, pings with their IDs, and learns which to stop', async () => {
    const platform = await startPlatform();
    const ids = [await submitJob(platform), await submitJob(platform)];
    const names = ids.map((id) => id);

    const batch = `job-take-batch/pod-abc${glue}batch_size=4&job_in_progress=0`;
    expect(JSON.parse((await poll(platform, batch)).body)).toEqual(
      names.map((id) => ({ id, input: {} })),
    );
    // Its HTTP client there does look for the question mark.
    const separator = bare === '' ? '?' : `${bare}&`;
    const named = `ping/pod-abc${separator}job_id=${names.join('%2C')}&runpod_version=1.12.0`;
    expect(await ping(platform, named)).toMatchObject({ status: 200 });
    await platform.post(`/v2/demo/cancel/${ids[0]}`, {});

    const stop = await poll(platform, `job-stop/pod-abc${bare}`);
    expect(parse(stop)).toEqual({ jobsToStop: [names[0]] });
  });
});

/** As the client of runpod-python asks, over `requests`. */
function askAsPython(platform: Platform, method: string, path: string, body?: string) {
  const head = [
    `${method} /runpod/v2/demo/${path} HTTP/1.1`,
    hostOf(platform),
    `User-Agent: ${AGENT}`,
    'Accept-Encoding: gzip, deflate',
    'Accept: */*',
    'Connection: keep-alive',
    'Content-Type: application/json',
    `Authorization: Bearer ${platform.admin}`,
  ];
  if (method === 'POST') head.push(lengthOf(body ?? ''));
  return replay(platform, head, body);
}

/** As the Go client asks, with POST for all but health. */
function askAsGo(platform: Platform, method: string, path: string, body?: string) {
  const head = [
    `${method} /runpod/v2/demo/${path} HTTP/1.1`,
    hostOf(platform),
    'User-Agent: Go-http-client/1.1',
    ...(method === 'POST' ? [lengthOf(body ?? '')] : []),
    `Authorization: Bearer ${platform.admin}`,
    'Content-Type: application/json',
    'Accept-Encoding: gzip',
  ];
  return replay(platform, head, body);
}

describe('the client of runpod-python', () => {
  it('runs a job, reads it, and streams it until a final status arrives without a chunk', async () => {
    const platform = await startPlatform();
    const started = await askAsPython(platform, 'POST', 'run', '{"input": {"a": 1}}');
    const { id, status } = parse(started);
    expect([started.status, status]).toEqual([200, 'IN_QUEUE']);
    const job = await takeJob(platform);
    await job.yieldChunks('{"output":1,"metrics":{}}', '{"output":2,"metrics":{}}');
    expect(parse(await askAsPython(platform, 'GET', `status/${id}`))).toMatchObject({
      ...{ id, status: 'IN_PROGRESS' },
    });
    await job.complete();

    const first = parse(await askAsPython(platform, 'GET', `stream/${id}`));
    const second = parse(await askAsPython(platform, 'GET', `stream/${id}`));

    expect(first['stream']).toMatchObject([{ output: 1 }, { output: 2 }]);
    expect(second).toEqual({ status: 'COMPLETED', stream: [] });
  });

  it('cancels and purges with empty bodies, and asks for the health', async () => {
    const platform = await startPlatform();
    const { id } = parse(await askAsPython(platform, 'POST', 'run', '{"input": {}}'));
    await submitJob(platform);

    expect(parse(await askAsPython(platform, 'POST', `cancel/${id}`))).toEqual({
      ...{ id, status: 'CANCELLED' },
    });
    expect(parse(await askAsPython(platform, 'POST', 'purge-queue'))).toEqual({
      ...{ removed: 1, status: 'completed' },
    });
    expect(await askAsPython(platform, 'GET', 'health')).toMatchObject({ status: 200 });
  });
});

describe.each([undefined, 'null', '{}'])(
  'the Go client, where it sends %s without need',
  (none) => {
    it('asks with POST for status, status-sync and stream', async () => {
      const platform = await startPlatform();
      const input = '{"input":{"a":1},"webhook":"","policy":null,"s3Config":null}';
      const { id } = parse(await askAsGo(platform, 'POST', 'run', input));
      const job = await takeJob(platform);
      await job.yieldChunks('{"output":1,"metrics":{}}');

      const stream = await askAsGo(platform, 'POST', `stream/${id}?wait=1000`, none);
      expect(parse(stream)).toMatchObject({ status: 'IN_PROGRESS', stream: [{ output: 1 }] });
      await job.complete('7');
      for (const path of [`status/${id}`, `status-sync/${id}?wait=1000`]) {
        const answer = await askAsGo(platform, 'POST', path, none);
        expect(parse(answer)).toMatchObject({ id, status: 'COMPLETED', output: 7 });
      }
    });

    it('cancels, purges and asks for the health', async () => {
      const platform = await startPlatform();
      const { id } = parse(await askAsGo(platform, 'POST', 'run', '{"input":{}}'));

      const cancelled = await askAsGo(platform, 'POST', `cancel/${id}`, none);
      const purged = await askAsGo(platform, 'POST', 'purge-queue', none);
      const health = await askAsGo(platform, 'GET', 'health');

      expect(parse(cancelled)).toEqual({ id, status: 'CANCELLED' });
      expect(parse(purged)).toEqual({ removed: 0, status: 'completed' });
      expect(parse(health)).toMatchObject({ workers: { idle: 0, unhealthy: 0 } });
    });
  },
);
