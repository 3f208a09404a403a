// Text that loggers write in a handler's thread, by any method, is in the log of the job.
import { describe, expect, it } from 'vitest';
import { startThreads, writeHandler } from '../../support/workers/thread-script.ts';

/** The loggers' own way of writing, and a line that it makes. */
const WAYS: [name: string, code: string, ...lines: object[]][] = [
  ['process.stdout', "process.stdout.write('a line\\n')", { level: 30, msg: 'a line' }],
  [
    'process.stderr, as debug does',
    "process.stderr.write('a line\\n')",
    { level: 40, msg: 'a line' },
  ],
  [
    'console._stdout, as winston does',
    "console._stdout.write('a line\\n')",
    { level: 30, msg: 'a line' },
  ],
  [
    'pieces of a line',
    "process.stdout.write('a '); process.stdout.write(Buffer.from('line')); process.stdout.write('\\r\\n')",
    { level: 30, msg: 'a line' },
  ],
  ['a line without an end', "process.stdout.write('a line')", { level: 30, msg: 'a line' }],
  [
    'a pipe',
    "await pipeline(['a ', 'line\\n'], process.stdout, { end: false })",
    { msg: 'a line' },
  ],
  [
    'a write with a callback',
    "await new Promise((done) => process.stdout.write('a line\\n', done))",
    { msg: 'a line' },
  ],
  [
    'a write with an encoding and a callback',
    `await new Promise((done) => process.stdout.write('${Buffer.from('a line\n').toString('base64')}', 'base64', done))`,
    { msg: 'a line' },
  ],
  ['writeSync', "writeSync(1, 'a line\\n')", { level: 30, msg: 'a line' }],
  [
    'writeSync of a part',
    "writeSync(2, Buffer.from('--a line\\n--'), 2, 7)",
    { level: 40, msg: 'a line' },
  ],
  [
    'write',
    "await new Promise((done) => fs.write(1, 'a line\\n', done))",
    { level: 30, msg: 'a line' },
  ],
  [
    'a promisified write',
    "const { bytesWritten } = await promisify(fs.write)(1, Buffer.from('a line\\n')); console.log(bytesWritten)",
    { msg: 'a line' },
    { msg: '7' },
  ],
  [
    'a stream of its own on the descriptor',
    "const own = fs.createWriteStream('', { fd: 1, autoClose: false }); for (const piece of ['a ', 'li', 'ne\\n']) own.write(piece); await new Promise((done) => own.end(done))",
    { level: 30, msg: 'a line' },
  ],
  [
    'writevSync',
    "fs.writevSync(2, [Buffer.from('a '), Buffer.from('line\\n')])",
    { level: 40, msg: 'a line' },
  ],
  [
    'a piece that ends within a character',
    "const bytes = Buffer.from('ü\\n'); process.stdout.write(bytes.subarray(0, 1)); process.stdout.write(bytes.subarray(1))",
    { level: 30, msg: 'ü' },
  ],
  [
    'a line that is too long to wait for its end',
    "process.stdout.write('x'.repeat(32_001)); process.stdout.write('y\\n')",
    { msg: expect.stringMatching(/^x{32000}… \(1 more characters\)$/) },
    { msg: 'y' },
  ],
  ['pino', "pino().warn({ part: 7 }, 'a line')", { level: 40, part: 7, msg: 'a line' }],
  [
    'pino without sync',
    "pino(pino.destination({ sync: false })).info('a line'); await sleep(50)",
    { level: 30, msg: 'a line' },
  ],
  [
    'JSON with a named level, as winston writes it',
    `process.stdout.write('{"level":"error","message":"a line","part":7}\\n')`,
    { level: 50, part: 7, msg: 'a line' },
  ],
  [
    'JSON with a time in nanoseconds',
    `process.stdout.write('{"level":30,"msg":"a line","time":1795734000000000000}\\n')`,
    { msg: 'a line', time: expect.closeTo(Date.now(), -6) },
  ],
  ['JSON that is no log line', `process.stdout.write('{"a":1}\\n')`, { level: 30, msg: '{"a":1}' }],
];

const PREAMBLE = `import fs, { writeSync } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { pino } from ${JSON.stringify(import.meta.resolve('pino'))};
`;

describe('the log of a job', () => {
  it.each(WAYS)('has what its handler writes by %s', async (_, code, ...lines) => {
    const handlerPath = await writeHandler(`${PREAMBLE}
      export default async () => { ${code}; return 1; };`);
    const { begin } = await startThreads({ handlerPath });
    const { end, sink } = begin({});
    expect((await end).outcome).toMatchObject({ kind: 'completed' });
    expect(sink.logLines).toMatchObject(lines.map((line) => ({ job: expect.anything(), ...line })));
  });

  it('has the lines of its own code while other jobs run in the thread', async () => {
    const handlerPath = await writeHandler(`${PREAMBLE}
      let count = 0;
      const { promise: both, resolve } = Promise.withResolvers();
      export default async (job) => {
        if (++count === 2) resolve();
        await both;
        pino().info(job.input.name);
        process.stdout.write(job.input.name + ' ');
        await sleep(1);
        process.stdout.write('done\\n');
      };`);
    const { begin } = await startThreads({ handlerPath, concurrency: 2 });
    const jobs = ['a', 'b'].map((name) => ({ name, ...begin({ name }) }));
    for (const { end, name, sink } of jobs) {
      await end;
      expect(sink.logLines.map(({ msg }) => msg)).toEqual([name, `${name} done`]);
    }
  });

  it('has no lines without an async context while two jobs run in the thread', async () => {
    const handlerPath = await writeHandler(`${PREAMBLE}
      import { AsyncResource } from 'node:async_hooks';
      const outside = new AsyncResource('outside');
      let count = 0;
      const { promise: both, resolve } = Promise.withResolvers();
      export default async () => {
        if (++count < 2) return both;
        outside.runInAsyncScope(() => process.stdout.write('whose?\\n'));
        resolve(1);
      };`);
    const { begin, workerLog } = await startThreads({ handlerPath, threads: 1, concurrency: 2 });
    const jobs = [begin({}), begin({})];
    await Promise.all(jobs.map(({ end }) => end));
    expect(jobs.flatMap(({ sink }) => sink.logLines)).toEqual([]);
    await expect.poll(() => workerLog).toMatchObject([{ msg: 'whose?' }]);
  });

  it('has lines without an async context while the job is alone in the thread', async () => {
    const handlerPath = await writeHandler(`${PREAMBLE}
      import { EventEmitter } from 'node:events';
      import { AsyncResource } from 'node:async_hooks';
      const outside = new AsyncResource('outside');
      process.stdout.write('loaded\\n');
      export default () => outside.runInAsyncScope(() => {
        process.stdout.write('a line\\n');
        console.log('another');
      });`);
    const { begin, workerLog } = await startThreads({ handlerPath });
    const { end, sink } = begin({});
    await end;
    expect(sink.logLines.map(({ msg }) => msg)).toEqual(['a line', 'another']);
    expect(workerLog[0]).toMatchObject({ thread: expect.any(Number), msg: 'loaded' });
  });
});
