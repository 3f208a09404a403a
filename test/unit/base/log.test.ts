// The log of a process when standard error takes no lines.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, existsSync, mkdtempSync, openSync, readSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, it, test } from 'vitest';
import { createLog, LineLimit } from '../../../src/base/log.ts';

const LOG = new URL('../../../src/base/log.ts', import.meta.url);
const TERMINAL_LOG = new URL('../../../src/cli/terminal-log.ts', import.meta.url);

const WRITE_LINES = `
  const line = 'x'.repeat(100_000);
  let left = 50;
  const timer = setInterval(() => {
    log.info(line);
    left -= 1;
    if (left > 0) return;
    clearInterval(timer);
    process.stdout.write('alive');
  }, 1);`;

function start(program: string, stderr: number | 'pipe', env: NodeJS.ProcessEnv = {}) {
  const args = ['--input-type=module', '--eval', `${program}${WRITE_LINES}`];
  return spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', stderr],
    env: { ...process.env, ...env },
  });
}

const JSON_LOG = `import { createLog } from '${LOG}'; const log = createLog();`;
const OUTPUT = new URL('../../../src/cli/output.ts', import.meta.url);
const RUNPOD_LOG = `
  import { watchOutput } from '${OUTPUT}';
  watchOutput();
  import { createTerminalLog } from '${TERMINAL_LOG}';
  const log = createTerminalLog('info');`;

test.runIf(existsSync('/dev/full'))('goes on while the disk of the log is full', async () => {
  const full = openSync('/dev/full', 'w');
  const child = start(JSON_LOG, full);
  closeSync(full);
  if (!child.stdout) throw new Error('the child has no standard output');
  expect(await text(child.stdout)).toBe('alive');
});

test.each([
  { name: 'JSON', program: JSON_LOG },
  { name: 'RunPod', program: RUNPOD_LOG, env: { RUNPOD_WEBHOOK_GET_JOB: 'http://127.0.0.1' } },
])('goes on when the reader of a $name log has gone', async ({ env, program }) => {
  const child = start(program, 'pipe', env);
  if (!child.stderr || !child.stdout) throw new Error('the child has no pipes');
  child.stderr.destroy();
  const closed = once(child, 'close');
  expect(await text(child.stdout)).toBe('alive');
  expect((await closed)[0]).toBe(0);
});

test('loses no lines, and does not block, while the log is full for the moment', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-log-'));
  const path = join(folder, 'pipe');
  execFileSync('mkfifo', [path]);
  // More than a pipe takes.
  const pipe = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
  const program = `${JSON_LOG}
    for (let n = 0; n < 5; n++) log.info('x'.repeat(100_000));
    process.stdout.write('alive');
    process.stdin.resume();`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['pipe', 'pipe', pipe],
  });
  const closed = once(child, 'close');
  try {
    if (!child.stdin || !child.stdout) throw new Error('the child has no pipes');
    const [said] = await once(child.stdout, 'data');
    expect(String(said)).toBe('alive');
    let lines = '';
    while (lines.split('\n').length <= 5) {
      lines += read(pipe);
      await new Promise(setImmediate);
    }
    expect(lines.match(/x{100000}/g)).toHaveLength(5);
    child.stdin.end();
    expect((await closed)[0]).toBe(0);
  } finally {
    child.kill('SIGKILL');
    closeSync(pipe);
    rmSync(folder, { recursive: true });
  }
});

/** What the pipe has at the moment. */
function read(pipe: number): string {
  const buffer = Buffer.alloc(65_536);
  try {
    return buffer.toString('utf8', 0, readSync(pipe, buffer));
  } catch {
    return '';
  }
}

it('bounds the lines of a message per minute, and counts the others', () => {
  let now = 0;
  const limit = new LineLimit(2, () => now);
  expect(limit.takeSuppressed()).toEqual([]);
  expect([1, 2, 3, 4].map(() => limit.admit('a'))).toEqual([true, true, false, false]);
  expect(limit.admit('b')).toBe(true);
  now = 59_999;
  expect(limit.takeSuppressed()).toEqual([]);
  now = 60_000;
  expect(limit.takeSuppressed()).toEqual([{ message: 'a', count: 2 }]);
  expect(limit.admit('a')).toBe(true);
  now = 120_000;
  expect(limit.takeSuppressed()).toEqual([]);
});

it('drops excess lines of a log with a limit, also of children, but never debug lines', () => {
  const lines: string[] = [];
  const destination = new Writable({
    write(line, _encoding, done) {
      lines.push(JSON.parse(String(line)).msg);
      done();
    },
  });
  const log = createLog({ level: 'debug', destination, maxLinesPerMinute: 2 });
  const child = log.child({ endpoint: 'e' });
  for (const each of [log, child, child]) each.warn({ text: 'different' }, 'worker process exited');
  log.error(new Error('no'), 'request failed');
  for (let count = 0; count < 3; count++) log.debug('outcome reported');
  expect(lines).toEqual([
    ...['worker process exited', 'worker process exited', 'request failed'],
    ...Array(3).fill('outcome reported'),
  ]);
});
