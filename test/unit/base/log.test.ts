// The log of a process when standard error takes no lines.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';

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
const RUNPOD_LOG = `
  import { createTerminalLog } from '${TERMINAL_LOG}';
  const log = createTerminalLog('info');`;

test.runIf(existsSync('/dev/full'))('a full disk of the log ends no process', async () => {
  const full = openSync('/dev/full', 'w');
  const child = start(JSON_LOG, full);
  closeSync(full);
  if (!child.stdout) throw new Error('the child has no standard output');
  expect(await text(child.stdout)).toBe('alive');
});

test.each([
  { name: 'JSON', program: JSON_LOG },
  { name: 'RunPod', program: RUNPOD_LOG, env: { RUNPOD_WEBHOOK_GET_JOB: 'http://127.0.0.1' } },
])('a $name log whose reader has gone ends no process', async ({ env, program }) => {
  const child = start(program, 'pipe', env);
  if (!child.stderr || !child.stdout) throw new Error('the child has no pipes');
  child.stderr.destroy();
  const closed = once(child, 'close');
  expect(await text(child.stdout)).toBe('alive');
  expect((await closed)[0]).toBe(0);
});
