// The banner of `millrace dev`, and the lines for requests and attempts.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  Activity,
  type ActivityOptions,
  renderBanner,
} from '../../../../src/cli/dev/dev-output.ts';
import type { JobStatus } from '../../../../src/wire/job/job.ts';
import type {
  Outcome,
  Report,
  ReportReply,
  WorkerLink,
} from '../../../../src/wire/link/worker-link.ts';

describe('the banner', () => {
  let folder: string;
  let still: string;
  let stream: string;
  const schema = {
    type: 'object',
    required: ['n'],
    properties: { n: { type: 'integer', minimum: 5 } },
  };

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-banner-'));
    still = join(folder, 'still.ts');
    stream = join(folder, 'stream.ts');
    await writeFile(still, `// { "text": "it's" }\n`);
    await writeFile(stream, '// { "n": 1 }\nyield 1;\n');
  });

  afterEach(() => rm(folder, { recursive: true }));

  function render(key?: string): string {
    return renderBanner({
      version: '1.2.3',
      url: 'http://127.0.0.1:8000',
      key,
      dataNote: 'Jobs are kept in /data',
      endpoints: [
        { endpointId: 'still', file: still, isServed: true, schema: null },
        { endpointId: 'stream', file: stream, isServed: true, schema: null },
        { endpointId: 'broken', file: join(folder, 'gone.ts'), isServed: false, schema },
      ],
    });
  }

  it('contains a command for each endpoint, with its input quoted for the shell', () => {
    expect(render()).toContain(
      `curl -s http://127.0.0.1:8000/v2/still/runsync -H 'Content-Type: application/json' ` +
        String.raw`-d '{"input":{"text":"it'\''s"}}'`,
    );
  });

  it('makes the input from the schema of a handler without an example', () => {
    expect(render()).toContain(`-d '{"input":{"n":5}}'`);
  });

  it('shows the stream route of a streaming handler', () => {
    expect(render()).toMatch(/Accept: text\/event-stream.*\/v2\/stream\/stream\/\$\(curl/);
  });

  it('names the endpoint without a worker', () => {
    expect(render()).toMatch(/^broken .*no worker/m);
    expect(render()).not.toMatch(/^still .*no worker/m);
  });

  it('contains the key in every command if one is needed', () => {
    const withKey = render('mr_key').split('\n');
    for (const line of withKey.filter((each) => each.includes('curl'))) {
      expect(line).toContain("-H 'Authorization: Bearer mr_key'");
    }
    expect(render()).not.toContain('Authorization');
  });
});

const NOON = new Date(2026, 0, 1, 12).getTime();
const REQUEST = { method: 'GET', path: '/v2/a/health', route: '/v2/:endpoint/health', status: 200 };

interface Setup extends Partial<Pick<ActivityOptions, 'shown'>> {
  status?: JobStatus;
  reply?: ReportReply;
}

function watch({ reply = { answer: 'applied' }, shown = 'all', status }: Setup = {}) {
  let text = '';
  const activity = new Activity({
    print: (added) => {
      text += added;
    },
    readStatus: async () => {
      if (status) return status;
      throw new Error('not found');
    },
    shown,
    now: () => NOON,
    folder: '/here',
  });
  const refuse = async () => {
    throw new Error('not called');
  };
  const rest = { hello: refuse, take: refuse, renew: refuse, bye: refuse };
  const answering: WorkerLink = {
    ...rest,
    report: async ({ reports }) => reports.map(() => reply),
  };
  const link = activity.watch(answering, 'echo');
  const report = async (...reports: Report[]) => {
    await link.report({ workerId: 'w', incarnation: 1, reports });
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { activity, report, text: () => text };
}

const base = { jobId: 'j', attempt: 1, token: 't', seq: 1, body: Buffer.alloc(0) };

function ending(outcome: Outcome): Report {
  return { ...base, kind: 'outcome', outcome };
}

const chunks = (count: number): Report => ({
  ...{ ...base, kind: 'chunks', first: 0, sizes: Array<number>(count).fill(1) },
});
const completed = ending({ kind: 'completed', executionMs: 11.6, output: 'chunks' });
const failed = ending({
  ...{ kind: 'failed', executionMs: 3, retry: 'default' },
  error: { code: 'handler_error', message: 'bad', stack: 'Error: bad\n    at x (node:fs:1:1)' },
});

describe('an attempt', () => {
  it('is one line with its time and its chunks if it completes', async () => {
    const { report, text } = watch();
    await report(chunks(2), chunks(1));
    await report(completed);
    expect(text()).toBe('12:00:00 job echo/j COMPLETED, 12 ms, 3 chunks\n');
  });

  it('shows whether the job is retried, and its stack, if it fails', async () => {
    const retried = watch({ status: 'IN_QUEUE' });
    await retried.report(failed);
    expect(retried.text()).toBe(
      '12:00:00 job echo/j attempt 1 failed and is retried, 3 ms\n    Error: bad\n',
    );
    const last = watch({ status: 'FAILED' });
    await last.report(chunks(1), failed);
    expect(last.text()).toMatch(/^12:00:00 job echo\/j FAILED, 3 ms, 1 chunk\n/);
  });

  it('shows its message without a stack', async () => {
    const { report, text } = watch({ status: 'TIMED_OUT' });
    const error = { code: 'execution_timeout', message: 'took 5 ms' } as const;
    await report(ending({ kind: 'timed_out', executionMs: 5, error, stopped: 'signal' }));
    expect(text()).toBe('12:00:00 job echo/j TIMED_OUT, 5 ms\n    took 5 ms\n');
  });

  it('says that the job waits again if it is released', async () => {
    const { report, text } = watch({ status: 'IN_QUEUE' });
    await report(ending({ kind: 'released', reason: 'drain' }));
    expect(text()).toBe('12:00:00 job echo/j attempt 1 released; the job returns to the queue\n');
  });

  it('says that its job is gone', async () => {
    const { report, text } = watch();
    await report(ending({ kind: 'cancelled', executionMs: 1, stopped: 'signal' }));
    expect(text()).toBe('12:00:00 job echo/j is gone, 1 ms\n');
  });

  it('is no line if its report is not applied', async () => {
    const { report, text } = watch({ reply: { answer: 'duplicate' } });
    await report(completed);
    expect(text()).toBe('');
  });
});

describe('a request', () => {
  it('is one line of a client, and none of a worker', () => {
    const { activity, text } = watch();
    activity.noteRequest({ ...REQUEST, access: 'jobs:read', durationMs: 2.4 });
    activity.noteRequest({ ...REQUEST, access: 'worker', durationMs: 2 });
    activity.noteRequest({ ...REQUEST, access: undefined, status: 404, durationMs: 0 });
    expect(text()).toBe(
      '12:00:00 GET /v2/a/health 200, 2 ms\n12:00:00 GET /v2/a/health 404, 0 ms\n',
    );
  });
});

it('shows only failures with `failures`', async () => {
  const { activity, report, text } = watch({ shown: 'failures', status: 'FAILED' });
  activity.noteRequest({ ...REQUEST, access: 'jobs:read', durationMs: 2 });
  await report(completed);
  expect(text()).toBe('');
  await report(failed);
  expect(text()).toContain('Error: bad');
});
