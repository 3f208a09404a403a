// The log of a process writes what pino would write, and loses no line.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { createLog, type Log } from '../../../src/base/log.ts';

const KEY = `mr_${'k'.repeat(43)}`;
const REDACTED = ['key', 'authorization', '*.key', '*.authorization'];

function collect(settings: { level?: string } = {}) {
  const lines: string[] = [];
  const destination = { write: (line: string) => lines.push(line) };
  return { lines, log: createLog({ ...settings, destination }) };
}

/** Returns what both loggers write for the same calls, without the time. */
function writeBoth(act: (log: Log) => void): { own: unknown[]; expected: unknown[] } {
  const { lines, log } = collect({ level: 'debug' });
  act(log);
  const expected: string[] = [];
  const redact = { paths: REDACTED, censor: '[key]' };
  const settings = { level: 'debug', base: null, redact };
  act(pino(settings, { write: (line) => expected.push(line) }));
  const read = (line: string) => ({ ...JSON.parse(line), time: 0 });
  return { own: lines.map(read), expected: expected.map(read) };
}

class OddError extends Error {
  readonly code = 'odd';
  readonly inner = new TypeError('inner');
}

describe('a log line is that of pino', () => {
  const cause = new Error('first', { cause: new RangeError('zeroth') });
  const odd = new OddError('no');
  const caused = new OddError('no', { cause });
  const several = new AggregateError([cause, 7], 'all');
  it.each<[string, (log: Log) => void]>([
    [
      'for each level',
      (log) => {
        for (const level of ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const)
          log[level]('x');
      },
    ],
    [
      'with fields',
      (log) => log.info({ a: 1, b: undefined, c: [null, Number.NaN], d: { e: 'f' } }, 'x'),
    ],
    ['without a message', (log) => log.info({ a: 1 })],
    [
      'with the bindings of children',
      (log) => log.child({ a: 1 }).child({ b: 2 }).warn({ c: 3 }, 'x'),
    ],
    ['with an error', (log) => log.error(odd)],
    ['with an error and a message', (log) => log.error(odd, 'x')],
    ['with an error as a field', (log) => log.error({ err: caused, n: 1 }, 'x')],
    ['with several errors', (log) => log.error({ err: several }, 'x')],
    ['with something else as err', (log) => log.error({ err: 'text' }, 'x')],
    [
      'without keys',
      (log) => {
        const secret = { key: 's', authorization: ['s'], other: 1 };
        log.child({ key: 's' }).info({ ...secret, a: secret, b: { c: secret } }, 'x');
      },
    ],
  ])('%s', (_, act) => {
    const { expected, own } = writeBoth(act);
    expect(own).toEqual(expected);
    expect(own.length).toBeGreaterThan(0);
  });

  it('on one line', () => {
    const { lines, log } = collect();
    log.info({ a: 'b\nc' }, 'd\ne');
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^\{.*\}\n$/);
  });
});

describe('a log', () => {
  it('replaces keys wherever they are', () => {
    const { lines, log } = collect();
    log.info({ err: new Error(`refused ${KEY}`), [KEY]: 1, deep: { a: [KEY] } }, `x ${KEY}`);
    expect(lines[0]).toContain('refused [key]');
    expect(lines[0]).not.toContain(KEY);
  });

  it('writes a line whose fields are not JSON', () => {
    const { lines, log } = collect();
    const circle: { self?: object } = {};
    circle.self = circle;
    const thrower = {
      get toJSON() {
        throw new Error('never');
      },
    };
    log.info({ circle, big: 7n, thrower, fine: 1 }, 'x');
    const { circle: shown, thrower: hidden, ...rest } = JSON.parse(lines[0] ?? '');
    expect(shown).toContain('circular');
    expect(hidden).toContain('never');
    expect(rest).toMatchObject({ big: '7', fine: 1, msg: 'x' });
  });

  it('describes errors that contain themselves', () => {
    const { lines, log } = collect();
    const error: Error & { self?: Error } = new Error('no');
    error.cause = error;
    error.self = error;
    log.error({ err: error }, 'x');
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ err: { message: 'no', type: 'Error' } });
  });

  it('knows its level', () => {
    const { lines, log } = collect({ level: 'warn' });
    log.info('x');
    log.child({ a: 1 }).warn('y');
    expect(lines.map((line) => JSON.parse(line).msg)).toEqual(['y']);
    const levels = ['debug', 'warn', 'fatal', 'nonsense'];
    expect(levels.filter((level) => log.isLevelEnabled(level))).toEqual(['warn', 'fatal']);
    expect(collect({ level: 'silent' }).log.isLevelEnabled('fatal')).toBe(false);
  });

  it('waits for the reader of standard error, whose pipe is full', () => {
    // A megabyte is more than a pipe holds; the reader begins half a second later.
    const module = fileURLToPath(new URL('../../../src/base/log.ts', import.meta.url));
    const program = `import { createLog } from ${JSON.stringify(module)};
      process.stderr._handle?.setBlocking?.(false);
      const log = createLog();
      for (let n = 0; n < 1000; n++) log.info({ n, text: 'x'.repeat(1000) }, 'line');
      process.exit(0);`;
    const node = [process.execPath, '--input-type=module', '-e', program];
    const script = '"$@" 2>&1 >/dev/null | { sleep 0.5; cat; }';
    const { stdout } = spawnSync('sh', ['-c', script, 'sh', ...node], { maxBuffer: 2 ** 22 });
    const lines = stdout.toString().trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line).n)).toEqual(
      Array.from({ length: 1_000 }, (_, n) => n),
    );
  });

  it('lets the process continue when nobody reads standard error', () => {
    const module = fileURLToPath(new URL('../../../src/base/log.ts', import.meta.url));
    const program = `import { createLog } from ${JSON.stringify(module)};
      const log = createLog();
      for (let n = 0; n < 1000; n++) log.info({ text: 'x'.repeat(1000) }, 'line');
      console.log('done');`;
    const node = [process.execPath, '--input-type=module', '-e', program];
    const script = '{ "$@" 2>&1 >&3 | true; } 3>&1';
    const { stdout } = spawnSync('sh', ['-c', script, 'sh', ...node]);
    expect(stdout.toString()).toBe('done\n');
  });
});
