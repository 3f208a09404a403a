import { describe, expect, it } from 'vitest';
import {
  formatAttemptId,
  isSharedId,
  readAttemptName,
  readBatchSize,
  readError,
  readNamedJobs,
  readPingMs,
  readResult,
  readWorkerCall,
  readYield,
} from '../../../../src/api/runpod/worker-requests.ts';

const BASE = '/runpod/v2/demo';

describe('the URL of a RunPod worker', () => {
  it.each([
    [`${BASE}/job-take-batch/pod-1?gpu=A+B&batch_size=4&job_in_progress=1`],
    [`${BASE}/job-take-batch/pod-1?&batch_size=4&job_in_progress=1`],
    [`${BASE}/job-take-batch/pod-1&batch_size=4&job_in_progress=1`],
  ])('is parsed with and without a question mark: %s', (url) => {
    const call = readWorkerCall(url, 'job-take-batch');

    expect(call).toMatchObject({ workerId: 'pod-1', jobName: undefined });
    expect(readBatchSize(call)).toBe(4);
    expect(call.params.get('job_in_progress')).toBe('1');
  });

  it.each([
    [`${BASE}/job-done/pod-1/j-a2?gpu=x&isStream=true`],
    [`${BASE}/job-done/pod-1/j-a2&isStream=true`],
  ])('names worker and job: %s', (url) => {
    const call = readWorkerCall(url, 'job-done');

    expect(call).toMatchObject({ workerId: 'pod-1', jobName: 'j-a2' });
    expect(call.params.get('isStream')).toBe('true');
  });

  it('is parsed correctly for an endpoint with the name of a verb', () => {
    const call = readWorkerCall('/runpod/v2/ping/ping/pod-1?job_id=j-a1', 'ping');

    expect(call).toMatchObject({ workerId: 'pod-1', jobName: undefined });
  });

  it('names a valid worker ID and marks it as possibly shared', () => {
    const call = readWorkerCall(`${BASE}/job-take/$RUNPOD_POD_ID&job_in_progress=0`, 'job-take');

    expect(call.workerId).toBe('RUNPOD_POD_ID');
    expect(['RUNPOD_POD_ID', 'pod-1'].map(isSharedId)).toEqual([true, false]);
  });

  it.each(['', '&batch_size=0', '&batch_size=x', '&batch_size=1.5'])(
    'requests one job without a valid number: "%s"',
    (query) => {
      const call = readWorkerCall(`${BASE}/job-take-batch/p${query}`, 'job-take-batch');

      expect(readBatchSize(call)).toBe(1);
    },
  );

  it('contains the jobs and the interval of a ping', () => {
    const call = readWorkerCall(`${BASE}/ping/p?every=2000&job_id=a-a1%2Cb-a2`, 'ping');

    expect(readNamedJobs(call)).toEqual(['a-a1', 'b-a2']);
    const many = Array.from({ length: 5_000 }, (_, n) => `${n},${n}`).join();
    const full = readWorkerCall(`${BASE}/ping/p?job_id=${many}`, 'ping');
    expect(readNamedJobs(full)).toEqual(Array.from({ length: 500 }, (_, n) => `${n}`));
    expect(readPingMs(call)).toBe(2_000);
    expect(readPingMs(readWorkerCall(`${BASE}/ping/p?every=-1`, 'ping'))).toBe(10_000);
  });

  it('is accepted with invalid escapes', () => {
    expect(readWorkerCall(`${BASE}/ping/p%zz`, 'ping').workerId).toBe('p-zz');
  });
});

describe('the ID of an attempt', () => {
  it('is the job ID and the number of the attempt', () => {
    expect(readAttemptName('sync-0192-a-a12')).toEqual({ jobId: 'sync-0192-a', attempt: 12 });
  });

  it('is the job ID alone for the first one', () => {
    expect(formatAttemptId({ jobId: 'sync-0192', attempt: 1 })).toBe('sync-0192');
    expect(readAttemptName('sync-0192')).toEqual({ jobId: 'sync-0192', attempt: 1 });
    expect(formatAttemptId({ jobId: 'sync-0192', attempt: 2 })).toBe('sync-0192-a2');
  });

  it.each(['', 'x'.repeat(129), `${'x'.repeat(129)}-a2`])('cannot be "%s"', (name) => {
    expect(readAttemptName(name)).toBeUndefined();
  });
});

const read = (text: string, isStream = false) =>
  readResult(Buffer.from(text), { isStream, owner: 'me', maxJsonDepth: 1_000 });

const outputOf = async (text: string, isStream = false) => {
  const { report } = await read(text, isStream);
  if (report.kind !== 'completed') throw new Error(`it is ${report.kind}`);
  return report.output && Buffer.from(report.output).toString();
};

describe('the result of a RunPod worker', () => {
  it('is the output with unchanged bytes, including numbers that JavaScript cannot hold', async () => {
    expect(await outputOf('{"output": {"big": 12345678901234567890, "one": 1.0}}')).toBe(
      '{"big": 12345678901234567890, "one": 1.0}',
    );
  });

  it('fails without a retry if its output is nested deeper than the limit', async () => {
    const nest = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
    expect(await outputOf(`{"output":${nest(1_000)}}`)).toBe(nest(1_000));
    const { report } = await read(`{"output":${nest(1_001)}}`);
    expect(report).toMatchObject({
      ...{ kind: 'failed', retry: 'never' },
      error: { code: 'output_invalid', message: expect.stringMatching(/^output: .*\b1000\b/) },
    });
  });

  it('is an empty object if the member is missing', async () => {
    expect(await outputOf('{}')).toBe('{}');
    expect(await read('{"stopPod": true}')).toMatchObject({
      recycle: true,
      report: { kind: 'completed' },
    });
  });

  it('is null if null was returned', async () => {
    expect(await outputOf('{"output": null}')).toBe('null');
  });

  it('is the chunks after a generator, unless the result repeats all of them', async () => {
    expect(await outputOf('{"output": []}', true)).toBeUndefined();
    expect(await outputOf('{"output": [1, 2]}', true)).toBe('[1, 2]');
    expect(await outputOf('{"output": []}')).toBe('[]');
  });

  it('is progress when its status says so', async () => {
    expect((await read('{"status": "IN_PROGRESS", "output": "10%"}')).report).toEqual({
      kind: 'progress',
      value: Buffer.from('"10%"'),
    });
  });

  it('is progress of a bounded size, because it is stored with the job', async () => {
    const { report } = await read(
      `{"status": "IN_PROGRESS", "output": "${'x'.repeat(2_000_000)}"}`,
    );
    if (report.kind !== 'progress') throw new Error(`it is ${report.kind}`);

    expect(JSON.parse(Buffer.from(report.value).toString())).toBe(
      'progress of 2000002 bytes, the limit is 65536',
    );
  });

  it('is a failure if it has an error, whatever else it has', async () => {
    expect((await read('{"output": {"a": 1}, "error": "no"}')).report).toMatchObject({
      kind: 'failed',
      error: { code: 'handler_error', message: 'no' },
      retry: 'default',
    });
    expect(await outputOf('{"output": 1, "error": ""}')).toBe('1');
  });

  it('is a release if a Millrace worker says so, with its own codes', async () => {
    const failWith = async (error_code: string) => {
      const error = JSON.stringify({ error_code, error_message: 'm' });
      return (await read(JSON.stringify({ error }))).report;
    };

    expect(await failWith('released_drain')).toEqual({ kind: 'released', reason: 'drain' });
    expect(await failWith('output_invalid')).toMatchObject({
      error: { code: 'output_invalid', message: 'm' },
      retry: 'never',
    });
    expect(await failWith('cancelled')).toMatchObject({ error: { code: 'handler_error' } });
  });

  it.each(['{"output": {"x": NaN}}', '{"output": Infinity}', '[1]', '', '{"output"'])(
    'ends the job at once if it is not JSON: %s',
    async (text) => {
      expect((await read(text)).report).toMatchObject({
        kind: 'failed',
        error: { code: 'output_invalid' },
        retry: 'never',
      });
    },
  );

  it('fails the attempt, which may be retried, if its error is too large', async () => {
    expect((await read(`{"error": "${'x'.repeat(1_100_000)}"}`)).report).toMatchObject({
      kind: 'failed',
      error: { code: 'handler_error', message: expect.stringContaining('1048576') },
      retry: 'default',
    });
  });

  it('ends the job at once if it has more than 20 MB', async () => {
    expect((await read(`{"output": "${'x'.repeat(20 * 1_048_576)}"}`)).report).toMatchObject({
      kind: 'failed',
      error: { code: 'output_too_large' },
      retry: 'never',
    });
  });
});

describe('an error of a RunPod worker', () => {
  it.each([
    [
      'as text of Python',
      `{'message': "it's 4096 \\u00fc tokens", 'type': 'BadRequestError', 'param': None, 'code': 400}`,
    ],
    [
      'with quotes of both kinds',
      `{'error': {'message': 'it\\'s 4096 \\xfc tokens', 'type': 'BadRequestError', 'code': 400}}`,
    ],
    ['as an object', { message: "it's 4096 ü tokens", type: 'BadRequestError', code: 400 }],
  ])('is not retried if it refuses the request, %s', async (_form, error) => {
    expect((await read(JSON.stringify({ error }))).report).toEqual({
      ...{ kind: 'failed', retry: 'never' },
      error: { code: 'input_invalid', message: "it's 4096 ü tokens", type: 'BadRequestError' },
    });
  });

  it.each([
    `{'message': 'slow down', 'type': 'RateLimitError', 'code': 429}`,
    `{'message': 'no', 'type': 'InternalServerError', 'code': 500}`,
    `{'message': 'a \\'quoted\\' word'`,
    `{'code': 404}`,
  ])('keeps its text if a retry may cure it: %s', async (error) => {
    expect((await read(JSON.stringify({ error }))).report).toEqual({
      ...{ kind: 'failed', retry: 'default' },
      error: { code: 'handler_error', message: error },
    });
  });

  it('is parsed from the JSON in the text', () => {
    const raised = {
      error_type: "<class 'torch.OutOfMemoryError'>",
      error_message: 'CUDA out of memory',
      error_traceback: 'Traceback …',
      hostname: 'h',
    };

    expect(readError(JSON.stringify(raised))).toEqual({
      code: 'handler_error',
      message: 'CUDA out of memory',
      type: 'torch.OutOfMemoryError',
      stack: 'Traceback …',
    });
  });

  it('has texts of a bounded length, because each attempt stores them', () => {
    const endless = 'x'.repeat(1_000_000);
    const raised = {
      ...{ error_type: endless, error_message: endless, error_traceback: endless },
    };
    const { message, stack, type } = readError(JSON.stringify(raised));

    for (const text of [message, stack, type, readError(endless).message]) {
      expect(text).toBe(`${'x'.repeat(32_000)}… (968000 more characters)`);
    }
  });

  it('is recognized as one of a worker that could not start', () => {
    const failed = { event: 'prestart_failed', error_message: 'no weights' };

    expect(readError(JSON.stringify(failed)).code).toBe('handler_not_loaded');
  });

  it('contains message and traceback of a generator', () => {
    const text = 'handler: boom \ntraceback: Traceback (most recent call last):\n  …';

    expect(readError(text)).toEqual({
      code: 'handler_error',
      message: 'boom',
      stack: 'Traceback (most recent call last):\n  …',
    });
  });

  it('is parsed in linear time if it is nothing but line breaks', () => {
    const breaks = '\n'.repeat(200_000);
    expect(readError(breaks).message).toHaveLength(32_000 + '… (168000 more characters)'.length);
    expect(readError(`handler: no${breaks}traceback: here`)).toMatchObject({
      ...{ message: 'no', stack: 'here' },
    });
  });

  it('is parsed in linear time if it is a string of Python without an end', () => {
    for (const quote of ["'", '"']) {
      for (const end of ['', '\\', '\\\n', quote.repeat(3)]) {
        const text = `{'a': ${quote}${`\\${quote}`.repeat(60_000)}${end}`;
        expect(readError(text)).toMatchObject({ code: 'handler_error' });
      }
    }
  });

  it.each([
    ['a text', 'a text'],
    [{ code: 7 }, '{"code":7}'],
    ['{"code":7}', '{"code":7}'],
    [7, '7'],
  ])('is its text if it is of any other kind: %j', (given, message) => {
    expect(readError(given)).toEqual({ code: 'handler_error', message });
  });
});

describe('a yield of a RunPod worker', () => {
  const piecesOf = async (text: string) => {
    const report = await readYield(Buffer.from(text), { owner: 'me', maxJsonDepth: 1_000 });
    if (report.kind !== 'chunks') throw new Error(`it is ${report.kind}`);
    return report.pieces.map((piece) => JSON.parse(Buffer.from(piece).toString()));
  };

  it('is one chunk with the metrics that are numbers', async () => {
    const metrics = '{"tokens": 3, "scenario": "x", "part": 1}';

    expect(await piecesOf(`{"output": "hi", "metrics": ${metrics}}`)).toEqual([
      { output: 'hi', metrics: { tokens: 3 } },
    ]);
  });

  it('is split above 1 MB, as workers split chunks', async () => {
    const pieces = await piecesOf(`{"output": "${'x'.repeat(2_500_000)}"}`);

    expect(pieces.map(({ metrics }) => metrics)).toEqual([
      { part: 0, parts: 3, encoding: 0 },
      { part: 1, parts: 3, encoding: 0 },
      { part: 2, parts: 3, encoding: 0 },
    ]);
    expect(pieces.map(({ output }) => output).join('')).toHaveLength(2_500_000);
  });
});
