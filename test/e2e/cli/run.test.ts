// `millrace run`: one job, what it prints and its exit codes.
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { promisify, stripVTControlCharacters } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Workplace } from './command-run.ts';

const echo = 'export default async (job) => job.input;';
const stream = `export default async function* (job, ctx) {
  ctx.progress({ at: 1 });
  ctx.log.info('counting');
  for (let n = 1; n <= job.input.upTo; n++) yield ctx.chunk({ n }, { ones: 1 });
}`;
const fail = "export default async () => { throw new RangeError('no luck'); };";
const hang = `export default async (job, ctx) => {
  console.log('hanging');
  await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve));
  throw ctx.signal.reason;
};`;

const execute = promisify(execFile);

let place: Workplace;

beforeEach(() => {
  place = new Workplace();
});

afterEach(() => place.close());

describe('a handler that waits', () => {
  it('runs again after a sleep, with the results of its steps', async () => {
    place.write(
      'waits.mjs',
      `export default async (job, ctx) => {
        const made = await ctx.step('first', () => 'attempt ' + ctx.attempt);
        await ctx.sleep('pause', 20);
        return [made, ctx.attempt];
      };`,
    );
    const { code, stdout } = await place.run(['run', 'waits.mjs']);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '["attempt 1",2]\n' });
  });

  it('fails at ctx.run, which needs a platform', async () => {
    place.write('parent.mjs', `export default (job, ctx) => ctx.run('scene', { input: {} });`);
    const { code, stderr } = await place.run(['run', 'parent.mjs']);
    expect(code).toBe(1);
    expect(stderr).toContain('ctx.run("scene"): millrace run starts no child jobs');
  });
});

describe('the input', () => {
  const input = { text: 'zwölf 🦊' };

  beforeEach(() => {
    place.write('echo.mjs', echo);
    place.write('input.json', JSON.stringify(input));
  });

  it.each([
    ['--input', ['--input', JSON.stringify(input)], ''],
    ['a file', ['--input-file', 'input.json'], ''],
    ['standard input', ['-'], JSON.stringify(input)],
    ['standard input with --input -', ['--input', '-'], JSON.stringify(input)],
    ['standard input with --input-file -', ['--input-file', '-'], JSON.stringify(input)],
  ])('is read from %s', async (_, args, stdin) => {
    const run = await place.run(['run', 'echo.mjs', ...args], { stdin });
    expect(run).toEqual({ code: 0, stdout: `${JSON.stringify(input)}\n`, stderr: '' });
  });

  it.each(['--test-input', '--test_input'])('is read from a complete job with %s', async (name) => {
    const job = JSON.stringify({ id: 'mine', input });
    const run = await place.run(['run', 'echo.mjs', name, job]);
    expect(run).toEqual({ code: 0, stdout: `${JSON.stringify(input)}\n`, stderr: '' });
  });

  it('is read from test_input.json by default, if that file exists', async () => {
    place.write('test_input.json', JSON.stringify({ input }));
    const { stdout } = await place.run(['run', 'echo.mjs']);
    expect(JSON.parse(stdout)).toEqual(input);
    expect((await place.run(['run', 'echo.mjs', '--input', '{}'])).stdout).toBe('{}\n');
  });

  it('is an empty object without test_input.json', async () => {
    expect((await place.run(['run', 'echo.mjs'])).stdout).toBe('{}\n');
  });

  it.each([
    [['--input', '{'], '--input is not JSON'],
    [['--input', '[]'], '--input is an empty array'],
    [['--input', '[{}]'], 'the input is an array, which only a batch handler accepts'],
    [['--input', '[{},7]'], '--input[1] must be a JSON object'],
    [['--input-file', 'none.json'], '--input-file: none.json cannot be read: ENOENT'],
    [['--test-input', '{"prompt":1}'], '--test-input must have an "input"'],
    [['--test-input={"input":[]}'], '--test-input: input must be a JSON object'],
    [['--input', '{}', '--input-file', 'input.json'], 'exclude each other'],
    [['--timeout', '0'], '--timeout: must be a whole number from 1 to'],
  ])('is refused if it is invalid: %j', async (args, message) => {
    const { code, stderr } = await place.run(['run', 'echo.mjs', ...args]);
    expect(code).toBe(2);
    expect(stderr).toContain(message);
  });
});

describe('a batch handler', () => {
  const batch = `export default {
    batch: { maxSize: 4, maxWaitMs: 10 },
    run: (jobs, ctx) => jobs.map((job) => {
      if (job.input.n === 2) ctx.fail(job, new Error('not two'));
      job.progress(job.input.n);
      return { n: job.input.n, of: jobs.length };
    }),
  };`;
  const streamed = `export default {
    batch: { maxSize: 4, maxWaitMs: 10 },
    async *run(jobs) {
      for (const job of jobs) yield { job, output: 'first', metrics: { n: job.input.n } };
      for (const job of jobs) yield { job, output: 'second' };
    },
  };`;

  it('runs an array of inputs together; each line has the index of its input', async () => {
    place.write('batch.mjs', batch);
    const run = await place.run(['run', 'batch.mjs', '-'], { stdin: '[{"n":1},{"n":2},{"n":3}]' });
    expect(run.code).toBe(1);
    expect(run.stdout).toBe(
      '{"index":0,"output":{"n":1,"of":3}}\n{"index":2,"output":{"n":3,"of":3}}\n',
    );
    expect(run.stderr).toContain('[1] millrace run: FAILED (handler_error): Error: not two');
    expect(run.stderr).toContain('[0] progress: 1\n');
  });

  it('runs a single input alone, and at once', async () => {
    place.write('batch.mjs', batch);
    const run = await place.run(['run', 'batch.mjs', '--input', '{"n":1}']);
    expect(run).toMatchObject({ code: 0, stdout: '{"n":1,"of":1}\n' });
  });

  it('prints the chunks of each job with its index, also as events', async () => {
    place.write('stream.mjs', streamed);
    const args = ['run', 'stream.mjs', '--input', '[{"n":1},{"n":2}]'];
    const lines = (await place.run(args)).stdout.trim().split('\n').sort();
    expect(lines).toEqual([
      '{"index":0,"output":"first"}',
      '{"index":0,"output":"second"}',
      '{"index":1,"output":"first"}',
      '{"index":1,"output":"second"}',
    ]);
    const events = (await place.run([...args, '--json'])).stdout.trim().split('\n');
    expect(events).toContain('{"type":"chunk","output":"first","metrics":{"n":2},"index":1}');
    expect(events.filter((line) => line.includes('"COMPLETED"'))).toHaveLength(2);
  });
});

describe('a stream', () => {
  it('is printed chunk by chunk, separate from progress and log', async () => {
    place.write('stream.ts', stream);
    const run = await place.run(['run', 'stream.ts', '--input', '{"upTo":2}']);
    expect(run).toMatchObject({ code: 0, stdout: '{"n":1}\n{"n":2}\n' });
    expect(run.stderr).toContain('progress: {"at":1}');
    expect(run.stderr).toContain('counting');
  });

  it('is printed as events with --json', async () => {
    place.write('stream.ts', stream);
    const { stdout } = await place.run(['run', 'stream.ts', '--input', '{"upTo":1}', '--json']);
    const events = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(events).toContainEqual({ type: 'progress', value: { at: 1 } });
    expect(events).toContainEqual({ type: 'chunk', output: { n: 1 }, metrics: { ones: 1 } });
    const entry = expect.objectContaining({ msg: 'counting' });
    expect(events).toContainEqual({ type: 'log', entry });
    expect(events.at(-1)).toMatchObject({ type: 'result', status: 'COMPLETED' });
  });

  it('is printed while the handler runs', async () => {
    const first =
      'export default async function* () { yield "first"; await new Promise(() => {}); }';
    place.write('first.mjs', `setInterval(() => {}, 1000);\n${first}`);
    const run = place.start(['run', 'first.mjs']);
    await run.until('stdout', /"first"\n/);
  });

  it('prints a value larger than a chunk completely', async () => {
    place.write('large.mjs', 'export default function* () { yield "é".repeat(2_000_000); }');
    const { stdout } = await place.run(['run', 'large.mjs']);
    expect(JSON.parse(stdout)).toBe('é'.repeat(2_000_000));
  });

  it('ends when its reader closes standard output', async () => {
    const endless = 'export default async function* () { for (let n = 0; ; n++) yield n; }';
    place.write('endless.mjs', endless);
    const run = place.start(['run', 'endless.mjs']);
    await once(run.child.stdout, 'data');
    run.child.stdout.destroy();
    expect((await run.ended).code).not.toBe(0);
  });
});

describe('the value that a generator returns', () => {
  const summing = `export default function* (job, ctx) {
    yield ctx.chunk('a', { tokens: 3 });
    yield 'b';
    return { sum: 2 };
  }`;

  it('is the last line', async () => {
    place.write('sum.mjs', summing);
    const run = await place.run(['run', 'sum.mjs']);
    expect(run).toEqual({ code: 0, stdout: '"a"\n"b"\n{"sum":2}\n', stderr: '' });
  });

  it('is the output of the result with --json, with the times', async () => {
    place.write('sum.mjs', summing);
    const { stdout } = await place.run(['run', 'sum.mjs', '--json']);
    expect(JSON.parse(stdout.trim().split('\n').at(-1) ?? '')).toEqual({
      ...{ type: 'result', status: 'COMPLETED', output: { sum: 2 }, chunks: 2 },
      ...{ executionTime: expect.any(Number), loadTime: expect.any(Number) },
    });
  });

  it('is named on a terminal, beside metrics and times', async () => {
    place.write('sum.mjs', summing);
    const spawn = 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)';
    const launcher = resolve(import.meta.dirname, '../../../bin/millrace.js');
    const command = [process.execPath, launcher, 'run', 'sum.mjs'];
    const { stdout } = await execute('python3', ['-c', spawn, ...command], { cwd: place.folder });
    const [a, b, returned, summary] = stripVTControlCharacters(stdout).split('\r\n');
    expect([a, b, returned]).toEqual(['"a"  tokens=3', '"b"', 'returned {"sum":2}']);
    expect(summary).toMatch(/^COMPLETED in \d+ ms, 2 chunks; the handler was loaded in \d+ ms$/);
  });
});

it('shows no frame of Millrace in the stack of a failure', async () => {
  place.write('fail.mjs', fail);
  const { stderr } = await place.run(['run', 'fail.mjs']);
  expect(stderr).toMatch(/RangeError: no luck\n {4}at .*fail\.mjs:1:\d+\)?\n$/);
});

describe('the exit code', () => {
  it('is 1 if the job fails, with the reason', async () => {
    place.write('fail.mjs', fail);
    const { code, stderr, stdout } = await place.run(['run', 'fail.mjs']);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toContain('FAILED (handler_error)');
    expect(stderr).toContain('RangeError: no luck');
  });

  it('is 1 if the job fails, with --json as the last event', async () => {
    place.write('fail.mjs', fail);
    const { code, stdout } = await place.run(['run', 'fail.mjs', '--json']);
    const error = { code: 'handler_error', message: 'no luck', type: 'RangeError' };
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ type: 'result', status: 'FAILED', error });
  });

  it('is 1 if the handler cannot be loaded, with the file', async () => {
    const file = place.write('broken.mjs', "import './missing.mjs';");
    const { code, stderr } = await place.run(['run', 'broken.mjs']);
    expect(code).toBe(1);
    expect(stderr).toContain(file);
    expect(stderr).toContain('missing.mjs');
  });

  it('is 124 if the job exceeds its timeout', async () => {
    place.write('hang.mjs', hang);
    const { code, stderr } = await place.run(['run', 'hang.mjs', '--timeout', '200']);
    expect(code).toBe(124);
    expect(stderr).toContain('TIMED_OUT (execution_timeout)');
  });

  it('is 124 if the job exceeds the timeout of the handler’s config', async () => {
    place.write('hang.mjs', `${hang}\nexport const config = { timeoutMs: 200 };`);
    expect((await place.run(['run', 'hang.mjs'])).code).toBe(124);
  });

  it.each(['SIGINT', 'SIGTERM'] as const)('is 130 after %s', async (signal) => {
    place.write('hang.mjs', hang);
    const run = place.start(['run', 'hang.mjs']);
    await run.until('stderr', /hanging/);
    const { code, stderr } = await run.end(signal);
    expect(code).toBe(130);
    expect(stderr).toContain('cancelled');
  });

  it('is 130 after an interrupt while the handler is loading', async () => {
    place.write(
      'slow.mjs',
      "console.error('loading'); await new Promise(() => {});\nexport default () => 1;",
    );
    const run = place.start(['run', 'slow.mjs']);
    await run.until('stderr', /loading/);
    expect((await run.end('SIGINT')).code).toBe(130);
  });
});
